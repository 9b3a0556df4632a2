// SPDX-License-Identifier: GPL-2.0-or-later
// The requests of one direction of a connection and the answers to them, as seen at the place of the capture, which may
// be either end or between: what is new, sent again and why, late, missing, answered, and how long it took (IBTA 9.7).
// One per flow. requests.cc has the requests, answers.cc what comes back.
//
// Keeps at most kMostKept requests (80 bytes each), of them kHistory that are answered.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "dissector/analysis/datagram.h"
#include "dissector/analysis/ip_ids.h"
#include "dissector/analysis/opcode_sequence.h"
#include "dissector/analysis/record.h"

namespace uroce::dissector {

// All that the first pass keeps, in the order of the capture.
struct Store {
  std::deque<PacketRecord> packets;
  std::deque<MessageRecord> messages;
  std::deque<CnpRecord> cnps;
  std::deque<CmRecord> cm;
  std::deque<CmExchange> exchanges;
};

// The packet under analysis; its record is the last of the store.
struct Subject {
  const Datagram& datagram;
  const Headers& headers;
  PacketRecord& record;
  uint32_t index;       // of the record
  const IpIds& ip_ids;  // of its flow

  int64_t now() const { return datagram.time; }
  bool late() const { return ip_ids.late(datagram); }
};

class RequestTrack {
 public:
  static constexpr size_t kMostKept = 16384;
  static constexpr size_t kHistory = 2048;
  static constexpr int64_t kFarAway = 65536;  // PSNs; beyond, it is another connection

  explicit RequestTrack(bool acknowledged = true) : acknowledged_(acknowledged) {}

  bool started() const { return started_; }
  // Its first request will have this PSN.
  void expect(wire::Psn psn) { start(psn); }
  // Answers to what was sent so far have passed without anybody knowing that they were for these requests: what
  // answered them, and when, is not known.
  void missed_answers() { answers_missed_below_ = next_; }
  // Whether a request with this PSN can belong to those before.
  bool fits(wire::Psn psn) const;
  // Whether an answer with this PSN can be for one of them.
  bool awaits(wire::Psn psn) const;
  // Whether it can be for one shortly before the first that was captured, whose answers nobody has seen either.
  bool may_have_missed(wire::Psn psn) const;

  void on_request(const Subject& subject, Store& store);
  void on_answer(const Subject& subject, Store& store);

  // Bytes; 0: not known. Both directions of a connection have the same, so what one has shown the other may be told.
  uint32_t path_mtu() const { return path_mtu_; }
  void learn_path_mtu(uint32_t payload_size, Store& store);

 private:
  struct Sent {
    int64_t psn = 0;
    int64_t first_time = 0, last_time = 0;
    int64_t expected = 0;  // READ, atomic: the next response that its requester misses
    int64_t seen = 0;      // ... and the one behind the last that was seen
    uint32_t span = 1;     // PSNs; a READ's before the path MTU is known: 1
    uint32_t record = 0;   // of the first transmission that was captured
    uint32_t last_record = 0;
    uint32_t message = kNone;
    uint32_t payload = 0;
    uint32_t length = 0;          // READ: bytes wanted
    uint32_t first_ip_id = 0;     // counted on, see IpIds
    uint32_t guessed_at = kNone;  // record of the request that span_guessed comes from
    uint16_t last_ip_id = 0;
    wire::Operation operation{};
    bool last = false;  // of its message
    bool repeated = false;
    bool span_known = true;
    bool span_guessed = false;  // known from what came next, so wrong if something before that is missing

    int64_t end() const { return psn + span; }
    bool needs_response() const {
      return operation == wire::Operation::kReadRequest || operation == wire::Operation::kCompareSwap ||
             operation == wire::Operation::kFetchAdd || operation == wire::Operation::kFlush ||
             operation == wire::Operation::kAtomicWrite;
    }
    bool answered() const { return expected >= end(); }
  };
  static_assert(sizeof(Sent) <= 80);
  enum class Cause : uint8_t { kTimeout, kNak, kRnr, kImpliedNak };
  struct Rnr {
    int64_t psn, time, delay;
    uint32_t record;
    // Clocks of captures and NICs agree to a percent or two, not better.
    int64_t least_wait() const { return delay - delay / 50; }
  };

