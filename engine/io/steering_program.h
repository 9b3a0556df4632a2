// SPDX-License-Identifier: BSD-2-Clause
// One of the programs of bpf/roce_steer.bpf.c on a netdev: loaded, attached, and its maps filled. It keeps RoCE v2
// packets for us from the kernel's network stack. XDP: af_xdp/xdp_program.h; behind packet sockets: dpdk/copy_filter.h.
//
// The attachment is a bpf_link held by a file descriptor and pinned nowhere, so that the kernel takes it down when the
// process ends, however it ends. Before the first call: load_xdp_library().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/envelope.h"
#include "wire/psn.h"

struct roce_steer;  // the generated skeleton

namespace uroce::io {

class SteeringProgram {
 public:
  SteeringProgram() = default;
  ~SteeringProgram();
  SteeringProgram(const SteeringProgram&) = delete;
  SteeringProgram& operator=(const SteeringProgram&) = delete;

  int link_fd() const { return link_fd_; }  // -1: not attached

  // The netdev's own: frames to it are ours, and those to the MAC address of a multicast group among the local
  // addresses. Returns 0 or an errno value.
  int set_mac(const wire::MacAddress& mac);

  // Packets to these addresses, and to no others, are ours. Takes effect at once, also while traffic flows; addresses
  // that stay are never absent. Returns 0 or an errno value (E2BIG: more than the map holds); then as much is done as
  // can be, and the next call tries the rest again.
  int set_local_addresses(std::span<const wire::IpAddress> addresses);

 protected:
  enum class Kind : uint8_t { kSteer, kSteerQpns, kDropCopies };

  // `queue_count`: receive queues of the netdevs, for XDP. `qpns`: packets to these are ours; not for kSteer. Returns 0
  // or an errno value.
  int load(Kind kind, uint32_t queue_count, const std::optional<wire::QpnRange>& qpns);
  // As bpf_link_create(). From here on packets are looked for, and still passed to the kernel as long as the maps are
  // empty. Returns 0 or an errno value.
  int link(int ifindex, uint32_t attach_type, uint32_t flags);

  bool has_frags() const { return has_frags_; }
  roce_steer& skeleton() { return *skeleton_; }

 private:
  roce_steer* skeleton_ = nullptr;
  int program_fd_ = -1;  // of the one that is loaded
  int link_fd_ = -1;
  bool has_frags_ = true;
  std::vector<wire::IpAddress> addresses_;  // in the map
};

}  // namespace uroce::io
