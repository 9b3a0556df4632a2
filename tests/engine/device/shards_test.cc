// SPDX-License-Identifier: BSD-2-Clause
// Several shards of one device: who gets to which, what they share, and that each wakes the others. In one process; QPs
// of different shards are connected to each other through the memory loops.
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

using queue::Cqe;
using transport::QpType;
constexpr uint32_t kShards = 4;

uint32_t shard_of(const Qp& qp) {
  return io::shard_of(wire::Qpn(Engine::qpn(qp)), kShards);
}

class ShardsTest : public testing::Test {
 protected:
  ~ShardsTest() override {
    for (Qp* qp : qps_) engine_->destroy_qp(qp);
    if (srq_ != nullptr) engine_->destroy_srq(srq_);
  }
  Qp* create(CompletionQueue& send_cq, CompletionQueue& recv_cq, QpType type = QpType::kRc, Srq* srq = nullptr) {
    QpInit init;
    init.type = type;
    init.pd = 1;
    init.send_cq = &send_cq;
    init.recv_cq = &recv_cq;
    init.srq = srq;
    Qp* qp = nullptr;
    EXPECT_EQ(engine_->create_qp(init, qp), 0);
    qps_.push_back(qp);
    return qp;
  }

  const std::shared_ptr<Engine> engine_ = make_engine(kShards);
  std::array<CompletionQueue, 5> cqs_{{{64, nullptr}, {64, nullptr}, {64, nullptr}, {64, nullptr}, {64, nullptr}}};
  Waiter waiter_;
  CompletionQueue awaited_{64, &waiter_};
  std::vector<Qp*> qps_;
  Srq* srq_ = nullptr;
};

TEST_F(ShardsTest, QpsGoWithTheirCompletionQueuesAndTheseByTurns) {
  for (uint32_t i = 0; i < cqs_.size(); ++i) {
    EXPECT_EQ(shard_of(*create(cqs_[i], cqs_[i])), i % kShards);
    EXPECT_EQ(shard_of(*create(cqs_[i], cqs_[i], QpType::kUc)), i % kShards);
    EXPECT_FALSE(cqs_[i].shared());
  }
}

TEST_F(ShardsTest, QpsOfASharedReceiveQueueAreInOneShard) {
  SrqInit init;
  init.pd = 1;
  ASSERT_EQ(engine_->create_srq(init, srq_), 0);
  create(cqs_[0], cqs_[0]);
  const uint32_t shard = shard_of(*create(cqs_[1], cqs_[1], QpType::kRc, srq_));
  EXPECT_EQ(shard, 1u);
  EXPECT_EQ(shard_of(*create(cqs_[0], cqs_[0], QpType::kRc, srq_)), shard);
  EXPECT_TRUE(cqs_[0].shared());
}

TEST_F(ShardsTest, DatagramsAreShardZeros) {
  create(cqs_[0], cqs_[0]);
  create(cqs_[1], cqs_[1]);
  EXPECT_EQ(shard_of(*create(cqs_[1], cqs_[1], QpType::kUd)), 0u);
  EXPECT_TRUE(cqs_[1].shared());
}

TEST_F(ShardsTest, ADeviceHasNoMoreQpsThanItSaysHoweverTheyAreSpread) {
  EXPECT_LT(Limits::kMaxQp, kShards * Limits::kMaxQp);
  Qp* qp = nullptr;
  QpInit init;
  init.send_cq = init.recv_cq = cqs_.data();
  for (uint32_t i = 0; i < Limits::kMaxQp; ++i) {
    if (i == Limits::kMaxQp / 2) init.send_cq = init.recv_cq = &cqs_[1];
    ASSERT_EQ(engine_->create_qp(init, qp), 0) << i;
    qps_.push_back(qp);
  }
  EXPECT_EQ(engine_->create_qp(init, qp), ENOMEM);
}

