// The engine with threads, without a network: QPs of one process connected to each other over the own GID. Several
// application threads post and poll at once, others sleep on notifications, and QPs come and go under traffic. Runs
// under ThreadSanitizer as well.
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/io/memory_link.h"
#include "engine/local_engine.h"

namespace uroce::engine {
namespace {

using queue::CompletionQueue;
using queue::Cqe;
using queue::WcStatus;

const wire::IpAddress kOwnAddress = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 1}.data());

// A host with one netdev that never changes.
class FixedNetView final : public net::NetView {
 public:
  FixedNetView() {
    netdev_.index = 1;
    netdev_.name = "test0";
    netdev_.mtu = 1500;
    netdev_.up = netdev_.running = true;
    netdev_.addresses = {kOwnAddress};
  }
  std::vector<net::Netdev> netdevs() override { return {netdev_}; }
  std::optional<net::Netdev> netdev(int) override { return netdev_; }
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress&) override { return std::nullopt; }
  net::Neighbour neighbour(int, const wire::IpAddress&) override { return {}; }
  void resolve_neighbour(int, const wire::IpAddress&) override {}
  int descriptor() const override { return -1; }
  bool process_changes() override { return false; }
  uint64_t generation() const override { return 1; }

 private:
  net::Netdev netdev_;
};

std::variant<OpenedIo, io::IoError> open_nothing(const net::Netdev&, const Options&) {
  OpenedIo opened;
  opened.io = io::make_memory_loop();
  return opened;
}

std::shared_ptr<LocalEngine> make_engine() {
  auto view = std::make_shared<FixedNetView>();
  const net::Netdev netdev = *view->netdev(1);
  return std::make_shared<LocalEngine>(netdev, view, Options{}, open_nothing);
}

// A waiter on a completion queue, as the completion channel is one.
class Waiter final : public queue::CompletionNotifier {
 public:
  void on_completion(CompletionQueue&) override {
    std::lock_guard guard(lock_);
    ++events_;
    changed_.notify_all();
  }
  bool wait(std::chrono::seconds limit) {
    std::unique_lock guard(lock_);
    if (!changed_.wait_for(guard, limit, [this] { return events_ > 0; })) return false;
    --events_;
    return true;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  int events_ = 0;
};

// Two QPs of one engine, connected to each other.
struct Connection {
  explicit Connection(Engine& e, Waiter* waiter = nullptr) : engine(e), cq_a(1024, nullptr), cq_b(1024, waiter) {
    a = create(cq_a);
    b = create(cq_b);
    connect(*a, Engine::qpn(*b));
    connect(*b, Engine::qpn(*a));
  }
  ~Connection() {
    engine.destroy_qp(a);
    engine.destroy_qp(b);
  }

