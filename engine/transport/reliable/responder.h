// SPDX-License-Identifier: BSD-2-Clause
// The responder half of an RC QP: takes requests in PSN order, executes them on memory regions and receive buffers, and
// owes the peer ACKs, NAKs, READ responses and atomic results (IBTA 9.7.4, 9.7.5.1). Owned by RcQp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/io/tx_packet.h"
#include "engine/transport/common/message_assembler.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/common/receive_request.h"
#include "engine/transport/reliable/replay_cache.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace uroce::transport {

class Responder {
 public:
  // An ACK waits for company, and for the application's answer to go first (progress.md "Progress"), but not longer
  // than for this many packets that asked for one.
  static constexpr uint32_t kAckCoalesce = 16;

  explicit Responder(QpContext& context) : qp_(context), receive_(context), message_(context, receive_) {}

  void reset();
  // To RTR: expects `psn` first.
  void start(wire::Psn psn) {
    expected_ = went_back_to_ = psn;
    asked_again_.reset();
  }

  wire::Psn expected() const { return expected_; }

  // READs and atomics that it can remember: as many as the peer may be granted.
  uint32_t answers_remembered() const { return replays_.size(); }
  void remember_answers_in(std::span<ReplayEntry> room) { replays_.move_to(room); }

  // --- requests: responder.cc ---------------------------------------------------------------------------------------
  Outcome on_request(const wire::Packet& packet);
  // Of RC, middle packets of a SEND or WRITE, as RcQp::on_middle_packets() has them. False: as MessageAssembler has it.
  bool take_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads);

  // --- answers: responder_answers.cc --------------------------------------------------------------------------------
  // True when pull() has a READ response, atomic result or NAK to send.
  bool wants_to_send() const { return answering() || nak_.pending; }
  bool answering() const { return replays_.answering() > 0; }
  enum class Pulled : uint8_t {
    kNothing,
    kPacket,
    kFinalNak,  // a packet too: the QP fails
  };
  Pulled pull(io::TxPacket& out);
  // As TransportQp::pull_middle_packets(); for what pull() gave, unless forget_repeatable() was called since.
  size_t pull_middle_packets(const io::TxPacket& previous, std::span<io::TxPacket> out);
  void forget_repeatable() { repeatable_ = false; }
  // The QP failed by our own NAK, which still has to leave, after the responses that precede it.
  bool nak_pending() const { return nak_.pending; }

  // An ACK is owed. pull_ack() gives it, unless responses that must precede it are still waiting.
  bool ack_owed() const { return ack_owed_; }
  bool ack_urgent() const { return ack_owed_ && acks_coalesced_ >= kAckCoalesce; }
  // It is for one WRITE without immediate data and nothing else: only memory tells the application, and the peer has
  // not asked again.
  bool ack_of_lone_write() const { return ack_owed_ && lone_write_; }
  bool pull_ack(io::TxPacket& out);

  // The payload of the READ response `psn`, which pull() gave, could not be read.
  Outcome on_unreadable(wire::Psn psn);
  // The same when the QP has failed already. If the NAK for that is of a later request and has not left, it is this one
  // that the peer has to be told of.
  void on_unreadable_before_nak(wire::Psn psn);

  // --- endings ------------------------------------------------------------------------------------------------------
  // Completes receive requests with a flush error, in order: all, or of a shared queue the one in use. A pending NAK
  // that tells why stays.
  void flush();

  // XRC: see TransportQp::on_srq_destroyed(). What comes of a message for that queue names none any more.
  void on_srq_destroyed(const queue::ReceiveQueue& srq) { receive_.drop_if_of(srq); }

 private:
  struct Nak {
    wire::Psn psn;
    wire::Aeth aeth;
    io::SendReason why{};
    bool pending = false;
  };

  Outcome on_expected(const wire::Packet& packet);
  void on_duplicate(const wire::Packet& packet);
  void on_ahead();

  bool length_valid(const wire::Packet& packet) const;
  Outcome on_message(const wire::Packet& packet);
  Outcome on_read(const wire::Packet& packet);
  Outcome on_atomic(const wire::Packet& packet);
  Outcome on_atomic_write(const wire::Packet& packet);
  Outcome on_flush(const wire::Packet& packet);
  bool find_target(const wire::Packet& packet);
  bool more_answers_allowed() const { return replays_.first_answers() < qp_.attr.max_dest_rd_atomic; }
  memory::Translation translate(uint32_t rkey, uint64_t va, uint64_t length, uint32_t right) const;
  ReplayEntry& remember(const wire::Packet& packet, ReplayEntry::Kind kind, uint32_t psns);
  void replay_read(ReplayEntry& entry, const wire::Packet& packet);
  void try_runs(const ReplayEntry& entry, wire::Psn asked_for);

  void accepted(const wire::Packet& packet, uint32_t psns, bool message_done);

  wire::Psn last_before_answer(wire::Psn psn) const;
  void forget_ack();
  void nak(wire::Aeth aeth, wire::Psn psn, io::SendReason why);
  Outcome reject(wire::NakCode code, wire::Psn psn, queue::WcStatus receive_status, io::SendReason why);
  Outcome refuse(const wire::Packet& packet, io::SendReason why);
  Outcome refuse_access(const wire::Packet& packet);
  Outcome memory_lost(wire::Psn psn);
  Pulled pull_read_response(ReplayEntry& entry, io::TxPacket& out);
  void pull_atomic_response(ReplayEntry& entry, io::TxPacket& out);
  void pull_bare_response(ReplayEntry& entry, io::TxPacket& out);
  void emit_aeth(wire::Aeth aeth, io::TxPacket& out);
  wire::Aeth ack_aeth() const;

  QpContext& qp_;
  wire::Psn expected_;
  wire::Msn msn_;
  ReplayCache replays_;
  Nak nak_;
  bool repeatable_ = false;               // what was pulled last is a READ's middle response
  std::optional<wire::Psn> asked_again_;  // the end of the last READ that came once more
  wire::Psn went_back_to_;                // the first response asked for by those that came together
  bool silent_ = false;  // a NAK reported the gap: nothing more until the expected PSN comes (IBTA 9.7.5.2.8)
  bool ack_owed_ = false;
  uint32_t acks_coalesced_ = 0;
  bool lone_write_ = false;             // of all that came since the last ACK
  uint32_t unacknowledged_ = 0;         // messages that came since the last ACK or response
  std::optional<wire::Psn> ack_again_;  // all that the ACK owed is for came more than once; the newest PSN

  ReceiveRequest receive_;
  MessageAssembler message_;
  uint32_t message_srqn_ = 0;  // XRC: the shared receive queue that the message in progress is for
};

}  // namespace uroce::transport
