// SPDX-License-Identifier: BSD-2-Clause
// What UROCE_IO=dpdk:DEVARGS names: a DPDK port, as DPDK's own programs take it with --vdev and -a.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace uroce::io {

struct DpdkDevargs {
  std::string device;   // "net_af_packet0", "0000:01:00.0"
  std::string options;  // "iface=eth0,qpairs=2"; may be empty
  uint32_t queues = 1;  // as queues=N or qpairs=N says

  bool is_af_packet() const { return device.rfind("net_af_packet", 0) == 0 || device.rfind("eth_af_packet", 0) == 0; }
  bool is_tap() const { return device.rfind("net_tap", 0) == 0; }
  // The driver tells when there are frames. Ports of others are looked at again and again while nobody polls.
  bool can_sleep() const { return device.empty() || is_af_packet() || is_tap(); }
  // Which of CAP_NET_RAW and CAP_NET_ADMIN a driver needs that needs no hardware, and the process does not have:
  // "CAP_NET_RAW, CAP_NET_ADMIN"; empty: none.
  std::string lacks(bool net_raw, bool net_admin) const;
  // The value of an option; empty: it is not there.
  std::string value(const std::string& key) const;
  // Of a port that one process at a time can use: what it is for all of them. Empty: of one that is the process's own
  // (net_null), or that the kernel shares out (net_af_packet).
  std::string exclusive_name() const;
  std::string text() const { return options.empty() ? device : device + "," + options; }
};

// The largest number of queues that can be asked for.
inline constexpr uint32_t kMaxDpdkQueues = 16;

// Nothing: it names no device.
std::optional<DpdkDevargs> parse_dpdk_devargs(const std::string& text);

// Of a port on a netdev of the kernel: what has not been said of it. `buffer_size`: bytes of a frame in one buffer.
// Without devargs it is net_af_packet on the netdev; `number` makes its name another one than those before.
DpdkDevargs complete_dpdk_devargs(const DpdkDevargs& devargs, const std::string& netdev, uint32_t buffer_size,
                                  uint32_t number);

}  // namespace uroce::io
