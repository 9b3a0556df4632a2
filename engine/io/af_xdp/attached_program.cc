// SPDX-License-Identifier: BSD-2-Clause
// Which XDP program a netdev has: asked of the kernel itself, because it is asked also where libbpf is not loaded.
#include <array>
#include <cstddef>
#include <cstring>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <span>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fork.h"
#include "engine/io/af_xdp/xdp_program.h"

namespace uroce::io {
namespace {

// In bpf/roce_steer.bpf.c.
constexpr const char* kTakesAll = "uroce_steer";
constexpr const char* kTakesRange = "uroce_steer_qpn";

using Bytes = std::span<const std::byte>;

// The value of the first attribute of that type; empty: none. `attributes` bounds all that is read.
Bytes find_attribute(Bytes attributes, uint16_t type) {
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr header;
    std::memcpy(&header, attributes.data(), sizeof(header));
    if (header.rta_len < sizeof(header) || header.rta_len > attributes.size()) return {};
    if ((header.rta_type & NLA_TYPE_MASK) == type)
      return attributes.subspan(sizeof(header), header.rta_len - sizeof(header));
    attributes = attributes.subspan(std::min<size_t>(RTA_ALIGN(header.rta_len), attributes.size()));
  }
  return {};
}

uint32_t find_number(Bytes attributes, uint16_t type) {
  const Bytes value = find_attribute(attributes, type);
  uint32_t number = 0;
  if (value.size() == sizeof(number)) std::memcpy(&number, value.data(), sizeof(number));
  return number;
}

// What the kernel says of the netdev, put into `answer`: the attributes of its RTM_NEWLINK message. Empty: nothing.
Bytes ask_for_link(int ifindex, std::span<std::byte> answer) {
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request{};
  request.header = {.nlmsg_len = sizeof(request),
                    .nlmsg_type = RTM_GETLINK,
                    .nlmsg_flags = NLM_F_REQUEST,
                    .nlmsg_seq = 1,
                    .nlmsg_pid = 0};
  request.link.ifi_index = ifindex;
  const int socket_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (socket_fd < 0) return {};
  ssize_t length = send(socket_fd, &request, sizeof(request), 0);
  if (length == static_cast<ssize_t>(sizeof(request))) length = recv(socket_fd, answer.data(), answer.size(), 0);
  close(socket_fd);

  nlmsghdr header{};
  constexpr size_t kFront = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(ifinfomsg));
  if (length < static_cast<ssize_t>(kFront)) return {};
  std::memcpy(&header, answer.data(), sizeof(header));
  const bool whole = header.nlmsg_len >= kFront && header.nlmsg_len <= static_cast<size_t>(length);
  if (header.nlmsg_type != RTM_NEWLINK || !whole) return {};
  return answer.subspan(kFront, header.nlmsg_len - kFront);
}

// Empty: this process may not look at programs of others.
std::string name_of_program(uint32_t id) {
  bpf_attr wanted{};
  wanted.prog_id = id;
  const auto fd = static_cast<int>(syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &wanted, sizeof(wanted)));
  if (fd < 0) return {};
  bpf_prog_info info{};
  bpf_attr about{};
  about.info.bpf_fd = static_cast<uint32_t>(fd);
  about.info.info_len = sizeof(info);
  about.info.info = reinterpret_cast<uintptr_t>(&info);
  const bool known = syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &about, sizeof(about)) == 0;
  close(fd);
  return known ? std::string(info.name, strnlen(info.name, sizeof(info.name))) : std::string();
}

}  // namespace

bool AttachedProgram::is_ours() const {
  return name == kTakesAll || name == kTakesRange;
}

bool AttachedProgram::takes_all() const {
  return name == kTakesAll;
}

bool is_detached_xdp_link(int link_fd) {
  bpf_link_info info{};
  bpf_attr about{};
  about.info.bpf_fd = static_cast<uint32_t>(link_fd);
  about.info.info_len = sizeof(info);
  about.info.info = reinterpret_cast<uintptr_t>(&info);
  return syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &about, sizeof(about)) == 0 && info.type == BPF_LINK_TYPE_XDP &&
         info.xdp.ifindex == 0;
}

std::optional<AttachedProgram> attached_xdp_program(int ifindex) {
  std::array<std::byte, 16384> answer;  // a page or so, without virtual functions, for which nobody has asked
  const Bytes xdp = find_attribute(ask_for_link(ifindex, answer), IFLA_XDP);
  AttachedProgram program;
  for (const uint16_t type : {IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID, IFLA_XDP_HW_PROG_ID, IFLA_XDP_PROG_ID}) {
    if (program.id == 0) program.id = find_number(xdp, type);
  }
  if (program.id == 0) return std::nullopt;
  program.name = name_of_program(program.id);
  return program;
}

}  // namespace uroce::io
