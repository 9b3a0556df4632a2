// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/steering_program.h"

#include <algorithm>
#include <array>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cassert>
#include <cerrno>
#include <iterator>

#include "base/fork.h"
#include "engine/io/silent_libbpf.h"
#include "roce_steer.skel.h"

namespace uroce::io {
namespace {

constexpr uint32_t kFragsFlag = 1U << 5;  // BPF_F_XDP_HAS_FRAGS, kernel 5.18

// In the order of SteeringProgram::Kind.
std::array<bpf_program*, 3> programs(const roce_steer& skeleton) {
  return {skeleton.progs.uroce_steer, skeleton.progs.uroce_steer_qpn, skeleton.progs.uroce_drop_copies};
}

// 0 or an errno value.
int load_skeleton(size_t kind, uint32_t queue_count, const std::optional<wire::QpnRange>& qpns, bool frags,
                  roce_steer*& skeleton) {
  skeleton = roce_steer__open();
  if (skeleton == nullptr) return errno;
  bpf_map__set_max_entries(skeleton->maps.xsks, queue_count);
  if (qpns) {
    skeleton->rodata->first_qpn = qpns->first;
    skeleton->rodata->qpn_count = qpns->count;
  }
  const auto all = programs(*skeleton);
  for (size_t i = 0; i < all.size(); ++i) bpf_program__set_autoload(all[i], i == kind);
  if (!frags) bpf_program__set_flags(all[kind], bpf_program__flags(all[kind]) & ~kFragsFlag);
  const int error = roce_steer__load(skeleton);
  if (error == 0) return 0;
  roce_steer__destroy(skeleton);
  skeleton = nullptr;
  return -error;
}

// A child that kept one of them would keep the program attached, or the sockets in its map open.
std::array<int, 5> descriptors(const roce_steer& skeleton, int program_fd) {
  return {program_fd, bpf_map__fd(skeleton.maps.xsks), bpf_map__fd(skeleton.maps.local_addresses),
          bpf_map__fd(skeleton.maps.own_mac), bpf_map__fd(skeleton.maps.rodata)};
}

}  // namespace

SteeringProgram::~SteeringProgram() {
  if (skeleton_ == nullptr) return;
  ForkGuard guard;
  guard.close(link_fd_);
  for (const int fd : descriptors(*skeleton_, program_fd_)) guard.forget(fd);
  roce_steer__destroy(skeleton_);
}

int SteeringProgram::load(Kind kind, uint32_t queue_count, const std::optional<wire::QpnRange>& qpns) {
  assert(skeleton_ == nullptr);
  const SilentLibbpf silent;
  ForkGuard guard;
  const auto number = static_cast<size_t>(kind);
  int error = load_skeleton(number, queue_count, qpns, true, skeleton_);
  if (error == EINVAL && kind != Kind::kDropCopies) {  // the kernel does not know the flag
    has_frags_ = false;
    error = load_skeleton(number, queue_count, qpns, false, skeleton_);
  }
  if (error == 0) {
    program_fd_ = bpf_program__fd(programs(*skeleton_)[number]);
    for (const int fd : descriptors(*skeleton_, program_fd_)) guard.close_in_children(fd);
  }
  return error;
}

int SteeringProgram::link(int ifindex, uint32_t attach_type, uint32_t flags) {
  const SilentLibbpf silent;
  bpf_link_create_opts options{};
  options.sz = sizeof(options);
  options.flags = flags;
  ForkGuard guard;
  link_fd_ = bpf_link_create(program_fd_, ifindex, static_cast<bpf_attach_type>(attach_type), &options);
  guard.close_in_children(link_fd_);
  return link_fd_ < 0 ? -link_fd_ : 0;
}

int SteeringProgram::set_mac(const wire::MacAddress& mac) {
  const uint32_t only = 0;
  std::array<uint8_t, 8> value{};  // struct mac_address of the program
  std::copy(mac.begin(), mac.end(), value.begin());
  return bpf_map_update_elem(bpf_map__fd(skeleton_->maps.own_mac), &only, value.data(), BPF_ANY) == 0 ? 0 : errno;
}

int SteeringProgram::set_local_addresses(std::span<const wire::IpAddress> addresses) {
  const int map = bpf_map__fd(skeleton_->maps.local_addresses);
  const auto before = [](const wire::IpAddress& a, const wire::IpAddress& b) { return a.bytes < b.bytes; };
  std::vector<wire::IpAddress> wanted(addresses.begin(), addresses.end());
  std::sort(wanted.begin(), wanted.end(), before);
  std::vector<wire::IpAddress> gone, come;
  std::set_difference(addresses_.begin(), addresses_.end(), wanted.begin(), wanted.end(), std::back_inserter(gone),
                      before);
  std::set_difference(wanted.begin(), wanted.end(), addresses_.begin(), addresses_.end(), std::back_inserter(come),
                      before);
  int error = 0;
  std::vector<wire::IpAddress> kept, missing;  // what cannot be deleted, what cannot be added
  for (const wire::IpAddress& address : gone) {
    if (bpf_map_delete_elem(map, address.bytes.data()) == 0 || errno == ENOENT) continue;
    error = errno;
    kept.push_back(address);
  }
  for (const wire::IpAddress& address : come) {
    const uint8_t present = 1;
    if (bpf_map_update_elem(map, address.bytes.data(), &present, BPF_ANY) == 0) continue;
    error = errno;
    missing.push_back(address);
  }
  std::vector<wire::IpAddress> added;
  std::set_difference(wanted.begin(), wanted.end(), missing.begin(), missing.end(), std::back_inserter(added), before);
  addresses_.clear();
  std::set_union(added.begin(), added.end(), kept.begin(), kept.end(), std::back_inserter(addresses_), before);
  return error;
}

}  // namespace uroce::io
