// SPDX-License-Identifier: BSD-2-Clause
// A host in the simulator: an address, a NIC at a cable, memory regions and QPs, all of them in the engine's own
// Datapath, which runs its rounds in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/datapath/datapath.h"
#include "engine/objects/destination.h"
#include "engine/objects/qp.h"
#include "tests/simulator/event_queue.h"
#include "tests/simulator/link.h"
#include "tests/simulator/nic.h"

namespace uroce::simulator {

struct QpConfig {
  uint32_t depth = 64;
  uint32_t max_sge = 4;
  uint32_t max_inline = 128;
  uint32_t cq_capacity = 4096;
  bool signal_all = false;
  queue::CompletionNotifier* send_notifier = nullptr;
};

class Host;

// One QP with its completion queues. Tests post to it, poll it and look at its transport.
class SimQp {
 public:
  SimQp(Host& host, const QpConfig& config, wire::Qpn qpn);

  // RESET to RTS towards `peer_qpn` on `peer`, with the attributes given. False: refused.
  bool connect(const wire::IpAddress& peer, uint32_t peer_qpn, transport::QpAttributes attributes);
  int modify(const transport::QpAttributes& attributes, uint32_t mask);
  // To a state that needs no attributes: RESET, ERR, SQD, RTS.
  int modify(transport::QpState state);

  // Posts one send request; false when the queue is full. `inline_bytes`: copied instead of SGEs when not empty.
  bool post(queue::SendWqe wqe, std::span<const queue::Sge> sges, std::span<const uint8_t> inline_bytes = {});
  bool post(queue::SendWqe wqe, std::initializer_list<queue::Sge> sges) {
    return post(wqe, std::span(sges.begin(), sges.size()));
  }
  bool post_receive(uint64_t wr_id, std::span<const queue::Sge> sges = {});
  // The doorbell, for who has published to `sq` without post().
  void ring();

  // The oldest completion in one of the QP's two queues.
  std::optional<queue::Cqe> poll(queue::CompletionQueue& cq);

  const Host& host() const { return host_; }
  const wire::Envelope& envelope() const { return qp_.path.envelope; }  // of what it sends

 private:
  friend class Host;
  Host& host_;

 public:
  const bool signal_all;
  queue::CompletionQueue send_cq;
  queue::CompletionQueue recv_cq;

 private:
  engine::Qp qp_;

 public:
  queue::SendQueue& sq = qp_.sq;
  queue::ReceiveQueue& rq = qp_.rq;
  transport::TransportQp& rc = *qp_.transport;
};

// Sees every frame that passes a host's NIC, and what passes its send queues.
class Tap {
 public:
  using Direction = Nic::Direction;
  virtual void on_frame(const Host& host, Direction direction, const Frame& frame, Time now) = 0;
  virtual void on_posted(const Host& host, const SimQp& qp, const queue::SendWqe& wqe, uint64_t length) = 0;
  virtual void on_completed(const Host& host, const queue::Cqe& cqe) = 0;
  // The QP was moved to ERR or RESET from outside.
  virtual void on_ended(const Host& host, const SimQp& qp) = 0;

 protected:
  ~Tap() = default;
};

class Host {
 public:
  static constexpr uint32_t kPd = 7;
  // Time between something that happened and the round that sees it: the application polls.
  static constexpr Duration kRound = std::chrono::nanoseconds(500);

  // `tap` may be null.
  Host(EventQueue& events, uint16_t number, Link& out, Tap* tap,
       congestion::Algorithm algorithm = congestion::Algorithm::kAuto);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  SimQp& add_qp(const QpConfig& config);
  const wire::IpAddress& address() const { return address_; }
  uint16_t number() const { return number_; }
  // Of the host with the IPv4 address that ends so.
  static uint16_t number_at(uint8_t third_byte, uint8_t fourth_byte) {
    return static_cast<uint16_t>((third_byte - kFirstNet) * 256 + fourth_byte);
  }
  const std::vector<std::unique_ptr<SimQp>>& qps() const { return qps_; }

  uint32_t register_memory(void* base, size_t length, uint32_t access);

  // A frame arrives at the NIC.
  void receive(Frame frame);
  // A round is wanted: something was posted, arrived or found room.
  void wake();

  // The application polls: called after every round.
  void on_round(std::function<void()> application) { application_ = std::move(application); }

  EventQueue& events;

 private:
  friend class SimQp;
  static constexpr uint8_t kFirstNet = 2;  // 192.0.2.0/24 and those behind it

  static wire::IpAddress address_of(uint16_t number);
  std::shared_ptr<engine::Destination> destination(const wire::IpAddress& peer);
  bool has_work() const { return !nic_->empty() || (datapath_.unfinished() && !out_.full()); }
  void round();
  void wait_for_room();
  void arm_timer();

  const uint16_t number_;
  const wire::IpAddress address_;
  Link& out_;
  Tap* const tap_;
  uint32_t random_;
  engine::Tables tables_;
  engine::Datapath datapath_;
  engine::Destinations destinations_;
  Nic* nic_;  // the datapath's
  std::vector<std::unique_ptr<SimQp>> qps_;
  std::function<void()> application_;
  bool round_wanted_ = false;
  bool waits_for_room_ = false;
  Time timer_at_ = kNever;

 public:
  memory::MrTable& mrs = tables_.regions;
  const Counters& counters = datapath_.counters();
  bool frozen = false;  // takes frames and loses them, sends nothing: a stopped process whose rings overflow
};

}  // namespace uroce::simulator