// Threads poll neither end: the background thread is woken for what one shard sends to another. Nothing but the packet
// tells it, for UC has no timers.
TEST_F(ShardsTest, SleepersAreWokenByWhatOtherShardsSend) {
  using namespace transport;
  CompletionQueue& receives = awaited_;
  Qp* const a = create(cqs_[0], cqs_[0], QpType::kUc);
  Qp* const b = create(receives, receives, QpType::kUc);
  ASSERT_NE(shard_of(*a), shard_of(*b));
  for (Qp* const qp : {a, b}) {
    QpAttributes attr;
    attr.state = QpState::kInit;
    attr.port = 1;
    ASSERT_EQ(engine_->modify_qp(*qp, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
    attr.state = QpState::kRtr;
    attr.address.destination = kOwnAddress;
    attr.address.global = true;
    attr.path_mtu = 1024;
    attr.dest_qpn = wire::Qpn(Engine::qpn(qp == a ? *b : *a));
    const uint32_t mask = kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    ASSERT_EQ(engine_->modify_qp(*qp, attr, mask), 0);
    attr.state = QpState::kRts;
    ASSERT_EQ(engine_->modify_qp(*qp, attr, kQpState | kQpSqPsn), 0);
  }
  for (uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(Engine::receive_queue(*b).post(i, {}));
    receives.arm(CompletionQueue::Arm::kAny);
    if (receives.has_missed()) engine_->report_missed(receives);
    engine_->expect_sleep();
    if (i % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that the background thread sleeps
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(Engine::send_queue(*a).reserve(0, slot));
    *slot.wqe = {};
    slot.wqe->opcode = queue::WrOpcode::kSend;
    slot.wqe->flags = queue::kSignaled;
    Engine::send_queue(*a).publish(1);
    engine_->doorbell(*a);
    ASSERT_TRUE(waiter_.wait(std::chrono::seconds(10))) << "message " << i;
    std::vector<uint64_t> ids;
    receives.poll(8, [&](const Cqe& cqe) { ids.push_back(cqe.wr_id); });
    ASSERT_EQ(ids, std::vector{i});
    while (cqs_[0].poll(8, [](const Cqe&) {}) == 0) engine_->progress(cqs_[0]);
  }
}

// Two shards fill one completion queue, with the completions of sends, while a third thread polls it.
TEST(Shards, FillOneCompletionQueueTogether) {
  constexpr uint64_t kMessages = 3000;
  const std::shared_ptr<Engine> engine = make_engine(kShards);
  Connection settings(*engine);  // for what it can do with QPs
  CompletionQueue shared(8192, nullptr), first(8192, nullptr), second(8192, nullptr);
  struct Pair {
    Qp* sender;
    Qp* receiver;
    CompletionQueue* cq;  // of the receives
  };
  const auto create = [&](CompletionQueue& send_cq, CompletionQueue& recv_cq) {
    QpInit init;
    init.pd = 1;
    init.max_send_wr = init.max_recv_wr = 64;
    init.max_inline = 64;
    init.send_cq = &send_cq;
    init.recv_cq = &recv_cq;
    Qp* qp = nullptr;
    EXPECT_EQ(engine->create_qp(init, qp), 0);
    return qp;
  };
  std::vector<Pair> pairs;
  for (CompletionQueue* cq : {&first, &second}) pairs.push_back({create(shared, *cq), create(*cq, *cq), cq});
  ASSERT_NE(shard_of(*pairs[0].sender), shard_of(*pairs[1].sender));
  ASSERT_TRUE(shared.shared());
  for (const Pair& pair : pairs) {
    settings.connect(*pair.sender, Engine::qpn(*pair.receiver));
    settings.connect(*pair.receiver, Engine::qpn(*pair.sender));
  }
  Buffer buffer(*engine);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < pairs.size(); ++i) {
    threads.emplace_back([&, pair = pairs[i], sge = buffer.sge(i)] {
      uint64_t posted = 0, sent = 0, received = 0;
      while (received < kMessages) {
        while (posted < kMessages && Engine::receive_queue(*pair.receiver).post(posted, {&sge, 1})) ++posted;
        while (sent < posted && settings.send(*pair.sender, sent)) ++sent;
        pair.cq->poll(64, [&](const Cqe& cqe) {
          EXPECT_EQ(cqe.status, queue::WcStatus::kSuccess);
          EXPECT_EQ(cqe.wr_id, received++);
        });
        engine->progress(*pair.cq);
      }
    });
  }
  std::array<uint64_t, 2> next{};
  while (next[0] + next[1] < 2 * kMessages) {
    const uint32_t count = shared.poll(64, [&](const Cqe& cqe) {
      const size_t i = cqe.qpn == Engine::qpn(*pairs[0].sender) ? 0 : 1;
      EXPECT_EQ(cqe.wr_id, next[i]++) << "of each QP in order";
    });
    if (count == 0) engine->progress(shared);
  }
  for (std::thread& thread : threads) thread.join();
  for (const Pair& pair : pairs) {
    engine->destroy_qp(pair.sender);
    engine->destroy_qp(pair.receiver);
  }
}

// A type 1 window is bound anew by a QP of one shard while a QP of another writes through it. When the binding is
// complete nothing is written to the old place any more (IBTA 10.6.7.2.4).
TEST(Shards, AWindowThatIsBoundAnewIsUsedByNobodyAsItWas) {
  constexpr int kBindings = 2000;
  const std::shared_ptr<Engine> engine = make_engine(kShards);
  Connection writing(*engine), binding(*engine);
  ASSERT_NE(shard_of(*writing.b), shard_of(*binding.a));
  Buffer buffer(*engine, memory::kLocalWrite | memory::kMwBind);
  uint32_t window = 0;
  ASSERT_EQ(engine->allocate_window(memory::WindowType::kType1, 1, window), 0);
  const auto post = [&](Connection& c, const auto& fill) {
    queue::SendQueue::Slot slot;
    if (!Engine::send_queue(*c.a).reserve(0, slot)) return false;
    *slot.wqe = {};
    slot.wqe->flags = queue::kSignaled | queue::kInline;
    fill(slot);
    Engine::send_queue(*c.a).publish(1);
    engine->doorbell(*c.a);
    return true;
  };
  const auto take = [&](Connection& c) {
    queue::WcStatus status = queue::WcStatus::kGeneralError;
    while (c.cq_a.poll(1, [&](const Cqe& cqe) { status = cqe.status; }) == 0) engine->progress(c.cq_a);
    return status;
  };
  // To the first or second word, by turns.
  const auto bind = [&](int n) {
    ASSERT_TRUE(post(binding, [&](queue::SendQueue::Slot& slot) {
      slot.wqe->opcode = queue::WrOpcode::kBindMw;
      slot.wqe->rkey = window;
      slot.wqe->immediate_or_rkey = window;  // the writer goes on with the key it has
      slot.wqe->remote_address = reinterpret_cast<uint64_t>(&buffer.words[static_cast<size_t>(n % 2)]);
      slot.wqe->bind = {sizeof(uint64_t), buffer.key, memory::kRemoteWrite};
    }));
    ASSERT_EQ(take(binding), queue::WcStatus::kSuccess);
  };
  bind(0);
  std::atomic<bool> stop{false};
  std::atomic<int> written{0};
  std::thread writer([&] {
    for (uint64_t value = 1; !stop; ++value) {
      // To both: one of them is refused, which ends the QP; it is connected again.
      const bool posted = post(writing, [&](queue::SendQueue::Slot& slot) {
        slot.wqe->opcode = queue::WrOpcode::kRdmaWrite;
        slot.wqe->rkey = window;
        slot.wqe->remote_address = reinterpret_cast<uint64_t>(&buffer.words[value % 2]);
        slot.wqe->length = sizeof(value);
        std::memcpy(slot.inline_data, &value, sizeof(value));
      });
      EXPECT_TRUE(posted);
      if (take(writing) == queue::WcStatus::kSuccess) {
        ++written;
        continue;
      }
      for (Qp* qp : {writing.a, writing.b}) writing.move(*qp, transport::QpState::kReset);
      writing.connect(*writing.a, Engine::qpn(*writing.b));
      writing.connect(*writing.b, Engine::qpn(*writing.a));
    }
  });
  for (int n = 1; n < kBindings || written < 100; ++n) {
    bind(n);
    const uint64_t& left = buffer.words[static_cast<size_t>((n + 1) % 2)];
    const uint64_t before = std::atomic_ref(const_cast<uint64_t&>(left)).load();
    for (int i = 0; i < 20; ++i) engine->progress();
    ASSERT_EQ(std::atomic_ref(const_cast<uint64_t&>(left)).load(), before);
  }
  stop = true;
  writer.join();
  EXPECT_EQ(engine->deallocate_window(window), 0);
}

}  // namespace
}  // namespace uroce::engine::test
