// SPDX-License-Identifier: BSD-2-Clause
// The engine's data path, status and counters. Its calls about objects: engine_objects.cc, engine_memory.cc.
#include "engine/engine.h"

#include <bit>
#include <optional>
#include <utility>

#include "engine/device/device.h"

namespace uroce::engine {

Engine::Engine(std::unique_ptr<Device> device) : device_(std::move(device)) {}
Engine::~Engine() = default;

const std::string& Engine::netdev_name() const {
  return device_->name();
}
PortStatus Engine::port_status() {
  return device_->port_status();
}
uint32_t Engine::max_qp() const {
  return device_->max_qp();
}
uint32_t Engine::max_multicast_groups() const {
  return device_->max_multicast_groups();
}
bool Engine::present() const {
  return device_->present();
}
int Engine::open_io() {
  return device_->open_io();
}

bool Engine::settle_acks() {
  if (!device_->has_opened()) return false;
  for (uint32_t i = 0; i < device_->progress.shard_count(); ++i) device_->progress.shard(i).poll_last();
  device_->progress.settle_acks();
  return true;
}
void Engine::leave_netdev() {
  device_->leave_netdev();
}
void Engine::add_event_handler(EventHandler* handler) {
  device_->add_event_handler(handler);
}
void Engine::remove_event_handler(EventHandler* handler) {
  device_->remove_event_handler(handler);
}

// --- data path ------------------------------------------------------------------------------------------------------

void Engine::prefetch(const Qp& qp) {
  qp.prefetch();
}

void Engine::doorbell(Qp& qp) {
  Shard& shard = device_->shard_of(qp);
  shard.datapath().ring(qp);
  shard.after_post();
}

void Engine::receive_doorbell(Qp& qp) {
  if (state(qp) == transport::QpState::kErr) doorbell(qp);
}

// Where no QP fills the queue, the caller's rounds are for everybody.
void Engine::progress(const queue::CompletionQueue& cq) {
  uint32_t shards = cq.shards();
  if (shards == 0) return progress();
  for (; shards != 0; shards &= shards - 1) {
    device_->progress.shard(static_cast<uint32_t>(std::countr_zero(shards))).poll();
  }
}

void Engine::progress() {
  if (!device_->has_opened()) return;
  for (uint32_t i = 0; i < device_->progress.shard_count(); ++i) device_->progress.shard(i).poll();
}

Waited Engine::wait_for_event(const LookForEvent& look, int fd) {
  if (device_->has_opened()) return device_->progress.wait_for_event(look, fd);
  expect_sleep();
  return Progress::wait_without_packets(fd);
}

void Engine::expect_sleep() {
  if (device_->progress.has_waiters()) return;  // they watch themselves
  for (uint32_t i = 0; i < device_->progress.shard_count(); ++i) device_->progress.shard(i).expect_sleep();
}

bool Engine::claim_packets(const std::shared_ptr<PollSet>& set) {
  return device_->wakes_by_packets() && device_->has_opened() && device_->progress.claim(set);
}
bool Engine::serve_stream(const LookForEvent& look, bool woken) {
  return device_->progress.serve_stream(look, woken);
}
bool Engine::linger(const LookForEvent& look, bool waits) {
  return device_->progress.linger(look, waits);
}
void Engine::end_wait() {
  Progress::end_wait();
}
void Engine::leave(const std::shared_ptr<PollSet>& set, bool asked_in_vain) {
  device_->progress.leave(set, asked_in_vain);
}
void Engine::release_packets(const PollSet& set) {
  device_->progress.release(set);
}

void Engine::note_request(const std::shared_ptr<PollSet>& set) {
  device_->progress.note_request(set);
}

void Engine::note_answer(const PollSet& set) {
  device_->progress.note_answer(set);
}

void Engine::note_one_by_one() {
  device_->progress.note_one_by_one();
}

void Engine::report_early(queue::CompletionQueue* cq) {
  Progress::Guard guard(device_->progress);
  guard.keep_descriptors();
  if (cq != nullptr) cq->report_early();
}
void Engine::report_missed(queue::CompletionQueue& cq) {
  Progress::Guard guard(device_->progress);
  guard.keep_descriptors();
  cq.report_missed();
}

// --- QPs and shared receive queues as the caller sees them -----------------------------------------------------------

uint32_t Engine::qpn(const Qp& qp) {
  return qp.transport->qpn().value();
}
queue::SendQueue& Engine::send_queue(Qp& qp) {
  return qp.sq;
}
queue::ReceiveQueue& Engine::receive_queue(Qp& qp) {
  return qp.rq;
}
queue::ReceiveQueue& Engine::receive_queue(Srq& srq) {
  return srq;
}
uint32_t Engine::number(const Srq& srq) {
  return srq.srqn;
}
transport::QpState Engine::state(const Qp& qp) {
  return qp.visible_state.load(std::memory_order_seq_cst);
}

// --- counters -------------------------------------------------------------------------------------------------------

CounterSums Engine::counters() const {
  return device_->counters();
}

std::string Engine::counters_text() const {
  std::string text;
  const auto line = [&](const char* name, uint64_t value) {
    if (value != 0) text += device_->name() + ": " + name + ": " + std::to_string(value) + "\n";
  };
  const CounterSums sums = counters();
  for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
    const auto counter = static_cast<Counter>(i);
    line(Counters::text(counter), sums.get(counter));
  }
  const std::optional<io::IoCounters> io = device_->io_counters();
  if (!io) return text;
  line("packets received", io->rx_packets);
  line("packets sent", io->tx_packets);
  line("packets received through memory, from processes of this host", io->rx_by_memory);
  line("packets sent through memory, to processes of this host", io->tx_by_memory);
  line("runs received: several packets in one message", io->rx_runs);
  line("packets received in runs", io->rx_run_packets);
  line("runs sent: several packets in one message", io->tx_runs);
  line("packets sent in runs", io->tx_run_packets);
  line("times the kernel refused a run: packets sent one by one for a while", io->tx_run_refusals);
  line("drop: not a well-formed IP/UDP packet", io->rx_malformed);
  line("drop: came in on another netdev (a run counts as one)", io->rx_wrong_netdev);
  line("drop: from the wire, with an address of this host as its source", io->rx_forged);
  line("drop: frame longer than a packet: a run that nobody cut, and that AF_XDP cannot take", io->rx_too_long);
  line("drop: no receive buffer (of a UDP socket, a run counts as one)", io->rx_no_buffer);
  line("backpressure while sending", io->tx_backpressure);
  line("packets the kernel refused to send", io->tx_errors);
  line("packets lost because a process of this host does not read", io->tx_unread);
  line("times that a process of this host has read nothing for a second", io->tx_stalls);
  line("times the kernel refused to send: netdev down", io->kick_errors);
  line("entries of rings that cannot be true", io->ring_errors);
  line("packets that captures missed: too slow", io->capture_dropped);
  line("questions to the kernel about the network, of all devices", device_->network_requests());
  return text;
}

PortCounters Engine::port_counters() const {
  return engine::port_counters(counters(), device_->io_counters().value_or(io::IoCounters{}));
}

}  // namespace uroce::engine