  // requests.cc
  void start(wire::Psn psn);
  int64_t extend(wire::Psn psn) const;
  Sent make_sent(const Subject& subject, int64_t psn) const;
  void on_new(const Subject& subject, int64_t psn, Store& store);
  void on_below(const Subject& subject, int64_t psn, Store& store);
  void repeat(const Subject& subject, Sent& sent) const;
  void on_again(const Subject& subject, int64_t psn, Sent* sent, Store& store);
  bool crosses_rnr_nak(const Subject& subject) const;
  void note_reaction(int64_t time);
  bool is_copy(const Subject& subject, int64_t psn, const Sent* sent) const;
  bool is_late_original(const Subject& subject, int64_t psn) const;
  std::optional<Cause> new_attempt(const Subject& subject, int64_t psn, const Sent* sent) const;
  void count_attempt(const Subject& subject);
  void end_rnr_wait(const Subject& subject, int64_t psn, Store& store);
  void join_message(const Subject& subject, Sent& sent, bool in_order, Store& store);
  void insert(const Sent& sent);
  Sent* find(int64_t psn);
  void note_payload(const Subject& subject, Store& store);
  uint32_t likely_path_mtu() const;
  void guess_span_from_next(const Subject& subject, Store& store);
  void bound_path_mtu(uint32_t length, int64_t most_span, Store& store);
  bool ends_before(const Subject& subject, int64_t psn, const Sent& read) const;
  void settle_spans(Store& store);
  void settle_in_hole(Sent& read);
  void settle_gap(Sent& read, Store& store) const;
  void trim();
  void begin_recovery(int64_t now);
  void note_flight(PacketRecord& record) const;

  // answers.cc
  void on_acknowledge(const Subject& subject, int64_t psn, Store& store);
  void on_response(const Subject& subject, int64_t psn, Store& store);
  void on_nak(const Subject& subject, int64_t psn);
  void check_response(const Subject& subject, const Sent& sent, int64_t psn);
  bool is_copy_of_answer(const Subject& subject);
  void on_positive(const Subject& subject, int64_t psn, Store& store);
  void begin_rnr_wait(const Subject& subject, int64_t psn);
  void wait_again(const Subject& subject, int64_t psn);
  void end_last_read(const Subject& subject, int64_t psn);
  void place_response(const Subject& subject, Sent& sent, int64_t psn);
  Sent* advance(const Subject& subject, int64_t psn, Store& store);
  void complete(const Subject& subject, Sent& sent, Store& store);
  void note_answer_time(const Subject& subject, int64_t psn, Store& store);
  void note_implied_nak(const Subject& subject, const Sent* blocked);
  void end_recovery(const Subject& subject);

  bool acknowledged_;  // RC and XRC; UC has no answers
  bool started_ = false;
  bool answered_ = false;  // something was
  int64_t first_ = 0;      // PSNs here are counted on beyond 24 bits
  int64_t next_ = 0;       // behind the last new request
  int64_t unacked_ = 0;    // all before it is answered
  int64_t answers_missed_below_ = 0;
  std::deque<Sent> sent_;  // in PSN order, with holes where requests were not captured
  size_t acked_ = 0;       // of them at the front
  uint32_t bytes_in_flight_ = 0;
  uint32_t path_mtu_ = 0;
  uint32_t least_path_mtu_ = 256;  // while it is not known: it is not below this, by the payloads
  OpcodeSequence sequence_;

  uint32_t message_count_ = 0;
  uint32_t open_message_ = kNone;
  int64_t open_first_ = 0;
  wire::Operation open_operation_{};

  bool replaying_ = false;
  int64_t replay_next_ = 0;
  Cause replay_cause_ = Cause::kTimeout;
  std::optional<int64_t> nak_psn_;      // a PSN NAK that was not answered yet
  std::optional<int64_t> implied_psn_;  // the response that an implied NAK misses
  std::optional<Rnr> rnr_;
  int64_t last_psn_ = -1;  // of the last packet
  int64_t gap_time_ = 0;
  int64_t attempts_from_ = -1;
  uint32_t attempts_ = 0;
  int64_t nak_time_ = 0;
  int64_t least_round_trip_ = -1;  // from a request to its answer
  int64_t least_reaction_ = -1;    // from a NAK to what it causes
  int64_t recovery_start_ = -1;
  int64_t recovery_end_ = 0;  // PSN
};

}  // namespace uroce::dissector
