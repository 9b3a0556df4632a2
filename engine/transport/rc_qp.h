// A reliable connected QP without I/O (design decision 3). The engine, the simulator and the fuzzer drive it alike:
//
//   on_packet(packet, now)   a packet for this QP arrived, its envelope, P_Key and ICRC checked; a CNP too
//   on_congestion_mark(now)  ... and its IP header said congestion experienced (CE); before on_packet()
//   pull(out, now)           the next packet to send, responses before requests; call until false
//   pull_ack(out, now)       an acknowledgement that is owed; may wait for company until ack_deadline(); the engine
//                            sends it with the next round instead (design decision 2)
//   on_timer(now)            at or after deadline()
//   modify(attributes, mask, now)
//   on_unreadable(packet, now)  the payload of a packet given out is not accessible any more
//   on_posted(now)           WQEs were posted while the QP was in the error state
//
// Completions go to the CQs, asynchronous events to QpEvents. No allocation, clock, lock or system call inside. One
// thread at a time.
#pragma once

#include "engine/congestion/cnp_generator.h"
#include "engine/congestion/congestion_control.h"
#include "engine/transport/completer.h"
#include "engine/transport/qp_context.h"
#include "engine/transport/requester.h"
#include "engine/transport/responder.h"
#include "engine/transport/send_window.h"
#include "wire/packet.h"
#include "wire/tx_packet.h"

namespace uroce::transport {

struct RcQpConfig {
  wire::Qpn qpn;
  uint32_t pd = 0;
  bool signal_all = false;
  bool rq_shared = false;  // `rq` serves other QPs as well (SRQ)
  memory::MrTable& mrs;
  queue::SendQueue& sq;
  queue::ReceiveQueue& rq;
  queue::CompletionQueue& send_cq;
  queue::CompletionQueue& recv_cq;
  QpEvents& events;
  Counters& counters;
};

class RcQp {
 public:
  explicit RcQp(const RcQpConfig& config);
  RcQp(const RcQp&) = delete;
  RcQp& operator=(const RcQp&) = delete;

  QpState state() const { return qp_.attr.state; }
  wire::Qpn qpn() const { return qp_.qpn; }
  const QpAttributes& attributes() const { return qp_.attr; }

  // 0 or an errno value: EINVAL for an illegal transition, mask or value. Takes the target state from
  // attributes.state if the mask names it, else the current one.
  int modify(const QpAttributes& attributes, uint32_t mask, Time now);

  void on_packet(const wire::Packet& packet, Time now);
  void on_congestion_mark(Time now);
  bool wants_to_send(Time now) const;
  bool pull(wire::TxPacket& out, Time now);
  bool ack_owed() const { return responder_.ack_owed(); }
  bool ack_urgent() const { return responder_.ack_urgent(); }
  bool pull_ack(wire::TxPacket& out, Time now);
  // The payload of a packet that pull() gave could not be read: the application took its memory away.
  void on_unreadable(const wire::TxPacket& packet, Time now);
  void on_posted(Time now);
  void on_timer(Time now);

  // When on_timer() or pull() has something to do without outside cause; kNever if nothing.
  Time deadline() const;
  Time ack_deadline() const { return responder_.deadline(); }

 private:
  int check_values(const QpAttributes& attributes, uint32_t mask) const;
  void enter(QpState state);
  void settle();
  bool responding() const;
  bool has_requests() const { return qp_.now >= requester_.resume_at() && requester_.wants_to_send(); }
  bool held_back() const;
  void pull_cnp(wire::TxPacket& out);

  QpContext qp_;
  SendWindow window_;
  Requester requester_;
  Completer completer_;
  Responder responder_;
  congestion::CongestionControl congestion_;
  congestion::CnpGenerator cnps_;
  bool cnp_pending_ = false;
  bool communication_established_ = false;
  bool drain_reported_ = false;
};

}  // namespace uroce::transport