  Qp* create(CompletionQueue& cq) {
    QpInit init;
    init.pd = 1;
    init.max_send_wr = init.max_recv_wr = 64;
    init.max_inline = 64;
    init.send_cq = init.recv_cq = &cq;
    Qp* qp = nullptr;
    EXPECT_EQ(engine.create_qp(init, qp), 0);
    return qp;
  }
  void connect(Qp& qp, uint32_t peer) {
    using namespace transport;
    QpAttributes attr;
    attr.state = QpState::kInit;
    attr.port = 1;
    attr.access = memory::kRemoteWrite | memory::kRemoteRead;
    EXPECT_EQ(engine.modify_qp(qp, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
    attr.state = QpState::kRtr;
    attr.address.destination = kOwnAddress;
    attr.address.global = true;
    attr.path_mtu = 1024;
    attr.dest_qpn = wire::Qpn(peer);
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    EXPECT_EQ(engine.modify_qp(qp, attr,
                               kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                                   kQpMinRnrTimer),
              0);
    attr.state = QpState::kRts;
    attr.timeout = 14;
    attr.retry_count = attr.rnr_retry = 7;
    EXPECT_EQ(
        engine.modify_qp(qp, attr, kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic), 0);
  }
  // A signaled inline SEND of one 64-bit value; false: queue full.
  bool send(Qp& qp, uint64_t value) {
    queue::SendQueue& sq = Engine::send_queue(qp);
    queue::SendQueue::Slot slot;
    if (!sq.reserve(0, slot)) return false;
    *slot.wqe = {};
    slot.wqe->wr_id = value;
    slot.wqe->opcode = queue::WrOpcode::kSend;
    slot.wqe->flags = queue::kSignaled | queue::kInline | queue::kSolicited;
    slot.wqe->length = sizeof(value);
    std::memcpy(slot.inline_data, &value, sizeof(value));
    sq.publish(1);
    engine.doorbell(qp);
    return true;
  }

  Engine& engine;
  CompletionQueue cq_a, cq_b;
  Qp* a = nullptr;
  Qp* b = nullptr;
};

struct Buffer {
  explicit Buffer(Engine& e) : engine(e) {
    const memory::MemoryRegion region{.base = reinterpret_cast<uint8_t*>(words.data()),
                                      .iova = reinterpret_cast<uint64_t>(words.data()),
                                      .length = sizeof(words),
                                      .access = memory::kLocalWrite,
                                      .pd = 1};
    EXPECT_EQ(engine.register_memory(region, key), 0);
  }
  ~Buffer() { EXPECT_EQ(engine.deregister_memory(key), 0); }
  queue::Sge sge(size_t i) { return {reinterpret_cast<uint64_t>(&words[i]), sizeof(words[i]), key}; }

  Engine& engine;
  std::array<uint64_t, 64> words{};
  uint32_t key = 0;
};

TEST(Engine, ThreadsPostAndPollAtOnce) {
  constexpr int kThreads = 3;
  constexpr uint64_t kMessages = 2000;
  auto engine = make_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Connection c(*engine);
      Buffer buffer(*engine);
      uint64_t posted = 0, received = 0, sent = 0, receives = 0;
      while (received < kMessages || sent < kMessages) {
        for (; receives < kMessages && receives - received < 32; ++receives) {
          const queue::Sge sge = buffer.sge(receives % 32);
          ASSERT_TRUE(Engine::receive_queue(*c.b).post(receives, {&sge, 1}));
        }
        if (posted < receives && c.send(*c.a, posted)) ++posted;
        c.cq_a.poll(16, [&](const Cqe& cqe) {
          ASSERT_EQ(cqe.status, WcStatus::kSuccess);
          ASSERT_EQ(cqe.wr_id, sent++);
        });
        c.cq_b.poll(16, [&](const Cqe& cqe) {
          ASSERT_EQ(cqe.status, WcStatus::kSuccess);
          ASSERT_EQ(cqe.wr_id, received);
          ASSERT_EQ(buffer.words[received % 32], received);
          ++received;
        });
        engine->progress();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Nobody polls: the background thread does everything, and the armed queue wakes the sleeper.
TEST(Engine, BackgroundThreadServesSleepers) {
  auto engine = make_engine();
  Waiter waiter;
  Connection c(*engine, &waiter);
  Buffer buffer(*engine);
  for (uint64_t i = 0; i < 200; ++i) {
    const queue::Sge sge = buffer.sge(0);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    c.cq_b.arm(CompletionQueue::Arm::kAny);
    engine->expect_sleep();
    ASSERT_TRUE(c.send(*c.a, i));
    ASSERT_TRUE(waiter.wait(std::chrono::seconds(30))) << "lost wake-up at message " << i;
    int count = 0;
    c.cq_b.poll(4, [&](const Cqe& cqe) {
      EXPECT_EQ(cqe.wr_id, i);
      ++count;
    });
    ASSERT_EQ(count, 1);
    ASSERT_EQ(buffer.words[0], i);
    while (c.cq_a.poll(4, [](const Cqe&) {}) == 0) engine->progress();
  }
}

// One thread's traffic is not disturbed by others that create, connect, modify and destroy QPs of their own.
TEST(Engine, QpsComeAndGoUnderTraffic) {
  auto engine = make_engine();
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      Connection c(*engine);
      c.send(*c.a, 1);  // no receive posted: RNR NAKs and timers are under way when the QPs go
      transport::QpAttributes attr;
      attr.state = transport::QpState::kErr;
      EXPECT_EQ(engine->modify_qp(*c.b, attr, transport::kQpState), 0);
    }
  });
  Connection c(*engine);
  Buffer buffer(*engine);
  for (uint64_t i = 0; i < 1000; ++i) {
    const queue::Sge sge = buffer.sge(i % 32);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    ASSERT_TRUE(c.send(*c.a, i));
    bool received = false, sent = false;
    while (!received || !sent) {
      c.cq_b.poll(1, [&](const Cqe& cqe) { received = cqe.status == WcStatus::kSuccess && cqe.wr_id == i; });
      c.cq_a.poll(1, [&](const Cqe& cqe) { sent = cqe.status == WcStatus::kSuccess && cqe.wr_id == i; });
      engine->progress();
    }
    ASSERT_EQ(buffer.words[i % 32], i);
  }
  stop = true;
  churn.join();
}

TEST(Engine, ErrorStateFlushesWhatIsPostedLater) {
  auto engine = make_engine();
  Connection c(*engine);
  transport::QpAttributes attr;
  attr.state = transport::QpState::kErr;
  ASSERT_EQ(engine->modify_qp(*c.a, attr, transport::kQpState), 0);
  EXPECT_EQ(Engine::state(*c.a), transport::QpState::kErr);
  ASSERT_TRUE(c.send(*c.a, 5));
  Cqe seen;
  while (c.cq_a.poll(1, [&](const Cqe& cqe) { seen = cqe; }) == 0) engine->progress();
  EXPECT_EQ(seen.wr_id, 5u);
  EXPECT_EQ(seen.status, WcStatus::kFlushError);
}

TEST(Engine, RefusesWhatThePortDoesNotHave) {
  using namespace transport;
  auto engine = make_engine();
  Connection c(*engine);
  QpAttributes attr;
  attr.state = QpState::kReset;
  ASSERT_EQ(engine->modify_qp(*c.a, attr, kQpState), 0);
  attr.state = QpState::kInit;
  attr.port = 2;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), EINVAL);
  attr.port = 1;
  ASSERT_EQ(engine->modify_qp(*c.a, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
  attr.state = QpState::kRtr;
  attr.address.destination = kOwnAddress;
  attr.path_mtu = 4096;  // the netdev has 1500
  constexpr uint32_t kRtr =
      kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kRtr), EINVAL);
  attr.path_mtu = 1024;
  attr.address.source_gid_index = 9;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kRtr), EINVAL);
  attr.address.source_gid_index = 0;
  attr.address.destination.bytes[15] = 77;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kRtr), ENETUNREACH);
}

}  // namespace
}  // namespace uroce::engine
