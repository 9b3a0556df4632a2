// SPDX-License-Identifier: BSD-2-Clause
// The XDP program of AfXdp on its netdev, which has one at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/steering_program.h"
#include "wire/psn.h"

namespace uroce::io {

// The XDP program that is attached to a netdev, whoever attached it.
struct AttachedProgram {
  uint32_t id = 0;
  std::string name;  // empty: not allowed to look (CAP_SYS_ADMIN)
  bool is_ours() const;
  // It is ours and leaves nothing of the port to other processes.
  bool takes_all() const;
};

// nullopt: none. Needs no privilege.
std::optional<AttachedProgram> attached_xdp_program(int ifindex);

// Whether the bpf_link, which attached a program to a netdev, does so no more: `bpftool link detach`, or the netdev is
// gone. False also where the kernel does not say.
bool is_detached_xdp_link(int link_fd);

class XdpProgram final : public SteeringProgram {
 public:
  enum class Mode : uint8_t { kNative, kGeneric };

  // Loads for netdevs of up to `queue_count` receive queues. Packets to these QPNs are ours; nullopt: to all. Returns 0
  // or an errno value.
  int load(uint32_t queue_count, const std::optional<wire::QpnRange>& qpns);

  // Attaches natively, or failing that (or when `force_generic`) in generic mode. From here on our packets are looked
  // for, and still passed to the kernel as long as the maps are empty. Returns 0 or an errno value.
  int attach(int ifindex, bool force_generic);
  Mode mode() const { return mode_; }
  // Why the native attach did not work; 0 when it did or was not tried.
  int native_error() const { return native_error_; }
  // False on kernels before 5.18: packets that need more than one buffer do not reach native programs.
  using SteeringProgram::has_frags;

  // Packets of this queue go to the AF_XDP socket. Returns 0 or an errno value.
  int set_socket(uint32_t queue, int socket_fd);

 private:
  Mode mode_ = Mode::kNative;
  int native_error_ = 0;
};

}  // namespace uroce::io
