// Random work of all kinds in both directions between two RC QPs over links that lose, duplicate, reorder and corrupt:
// every byte arrives, every completion comes exactly once and in order. The seed decides everything and is printed.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <string>

#include "tests/simulator/sim_qp.h"

namespace uroce::simulator {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;

struct Scenario {
  const char* name;
  LinkConfig link;
  uint32_t path_mtu = 1024;
  uint32_t first_psn = 0x123456;
  int messages = 400;
  uint32_t max_size = 40000;
};

void PrintTo(const Scenario& s, std::ostream* out) {
  *out << s.name;
}

uint64_t base_seed() {
  const char* text = std::getenv("UROCE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 1;
}

// One direction: `from` works on the memory and receive queue of `to`. The plan says what must be seen.
class Traffic {
 public:
  static constexpr uint32_t kSlots = 32;  // messages under way, each with a buffer of its own at both ends

  Traffic(SimQp& from, SimQp& to, std::mt19937_64& random, const Scenario& scenario)
      : from_(from), to_(to), random_(random), scenario_(scenario) {
    const size_t bytes = size_t{kSlots} * scenario.max_size;
    local_.resize(bytes);
    remote_.resize(bytes);
    local_key_ = from.register_memory(local_.data(), bytes, memory::kLocalWrite);
    remote_key_ =
        to.register_memory(remote_.data(), bytes,
                           memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic);
    word_key_ = to.register_memory(&word_, sizeof(word_), memory::kLocalWrite | memory::kRemoteAtomic);
  }

  bool done() const { return completed_ == scenario_.messages && receives_.empty(); }
  int completed() const { return completed_; }

  void step() {
    while (posted_ < scenario_.messages && posted_ - completed_ < static_cast<int>(kSlots)) post_one();
  }

  void check_send_completion(const queue::Cqe& cqe) {
    // Unsignaled messages before it are complete with it.
    while (true) {
      ASSERT_FALSE(under_way_.empty()) << "a completion that nobody waits for";
      const Message m = under_way_.front();
      under_way_.pop_front();
      check_effect(m);
      ++completed_;
      if (!m.signaled) continue;
      ASSERT_EQ(cqe.wr_id, m.id) << "completions out of order";
      ASSERT_EQ(cqe.status, WcStatus::kSuccess);
      return;
    }
  }

  void check_receive_completion(const queue::Cqe& cqe) {
    ASSERT_FALSE(receives_.empty());
    const Message m = receives_.front();
    receives_.pop_front();
    ASSERT_EQ(cqe.status, WcStatus::kSuccess);
    ASSERT_EQ(cqe.wr_id, m.id);
    if (m.opcode == WrOpcode::kRdmaWriteWithImmediate) {
      ASSERT_EQ(cqe.opcode, WcOpcode::kReceiveRdmaWithImmediate);
    } else {
      ASSERT_EQ(cqe.opcode, WcOpcode::kReceive);
      ASSERT_TRUE(std::equal(m.expected.begin(), m.expected.end(), remote(m))) << "SEND " << m.id;
    }
    ASSERT_EQ(cqe.byte_length, m.size);
    ASSERT_EQ(cqe.solicited, m.solicited);
    if (m.opcode != WrOpcode::kSend) {
      ASSERT_EQ(cqe.immediate_or_rkey, static_cast<uint32_t>(m.id * 77));
    }
  }

  void finish() { EXPECT_EQ(word_, expected_word_) << "atomics executed more or less than once"; }

 private:
  struct Message {
    uint64_t id;
    WrOpcode opcode;
    uint32_t size;
    bool signaled;
    bool solicited;
    std::vector<uint8_t> expected;
    uint64_t expected_original = 0;
  };

  uint8_t* local(const Message& m) { return &local_[m.id % kSlots * scenario_.max_size]; }
  uint8_t* remote(const Message& m) { return &remote_[m.id % kSlots * scenario_.max_size]; }

  void post_one() {
    static constexpr WrOpcode kKinds[] = {
        WrOpcode::kSend,     WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImmediate,
        WrOpcode::kRdmaRead, WrOpcode::kCompareSwap,       WrOpcode::kFetchAdd};
    Message m{};
    m.id = static_cast<uint64_t>(posted_);
    m.opcode = kKinds[random_() % std::size(kKinds)];
    const uint32_t limit = random_() % 3 == 0 ? scenario_.max_size : 3 * scenario_.path_mtu;
    m.size = random_() % 10 == 0 ? 0 : static_cast<uint32_t>(random_() % std::min(limit, scenario_.max_size));
    if (is_atomic(m.opcode)) m.size = 8;
    // The last one is signaled, so that all completions become visible.
    m.signaled = random_() % 3 != 0 || posted_ + 1 == scenario_.messages || posted_ % 16 == 15;
    const bool completes_receive = m.opcode == WrOpcode::kSend || m.opcode == WrOpcode::kSendWithImmediate ||
                                   m.opcode == WrOpcode::kRdmaWriteWithImmediate;
    m.solicited = completes_receive && random_() % 4 == 0;

    queue::SendWqe wqe{};
    wqe.wr_id = m.id;
    wqe.opcode = m.opcode;
    wqe.flags = static_cast<uint8_t>((m.signaled ? queue::kSignaled : 0) | (m.solicited ? queue::kSolicited : 0) |
                                     (random_() % 8 == 0 ? queue::kFence : 0));
    wqe.immediate_or_rkey = static_cast<uint32_t>(m.id * 77);
    wqe.remote_address = reinterpret_cast<uint64_t>(remote(m));
    wqe.rkey = remote_key_;
    prepare(m, wqe);
    std::vector<uint8_t> inline_bytes;
    const bool sends_data = !is_atomic(m.opcode) && m.opcode != WrOpcode::kRdmaRead;
    if (sends_data && m.size > 0 && m.size <= from_.sq.max_inline()) inline_bytes.assign(local(m), local(m) + m.size);
    if (completes_receive) {
      const bool is_write = m.opcode == WrOpcode::kRdmaWriteWithImmediate;
      ASSERT_TRUE(to_.post_receive(m.id, is_write ? std::vector<queue::Sge>{} : split(remote(m), m.size, remote_key_)));
      receives_.push_back(m);
    }
    under_way_.push_back(m);
    ++posted_;
    ASSERT_TRUE(from_.post(wqe, inline_bytes.empty() ? split(local(m), m.size, local_key_) : std::vector<queue::Sge>{},
                           inline_bytes));
  }

  void prepare(Message& m, queue::SendWqe& wqe) {
    for (uint32_t i = 0; i < m.size; ++i) local(m)[i] = static_cast<uint8_t>(random_());
    m.expected.assign(local(m), local(m) + m.size);
    if (m.opcode == WrOpcode::kRdmaRead) {
      for (uint32_t i = 0; i < m.size; ++i) remote(m)[i] = static_cast<uint8_t>(random_());
      m.expected.assign(remote(m), remote(m) + m.size);
    } else if (is_atomic(m.opcode)) {
      wqe.remote_address = reinterpret_cast<uint64_t>(&word_);
      wqe.rkey = word_key_;
      wqe.compare_add = random_();
      wqe.swap = random_();
      if (random_() % 2 == 0) wqe.compare_add = expected_word_;  // a swap that matches
      m.expected_original = expected_word_;
      if (m.opcode == WrOpcode::kFetchAdd) {
        expected_word_ += wqe.compare_add;
      } else if (expected_word_ == wqe.compare_add) {
        expected_word_ = wqe.swap;
      }
    }
  }

  void check_effect(const Message& m) {
    if (is_atomic(m.opcode)) {
      uint64_t original;
      std::memcpy(&original, local(m), sizeof(original));
      ASSERT_EQ(original, m.expected_original) << "atomic " << m.id;
    } else if (m.opcode == WrOpcode::kRdmaRead) {
      ASSERT_TRUE(std::equal(m.expected.begin(), m.expected.end(), local(m))) << "READ " << m.id;
    } else if (m.opcode == WrOpcode::kRdmaWrite || m.opcode == WrOpcode::kRdmaWriteWithImmediate) {
      ASSERT_TRUE(std::equal(m.expected.begin(), m.expected.end(), remote(m))) << "WRITE " << m.id;
    }
  }

  std::vector<queue::Sge> split(uint8_t* base, uint32_t size, uint32_t key) {
    std::vector<queue::Sge> sges;
    uint32_t offset = 0;
    for (int i = 0; i < 3 && offset < size; ++i) {
      const auto piece = i == 2 ? size - offset : static_cast<uint32_t>(random_() % (size - offset + 1));
      sges.push_back({reinterpret_cast<uint64_t>(base + offset), piece, key});
      offset += piece;
    }
    return sges;
  }

  static bool is_atomic(WrOpcode opcode) { return opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd; }

  SimQp& from_;
  SimQp& to_;
  std::mt19937_64& random_;
  const Scenario& scenario_;
  std::vector<uint8_t> local_, remote_;
  uint32_t local_key_, remote_key_, word_key_;
  uint64_t word_ = 0, expected_word_ = 0;
  std::deque<Message> under_way_, receives_;
  int posted_ = 0, completed_ = 0;
};

class RandomTraffic : public testing::TestWithParam<std::tuple<Scenario, int>> {};

TEST_P(RandomTraffic, EveryByteAndEveryCompletionExactlyOnce) {
  const Scenario& scenario = std::get<0>(GetParam());
  const uint64_t seed = base_seed() * 1000 + static_cast<uint64_t>(std::get<1>(GetParam()));
  SCOPED_TRACE("seed " + std::to_string(seed));
  Pair pair(seed, scenario.link);
  auto attr = Pair::defaults();
  attr.path_mtu = scenario.path_mtu;
  pair.connect(attr, scenario.first_psn, scenario.first_psn ^ 0x800000);
  Traffic ab(*pair.a, *pair.b, pair.random, scenario);
  Traffic ba(*pair.b, *pair.a, pair.random, scenario);

  const auto advance = [&] {
    while (auto cqe = pair.a->poll(pair.a->send_cq)) ab.check_send_completion(*cqe);
    while (auto cqe = pair.b->poll(pair.b->send_cq)) ba.check_send_completion(*cqe);
    while (auto cqe = pair.b->poll(pair.b->recv_cq)) ab.check_receive_completion(*cqe);
    while (auto cqe = pair.a->poll(pair.a->recv_cq)) ba.check_receive_completion(*cqe);
    if (testing::Test::HasFatalFailure()) return true;
    ab.step();
    ba.step();
    return ab.done() && ba.done();
  };
  ASSERT_TRUE(pair.events.run_until(advance, std::chrono::minutes(10)))
      << "hang: " << ab.completed() << " and " << ba.completed() << " of " << scenario.messages << " completed";
  pair.events.run_for(std::chrono::seconds(1));
  EXPECT_FALSE(pair.a->poll(pair.a->send_cq));
  EXPECT_FALSE(pair.b->poll(pair.b->recv_cq));
  ab.finish();
  ba.finish();
  EXPECT_TRUE(pair.a->async_events.empty() ||
              pair.a->async_events[0] == transport::AsyncEvent::kCommunicationEstablished);
  RecordProperty("virtual_ms", static_cast<int>((pair.events.now().time_since_epoch() / std::chrono::milliseconds(1))));
}

constexpr LinkConfig faulty(double drop, double duplicate, double reorder, double corrupt) {
  LinkConfig link;
  link.drop = drop;
  link.duplicate = duplicate;
  link.reorder = reorder;
  link.corrupt = corrupt;
  return link;
}

const Scenario kScenarios[] = {
    {"clean", {}},
    {"loss_1", faulty(0.01, 0, 0, 0)},
    {"duplicates_5", faulty(0, 0.05, 0, 0)},
    {"reorder_5", faulty(0, 0, 0.05, 0)},
    {"issue_mix", faulty(0.01, 0.005, 0.01, 0.001)},
    {"loss_10_all", faulty(0.1, 0.02, 0.05, 0.01), 1024, 0x123456, 150, 20000},
    {"mtu_256_wrap", faulty(0.01, 0.005, 0.01, 0.001), 256, 0xffff00, 300, 40000},
    {"mtu_4096_half", faulty(0.01, 0.005, 0.01, 0.001), 4096, 0x7fff80, 300, 100000},
};

INSTANTIATE_TEST_SUITE_P(Grid, RandomTraffic, testing::Combine(testing::ValuesIn(kScenarios), testing::Range(0, 4)),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param).name) + "_" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

}  // namespace
}  // namespace uroce::simulator
