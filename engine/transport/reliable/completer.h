// The receiving half of an RC QP's send queue: acknowledgements, READ and atomic responses, timeouts. Completes WQEs in
// order and tells the requester where to go on (IBTA 9.7.5, 9.7.6). Owned by RcQp.
#pragma once

#include <cstdint>

#include "engine/transport/common/qp_context.h"
#include "engine/transport/reliable/requester.h"
#include "engine/transport/reliable/retry_timer.h"
#include "engine/transport/reliable/send_window.h"
#include "wire/packet.h"

namespace uroce::transport {

class Completer {
 public:
  Completer(QpContext& context, SendWindow& window, Requester& requester)
      : qp_(context), window_(window), requester_(requester) {}

  void reset();

  // A packet whose opcode is a response or acknowledgement.
  void on_response(const wire::Packet& packet);
  // Request packet `psn` has left: keeps the clocks. `was_idle`: nothing was outstanding before; `again`: it is a
  // retransmission, whose round trip cannot be measured (Karn).
  void on_sent(wire::Psn psn, bool was_idle, bool again);
  void on_timer();
  Time deadline(Time now) const;

  // Completes the oldest WQE, which is a local operation, or one that the parts below end.
  void complete(queue::WcStatus status);
  // Completes a locally failed WQE once it is the oldest.
  void settle_local_error();
  // Completes everything left with a flush error, in order (IBTA 10.3.1).
  void flush();

 private:
  enum class RetryCause : uint8_t { kPsnNak, kImpliedNak, kTimeout };

  void on_answered_twice(const wire::Packet& packet);
  void on_acknowledge(const wire::Packet& packet);
  void on_nak(wire::Psn psn, uint8_t code);
  void on_rnr_nak(wire::Psn psn, uint8_t code);
  void on_read_response(const wire::Packet& packet);
  void on_atomic_response(const wire::Packet& packet);
  void on_bare_response(const wire::Packet& packet);

  bool advance_to(wire::Psn psn);
  bool acknowledge_before(wire::Psn psn);
  bool refuses_oldest(const wire::Packet& packet) const;
  bool belongs_to_oldest(wire::Psn psn) const;
  bool oldest_awaits_response() const;
  bool oldest_is_long_read() const;
  bool retry(RetryCause cause);
  void on_overtaken();
  void progress();
  void fail(queue::WcStatus status);

  QpContext& qp_;
  SendWindow& window_;
  Requester& requester_;
  RetryTimer timer_;
  uint8_t retries_ = 0;      // transport retries since the last progress
  uint8_t rnr_retries_ = 0;  // RNR retries since the last progress
  // Went back already since the last progress or expiry: more of the same NAKs change nothing.
  bool recovering_ = false;
  // Went back already because an answer to something later came: until the next progress or expiry.
  bool overtaken_ = false;
  // The peer has missed packets since it last answered a probe twice. Where packets are lost, answers to probes are
  // lost as well, and sending everything again takes fewer round trips; a peer that has everything and is only slow
  // would drown in it.
  bool losing_ = false;
  bool timing_ = false;  // a round trip is being measured
  wire::Psn timed_psn_;
  Time timed_at_{};
};

}  // namespace uroce::transport
