// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/holders.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <span>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/concat.h"
#include "base/socket_holders.h"
#include "base/unique_fd.h"
#include "wire/envelope.h"

namespace uroce::broker {
namespace {

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 diag;
};

bool ask(int fd, int family) {
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.diag.sdiag_family = static_cast<uint8_t>(family);
  request.diag.sdiag_protocol = IPPROTO_UDP;
  request.diag.idiag_states = ~0u;
  return send(fd, &request, sizeof(request), 0) == static_cast<ssize_t>(sizeof(request));
}

enum class Answer { kMore, kDone, kFailed };

// `bytes`: one answer of the kernel's, of several messages. Lengths are bounded by it.
Answer take(std::span<const uint8_t> bytes, std::vector<PortHolder>& holders) {
  while (bytes.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > bytes.size()) return Answer::kFailed;
    if (header.nlmsg_type == NLMSG_DONE) return Answer::kDone;
    if (header.nlmsg_type == NLMSG_ERROR) return Answer::kFailed;
    inet_diag_msg found;
    if (header.nlmsg_len >= NLMSG_LENGTH(sizeof(found))) {
      std::memcpy(&found, bytes.data() + NLMSG_HDRLEN, sizeof(found));
      if (found.id.idiag_sport == htons(wire::kRoceUdpPort)) {
        holders.push_back({found.idiag_inode, found.idiag_uid, static_cast<int>(found.id.idiag_if)});
      }
    }
    bytes = bytes.subspan(std::min<size_t>(NLMSG_ALIGN(header.nlmsg_len), bytes.size()));
  }
  return Answer::kMore;
}

// A user may have any number, and the kernel takes longer for each part of an answer than for the one before. Those of
// brokers and their clients are fewer.
constexpr size_t kMostHolders = 65536;

bool dump(int family, std::vector<PortHolder>& holders) {
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd || !ask(fd.get(), family)) return false;
  std::vector<uint8_t> buffer(32768);
  for (Answer answer = Answer::kMore; answer != Answer::kDone && holders.size() < kMostHolders;) {
    const ssize_t length = recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (length <= 0) return false;
    answer = take(std::span(buffer).first(static_cast<size_t>(length)), holders);
    if (answer == Answer::kFailed) return false;
  }
  return true;
}

struct Owner {
  PortHolder holder;
  std::string process;  // empty: none of those that this one may look into, or there was no time to look at all
};

Owner owner_of(std::span<const PortHolder> holders) {
  constexpr Duration kLook = std::chrono::seconds(1);
  std::vector<uint64_t> inodes;
  for (const PortHolder& holder : holders) {
    if (holder.inode != 0) inodes.push_back(holder.inode);
  }
  const SocketHolders found = find_socket_holders(std::move(inodes), 1, monotonic_now() + kLook);
  if (found.processes.empty()) return {holders.front(), ""};
  const SocketHolder& first = found.processes.front();
  const auto holder = std::find_if(holders.begin(), holders.end(),
                                   [&first](const PortHolder& each) { return each.inode == first.inode; });
  return {*holder, "process " + first.process};
}

std::string netdev_name(int ifindex) {
  std::array<char, IF_NAMESIZE> name{};
  return if_indextoname(static_cast<unsigned>(ifindex), name.data()) != nullptr ? name.data() : std::to_string(ifindex);
}

io::IoError taken(const std::string& by, std::string remedy, int code = EADDRINUSE) {
  return {code, "UDP port 4791 of this network namespace is taken by " + by, std::move(remedy)};
}

constexpr const char* kLook = "see who it is with ss -lunp sport = :4791";

}  // namespace

bool PortHolder::may_be_inherited() const {
  return inode != 0 && ifindex == 0 && uid == geteuid();
}

std::optional<std::vector<PortHolder>> port_holders() {
  std::vector<PortHolder> holders;
  for (const int family : {AF_INET, AF_INET6}) {
    if (!dump(family, holders)) return {};
  }
  return holders;
}

io::IoError port_taken(std::span<const PortHolder> holders) {
  if (holders.empty()) return taken("others", kLook);
  const auto [holder, process] = owner_of(holders);
  if (holder.inode == 0) return taken("the kernel's own RoCE", "remove it: modprobe -r rdma_rxe");
  const std::string who = process.empty() ? "a process" : process;
  const std::string look = process.empty() ? "; " + std::string(kLook) : std::string();
  if (holder.ifindex != 0) {
    return taken(who + ", which has netdev " + netdev_name(holder.ifindex) + " without a broker",
                 "wait for its end, or restart it so that it uses the broker" + look);
  }
  if (holder.uid != geteuid()) {
    return taken(who + " of user " + std::to_string(holder.uid) + ", who may have a broker",
                 "only root's broker serves several users" + look, EAGAIN);
  }
  return taken(who + " of this user, which has not come to this broker", "end it" + look);
}

}  // namespace uroce::broker
