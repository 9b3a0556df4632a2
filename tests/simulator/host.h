// A host in the simulator: an address, a cable to the network, memory regions, and QPs that are the real transport with
// real queues. Does around a QP what the engine's Datapath does, with the same checks in the same order, on virtual
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/transport/reliable/rc_qp.h"
#include "tests/simulator/event_queue.h"
#include "tests/simulator/link.h"
#include "wire/packet.h"

namespace uroce::simulator {

struct QpConfig {
  uint32_t qpn = 0x101;
  uint32_t depth = 64;
  uint32_t max_sge = 4;
  uint32_t max_inline = 128;
  uint32_t cq_capacity = 4096;
  bool signal_all = false;
  queue::ReceiveQueue* srq = nullptr;  // instead of an own receive queue
  queue::CompletionNotifier* send_notifier = nullptr;
};

class Host;

// One QP with its queues. Tests post to it, poll it and look at its transport.
class SimQp final : public transport::QpEvents {
 public:
  SimQp(Host& host, const QpConfig& config);
  virtual ~SimQp() = default;

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

  // The oldest completion in one of the QP's two queues.
  std::optional<queue::Cqe> poll(queue::CompletionQueue& cq);

  void on_event(transport::AsyncEvent event) override { async_events.push_back(event); }
  void on_srq_limit(queue::ReceiveQueue&) override { async_events.push_back(transport::AsyncEvent::kSrqLimitReached); }
  void on_cq_overrun(queue::CompletionQueue&) override { async_events.push_back(transport::AsyncEvent::kCqError); }

  const bool signal_all;
  queue::SendQueue sq;
  queue::ReceiveQueue own_rq;
  queue::ReceiveQueue& rq;
  queue::CompletionQueue send_cq;
  queue::CompletionQueue recv_cq;
  transport::RcQp rc;
  wire::Envelope envelope;  // of what it sends
  std::vector<transport::AsyncEvent> async_events;

 private:
  friend class Host;
  Host& host_;
  Time timer_at_ = kNever;
};

// Sees every frame that passes a host's NIC, and what passes its send queues.
class Tap {
 public:
  enum class Direction : uint8_t { kIn, kOut };
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
  // Time between something that happened and the round of the engine that answers it.
  static constexpr Duration kRound = std::chrono::microseconds(1);

  Host(EventQueue& events, uint8_t number, Link& out, Tap* tap);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  SimQp& add_qp(const QpConfig& config);
  SimQp* find(wire::Qpn qpn);
  const wire::IpAddress& address() const { return address_; }
  uint8_t number() const { return number_; }
  const std::vector<std::unique_ptr<SimQp>>& qps() const { return qps_; }

  uint32_t register_memory(void* base, size_t length, uint32_t access);

  void receive(const Frame& frame);
  // The engine's next round is wanted: something was posted, arrived or expired.
  void wake();

  EventQueue& events;
  memory::MrTable mrs;
  Counters counters;
  bool frozen = false;  // takes frames and loses them, sends nothing: a stopped process whose rings overflow

 private:
  friend class SimQp;
  void round();
  bool transmit(SimQp& qp, const io::TxPacket& packet);
  bool accept(const wire::Envelope& envelope, const SimQp& qp, const wire::Packet& packet, std::span<const uint8_t> ib);
  void arm_timer(SimQp& qp);

  const uint8_t number_;
  wire::IpAddress address_;
  Link& out_;
  Tap* tap_;
  std::vector<std::unique_ptr<SimQp>> qps_;
  std::map<decltype(wire::IpAddress::bytes), transport::ProbeBudget> probe_budgets_;  // by peer
  std::vector<bool> ack_waited_;  // by QP: its owed ACK has waited one round
  uint32_t key_source_;
  uint16_t ip_id_ = 0;
  bool round_wanted_ = false;
  size_t first_ = 0;  // whose turn it is
};

}  // namespace uroce::simulator
