// SPDX-License-Identifier: BSD-2-Clause
// One of the XDP programs of bpf/roce_steer.bpf.c on a netdev: loaded, attached, and its maps filled. Owned by AfXdp.
//
// The attachment is a bpf_link held by a file descriptor and pinned nowhere, so that the kernel takes it down when the
// process ends, however it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/io/io_error.h"
#include "wire/envelope.h"
#include "wire/psn.h"

struct roce_steer;  // the generated skeleton

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

class XdpProgram {
 public:
  enum class Mode : uint8_t { kNative, kGeneric };

  XdpProgram() = default;
  ~XdpProgram();
  XdpProgram(const XdpProgram&) = delete;
  XdpProgram& operator=(const XdpProgram&) = delete;

  // Loads for netdevs of up to `queue_count` receive queues. Packets to these QPNs are ours; nullopt: to all. Returns 0
  // or an errno value.
  int load(uint32_t queue_count, const std::optional<wire::QpnRange>& qpns);

  // Attaches natively, or failing that (or when `force_generic`) in generic mode. From here on our packets are looked
  // for, and still passed to the kernel as long as the maps are empty. Returns 0 or an errno value.
  int attach(int ifindex, bool force_generic);
  int link_fd() const { return link_fd_; }  // -1: not attached
  Mode mode() const { return mode_; }
  // Why the native attach did not work; 0 when it did or was not tried.
  int native_error() const { return native_error_; }
  // False on kernels before 5.18: packets that need more than one buffer do not reach native programs.
  bool has_frags() const { return has_frags_; }

  // Packets of this queue go to the AF_XDP socket. Returns 0 or an errno value.
  int set_socket(uint32_t queue, int socket_fd);

  // The netdev's own: frames to it are ours, and those to the MAC address of a multicast group among the local
  // addresses. Returns 0 or an errno value.
  int set_mac(const wire::MacAddress& mac);

  // Packets to these addresses, and to no others, are ours. Takes effect at once, also while traffic flows; addresses
  // that stay are never absent. Returns 0 or an errno value (E2BIG: more than the map holds); then as much is done as
  // can be, and the next call tries the rest again.
  int set_local_addresses(std::span<const wire::IpAddress> addresses);

 private:
  roce_steer* skeleton_ = nullptr;
  int program_fd_ = -1;  // of the one that is loaded
  int link_fd_ = -1;
  Mode mode_ = Mode::kNative;
  int native_error_ = 0;
  bool has_frags_ = true;
  std::vector<wire::IpAddress> addresses_;  // in the map
};

}  // namespace uroce::io
