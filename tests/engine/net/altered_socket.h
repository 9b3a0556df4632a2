// SPDX-License-Identifier: BSD-2-Clause
// A netlink socket between NetView and the kernel that a test tells to cut answers short, and to say more than the
// kernel does.
#pragma once

#include <functional>
#include <linux/rtnetlink.h>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/net/net_view.h"
#include "engine/net/netlink_socket.h"

namespace uroce::net {

// What both sockets of a view are told. Messages are as in memory, whole.
struct Alterations {
  std::map<int, int> cut_short;               // by type of request (RTM_GETADDR ...): so many answers from now on
  std::map<int, int> asked;                   // by type of request: so often
  std::vector<std::vector<char>> more_links;  // in front of a dump of links
  std::vector<std::vector<char>> news;        // notifications; taken once
};

class AlteredSocket final : public NetlinkSocket {
 public:
  explicit AlteredSocket(Alterations& alterations) : alterations_(alterations) {}

  // Of an answer that is cut short only the first message arrives.
  bool request(nl_msg& message, const Handler& handler) override {
    const int type = nlmsg_hdr(&message)->nlmsg_type;
    ++alterations_.asked[type];
    if (type == RTM_GETLINK) deliver(alterations_.more_links, handler);
    int& flaws = alterations_.cut_short[type];
    if (flaws == 0) return NetlinkSocket::request(message, handler);
    --flaws;
    bool first = true;
    NetlinkSocket::request(message, [&](const nlmsghdr& header) {
      if (std::exchange(first, false)) handler(header);
    });
    return false;
  }

  Drained drain(const Handler& handler) override {
    const Drained drained = NetlinkSocket::drain(handler);
    const auto news = std::exchange(alterations_.news, {});
    deliver(news, handler);
    return drained == Drained::kNothing && !news.empty() ? Drained::kMessages : drained;
  }

 private:
  static void deliver(const std::vector<std::vector<char>>& messages, const Handler& handler) {
    for (const std::vector<char>& message : messages) handler(*reinterpret_cast<const nlmsghdr*>(message.data()));
  }

  Alterations& alterations_;
};

inline std::unique_ptr<NetView> open_altered(Alterations& alterations) {
  return NetView::open(std::make_unique<AlteredSocket>(alterations), std::make_unique<AlteredSocket>(alterations));
}

}  // namespace uroce::net
