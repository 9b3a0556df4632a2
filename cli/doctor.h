// SPDX-License-Identifier: BSD-2-Clause
// `uroce doctor`: judges what the probes found and says for every problem what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/device_list.h"
#include "cli/host_probe.h"
#include "cli/report.h"
#include "engine/io/dpdk/devargs.h"
#include "engine/io/udp/socket.h"

namespace uroce::cli {

// The broker that programs started here would use; both empty: there is none.
struct BrokerFacts {
  std::string serves;  // "uroced 0.1.0, process 123"
  std::optional<io::IoError> refuses;

  bool found() const { return !serves.empty() || refuses; }
};

// What ports of DPDK need.
struct DpdkFacts {
  std::string library;  // path of uroce_dpdk.so; empty: uroce was built without DPDK
  bool net_raw = true, net_admin = true;
  unsigned hugepages = 0;   // free, of 2 MiB
  io::DpdkDevargs devargs;  // that UROCE_IO names
};

// What is not tied to one netdev.
struct HostFacts {
  KernelVersion kernel;
  int af_xdp_socket_error = 0;
  Privileges privileges;
  size_t lockable_memory = SIZE_MAX;                   // bytes; SIZE_MAX: unlimited
  size_t udp_receive_buffer = 2 * io::kUdpBufferSize;  // bytes as the kernel counts
  std::vector<PortHolder> port_holders;
  BrokerFacts broker;
  bool btf = false;
  bool bpffs = false;
  std::string library;         // path of liburoce.so; empty: not found
  std::string files_library;   // path of liburoce_files.so
  std::string af_xdp_library;  // path of uroce_af_xdp.so
  DpdkFacts dpdk;
  std::string no_devices{};  // why_no_devices()
};

HostFacts collect_host_facts();

// Usable means: at least one device is active and can send through AF_XDP or UDP sockets.
Report diagnose(const HostFacts& host, const std::vector<Device>& devices);

}  // namespace uroce::cli
