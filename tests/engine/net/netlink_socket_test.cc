// SPDX-License-Identifier: BSD-2-Clause
// NetlinkSocket: answers that are lost, late or of somebody else do not stand in the way of what is asked next.
#include "engine/net/netlink_socket.h"

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <map>
#include <sys/socket.h>

#include "engine/net/rtnetlink.h"
#include "tests/engine/net/net_test_support.h"

namespace uroce::net {
namespace {

class NetlinkSocketTest : public NetViewTest {
 protected:
  void SetUp() override {
    NetViewTest::SetUp();
    if (!IsSkipped()) socket_.emplace();
  }
  // Asks for all netdevs; true if the answer has va0.
  bool finds_va0() {
    bool found = false;
    const NlMessage message = rtnetlink::dump_links();
    const bool complete = socket_->request(*message, [&](const nlmsghdr& header) {
      const auto link = rtnetlink::parse_link(header);
      found |= link && link->netdev.name == "va0";
    });
    return complete && found;
  }
  // What an earlier request leaves behind that was given up: an answer that nobody has read.
  void leave_an_answer_behind() {
    struct {
      nlmsghdr header;
      ifaddrmsg body;
    } request{};
    request.header.nlmsg_len = sizeof(request);
    request.header.nlmsg_type = RTM_GETADDR;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.header.nlmsg_seq = 12345;
    ASSERT_EQ(send(socket_->descriptor(), &request, sizeof(request), 0), static_cast<ssize_t>(sizeof(request)));
  }

  std::optional<NetlinkSocket> socket_;
};

TEST_F(NetlinkSocketTest, AnswerOfSomebodyElseDoesNotPutItOutOfStep) {
  EXPECT_TRUE(finds_va0());
  leave_an_answer_behind();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(finds_va0()) << i;
}

TEST_F(NetlinkSocketTest, RefusalIsAnAnswer) {
  const int before = socket_->descriptor();
  const NlMessage nowhere = rtnetlink::get_route(index_, ip("198.51.100.1"), ip("203.0.113.1"));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(socket_->request(*nowhere, [](const nlmsghdr&) {}));
  EXPECT_EQ(socket_->descriptor(), before) << "nothing was lost";
  EXPECT_TRUE(finds_va0());
}

TEST_F(NetlinkSocketTest, AnswerThatNeverComesIsNotWaitedForForEver) {
  NlMessage silent = rtnetlink::use_neighbour(index_, ip("192.0.2.1"));
  nlmsg_hdr(silent.get())->nlmsg_type = NLMSG_NOOP;
  nlmsg_hdr(silent.get())->nlmsg_flags = 0;
  EXPECT_FALSE(socket_->request(*silent, [](const nlmsghdr&) {}));
  EXPECT_TRUE(finds_va0());
}

}  // namespace
}  // namespace uroce::net
