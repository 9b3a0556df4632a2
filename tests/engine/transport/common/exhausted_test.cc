// SPDX-License-Identifier: BSD-2-Clause
// When a QP says that nothing is left to pull. ScriptedQp::pull() checks in every test that it does not say so too
// early.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WrOpcode;
using testing::SizeIs;
using wire::NakCode;

class Exhausted : public testing::TestWithParam<QpType> {
 protected:
  Exhausted() { host_.to_rts(); }
  void send(uint64_t id) {
    host_.post_inline(GetParam() == QpType::kUd ? datagram(id) : work(WrOpcode::kSend, id), {1});
  }
  ScriptedQp host_{{.type = GetParam()}};
};

TEST_P(Exhausted, BehindTheLastMessage) {
  EXPECT_TRUE(host_.qp.exhausted());
  send(1);
  send(2);
  EXPECT_FALSE(host_.qp.exhausted());
  EXPECT_THAT(host_.pull(1), SizeIs(1));
  EXPECT_FALSE(host_.qp.exhausted());
  EXPECT_THAT(host_.pull(1), SizeIs(1));
  EXPECT_TRUE(host_.qp.exhausted());
}

INSTANTIATE_TEST_SUITE_P(Types, Exhausted, testing::Values(QpType::kRc, QpType::kUc, QpType::kUd),
                         [](const auto& type) {
                           return type.param == QpType::kRc ? "Rc" : type.param == QpType::kUc ? "Uc" : "Ud";
                         });

TEST(ExhaustedRc, NotWhileSomethingIsToBeSentAgain) {
  ScriptedQp host;
  host.to_rts();
  host.post_inline(work(WrOpcode::kSend, 1), {1});
  host.post_inline(work(WrOpcode::kSend, 2), {1});
  host.pull();
  EXPECT_TRUE(host.qp.exhausted());
  host.expire();
  EXPECT_FALSE(host.qp.exhausted()) << "a probe is due";
  host.pull();
  EXPECT_TRUE(host.qp.exhausted());
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_FALSE(host.qp.exhausted());
  host.pull();
  EXPECT_TRUE(host.qp.exhausted());
}

TEST(ExhaustedRc, NotBeforeAReadIsAnswered) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(4 * kMtu);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 2 * kMtu));
  EXPECT_FALSE(host.qp.exhausted());
  EXPECT_THAT(host.pull(1), SizeIs(1));
  EXPECT_FALSE(host.qp.exhausted());
  EXPECT_THAT(host.pull(1), SizeIs(1));
  EXPECT_TRUE(host.qp.exhausted());
}

}  // namespace
}  // namespace uroce::transport
