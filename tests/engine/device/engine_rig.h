// SPDX-License-Identifier: BSD-2-Clause
// An engine with threads, without a network: QPs of one process connected to each other over the own GID. Used by
// engine_test.cc and engine_threads_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <semaphore.h>
#include <thread>
#include <time.h>
#include <variant>
#include <vector>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/io/memory_link.h"

namespace uroce::engine::test {

using queue::CompletionQueue;
using queue::Cqe;
using queue::WcStatus;

inline const wire::IpAddress kOwnAddress = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 1}.data());

// False: a hang. Whoever else makes progress, the caller does not.
template <class Done>
bool eventually(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// A host with one netdev that never changes.
class FixedNetView : public net::NetView {
 public:
  FixedNetView() {
    netdev_.index = 1;
    netdev_.name = "test0";
    netdev_.mtu = 1500;
    netdev_.up = netdev_.running = true;
    netdev_.addresses = netdev_.gids = {kOwnAddress};
  }
  std::vector<net::Netdev> netdevs() override { return {netdev_}; }
  std::optional<net::Netdev> netdev(int) override { return netdev_; }
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress&) override { return std::nullopt; }
  std::shared_ptr<net::NextHop> next_hop(int index, const wire::IpAddress& address) override {
    return std::make_shared<net::NextHop>(index, address, neighbour(index, address));
  }
  net::Neighbour neighbour(int, const wire::IpAddress&) override { return {}; }
  void resolve_neighbour(int, const wire::IpAddress&) override {}
  int descriptor() const override { return -1; }
  bool process_changes() override { return false; }
  uint64_t generation() const override { return 1; }
  uint64_t requests() const override { return 0; }

 private:
  net::Netdev netdev_;
};

inline std::variant<OpenedIo, io::IoError> open_loops(uint32_t shards) {
  OpenedIo opened;
  for (auto& end : io::make_memory_loops(shards)) opened.io.push_back(std::move(end));
  return opened;
}
inline std::variant<OpenedIo, io::IoError> open_nothing(const net::Netdev&) {
  return open_loops(1);
}

// As where there may be a broker. The ends of a Connection come to different shards, if there are several.
inline std::shared_ptr<Engine> make_engine(uint32_t shards = 4, IoOpener opener = {}) {
  auto view = std::make_shared<FixedNetView>();
  const net::Netdev netdev = *view->netdev(1);
  const DeviceOptions options{.shards = shards, .max_qps = 1 << 14, .max_multicast_groups = 20};
  if (!opener) opener = [shards](const net::Netdev&) { return open_loops(std::max(1u, shards)); };
  return std::make_shared<Engine>(std::make_unique<Device>(netdev, view, options, std::move(opener)));
}

// A waiter on a completion queue, as the completion channel is one. It is told under a shard's lock.
class Waiter final : public queue::CompletionNotifier {
 public:
  Waiter() { sem_init(&events_, 0, 0); }
  ~Waiter() { sem_destroy(&events_); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  void on_completion(CompletionQueue&) override { sem_post(&events_); }
  bool wait(std::chrono::seconds limit) {
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit.count();
    int result;
    do result = sem_clockwait(&events_, CLOCK_MONOTONIC, &until);
    while (result != 0 && errno == EINTR);
    return result == 0;
  }

 private:
  sem_t events_;
};

struct ConnectionSettings {
  queue::CompletionNotifier* waiter = nullptr;  // on b's completion queue
  uint32_t cqes = 1024;
  uint8_t timeout = 14;  // 4.096 us * 2^timeout
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;  // for ever
  EventHandler* events = nullptr;
};

// Two QPs of one engine, connected to each other.
struct Connection {
  explicit Connection(Engine& e, const ConnectionSettings& chosen = {})
      : engine(e), settings(chosen), cq_a(chosen.cqes, nullptr), cq_b(chosen.cqes, chosen.waiter) {
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
    init.events = settings.events;
    Qp* qp = nullptr;
    EXPECT_EQ(engine.create_qp(init, qp), 0);
    return qp;
  }
  void move(Qp& qp, transport::QpState state) {
    transport::QpAttributes attr;
    attr.state = state;
    EXPECT_EQ(engine.modify_qp(qp, attr, transport::kQpState), 0);
  }
  // From RESET to RTS.
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
    attr.timeout = settings.timeout;
    attr.retry_count = settings.retry_count;
    attr.rnr_retry = settings.rnr_retry;
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
  const ConnectionSettings settings;
  CompletionQueue cq_a, cq_b;
  Qp* a = nullptr;
  Qp* b = nullptr;
};

struct Buffer {
  explicit Buffer(Engine& e, uint32_t access = memory::kLocalWrite) : engine(e) {
    const memory::MemoryRegion region{.base = reinterpret_cast<uint8_t*>(words.data()),
                                      .iova = reinterpret_cast<uint64_t>(words.data()),
                                      .length = sizeof(words),
                                      .access = access,
                                      .pd = 1};
    EXPECT_EQ(engine.register_memory(region, key), 0);
  }
  ~Buffer() { EXPECT_EQ(engine.deregister_memory(key), 0); }
  queue::Sge sge(size_t i) { return {reinterpret_cast<uint64_t>(&words[i]), sizeof(words[i]), key}; }

  Engine& engine;
  std::array<uint64_t, 64> words{};
  uint32_t key = 0;
};

}  // namespace uroce::engine::test
