// SPDX-License-Identifier: BSD-2-Clause
// Two engines' data paths on one cable, each with any number of QPs of any transport, connected as the test says. No
// threads, virtual time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/datapath/datapath.h"
#include "engine/io/memory_link.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::engine::test {

inline constexpr uint32_t kGrh = 40;  // bytes in front of a datagram, in the receive buffer

using queue::Cqe;
using queue::WrOpcode;
using transport::QpState;
using transport::QpType;
using transport::test::Bytes;
using transport::test::kPd;
using transport::test::kQkey;
using transport::test::pattern;
using transport::test::work;

inline wire::IpAddress v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return wire::IpAddress::v4(std::array<uint8_t, 4>{a, b, c, d}.data());
}
// A QP with queues of its own.
struct Station final : queue::CompletionNotifier {
  void on_completion(queue::CompletionQueue&) override { on_event(); }

  std::function<void()> on_event = [] {};
  queue::CompletionQueue send_cq{256, nullptr}, recv_cq{256, this};
  std::unique_ptr<Qp> qp;

  uint32_t qpn() const { return qp->transport->qpn().value(); }
  std::vector<Cqe> sends() { return transport::test::ScriptedQp::take(send_cq); }
  std::vector<Cqe> receives() { return transport::test::ScriptedQp::take(recv_cq); }
};

class Host {
 public:
  Host(uint8_t number, std::unique_ptr<io::MemoryEnd> its_end)
      : Host(number, v4(192, 0, 2, number), std::move(its_end)) {}
  Host(uint8_t number, const wire::IpAddress& its_address, std::unique_ptr<io::MemoryEnd> its_end)
      : address(its_address),
        tables([value = uint32_t{number}]() mutable { return value = value * 1664525 + 1013904223; }),
        datapath(tables) {
    end = its_end.get();
    datapath.attach(std::move(its_end), nullptr);
    tables.addresses = {address};
    bytes = pattern(8192, number);
    key = tables.regions.add({.base = bytes.data(),
                              .iova = 0,
                              .length = bytes.size(),
                              .access = memory::kLocalWrite | transport::test::kAllRemote,
                              .pd = kPd});
  }
  ~Host() {
    for (auto& station : stations_) {
      if (station->qp) destroy(*station);
    }
  }

  Station& add(QpType type, QpInit init = {}) {
    Station& station = *stations_.emplace_back(std::make_unique<Station>());
    init.type = type;
    init.pd = kPd;
    init.max_send_wr = init.max_recv_wr = 64;
    init.max_inline = 64;
    init.send_cq = &station.send_cq;
    init.recv_cq = &station.recv_cq;
    wire::Qpn qpn;
    EXPECT_TRUE(tables.qpns[0].take(qpn));
    station.qp =
        std::make_unique<Qp>(init, qpn, tables.regions, tables.srqs, datapath.completions(), datapath.counters());
    tables.qpns[0].bind(qpn, station.qp.get());
    datapath.add(*station.qp);
    Qp::Answers answers(transport::kMaxRdAtomic);
    station.qp->remember_answers_in(answers);
    return station;
  }
  void destroy(Station& station) {
    datapath.remove(*station.qp, now);
    tables.qpns[0].release(station.qp->transport->qpn());
    station.qp.reset();
  }
  // To RTS; connected ones towards `peer` at `to`.
  void connect(Station& station, const wire::IpAddress& to = {}, uint32_t peer = 0) {
    transport::QpAttributes a = transport::test::default_attributes();
    a.dest_qpn = wire::Qpn(peer);
    a.rq_psn = a.sq_psn;
    station.qp->path = path_to(to);
    const QpType type = station.qp->transport->type();
    for (const auto& [state, mask] : {std::pair{QpState::kInit, transport::test::init_mask(type)},
                                      {QpState::kRtr, transport::test::rtr_mask(type)},
                                      {QpState::kRts, transport::test::rts_mask(type)}}) {
      a.state = state;
      ASSERT_EQ(station.qp->transport->modify(a, mask, now), 0);
    }
    datapath.reschedule(*station.qp, now);
  }
  Path path_to(const wire::IpAddress& to) const {
    Path path;
    path.envelope.source = address;
    path.envelope.destination = to;
    path.envelope.source_port = 0xc000;
    if (to == address) {
      path.to = std::make_shared<Destination>(address, to);
      path.to->route.loopback = true;
    }
    return path;
  }
  uint32_t handle_to(const wire::IpAddress& to) { return tables.address_handles.add(path_to(to)); }

  void post(Station& station, queue::SendWqe wqe, uint32_t offset, uint32_t size) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(station.qp->sq.reserve(0, slot));
    wqe.sge_count = 1;
    *slot.wqe = wqe;
    *slot.sges = {offset, size, key};
    station.qp->sq.publish(1);
    datapath.ring(*station.qp);
  }
  void post_receive(Station& station, uint64_t wr_id, uint32_t offset, uint32_t size) {
    const queue::Sge sge{offset, size, key};
    ASSERT_TRUE(station.qp->rq.post(wr_id, {&sge, 1}));
  }
  void datagram(Station& station, uint64_t wr_id, uint32_t handle, uint32_t qpn, uint32_t offset, uint32_t size,
                uint32_t qkey = kQkey) {
    queue::SendWqe wqe = work(WrOpcode::kSend, wr_id);
    wqe.ud = {.address_handle = handle, .remote_qpn = qpn, .remote_qkey = qkey};
    post(station, wqe, offset, size);
  }

  Datapath::Moved run(Datapath::Caller caller = Datapath::Caller::kBackground) { return datapath.iterate(caller, now); }
  uint64_t count(Counter counter) const { return datapath.counters().get(counter); }

  Time now{std::chrono::seconds(1)};
  const wire::IpAddress address;
  Bytes bytes;
  uint32_t key = 0;
  io::MemoryEnd* end;  // the data path has it
  Tables tables;
  Datapath datapath;

 private:
  std::vector<std::unique_ptr<Station>> stations_;
};

class Cable : public testing::Test {
 protected:
  explicit Cable(uint32_t capacity = 1024) : Cable(io::make_memory_link({.queue_capacity = capacity})) {}
  explicit Cable(std::pair<std::unique_ptr<io::MemoryEnd>, std::unique_ptr<io::MemoryEnd>> link)
      : a(1, std::move(link.first)), b(2, std::move(link.second)) {}
  // Until nothing moves any more. The cable has room again one round after the other side has looked.
  void run() {
    for (int idle = 0; idle < 3; ++idle) {
      if (a.run()) idle = 0;
      if (b.run()) idle = 0;
    }
  }
  Host a, b;
};

}  // namespace uroce::engine::test
