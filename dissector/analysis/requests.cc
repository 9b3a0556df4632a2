// SPDX-License-Identifier: GPL-2.0-or-later
// RequestTrack: the requests.
#include <algorithm>

#include "dissector/analysis/request_track.h"

namespace uroce::dissector {
namespace {

using wire::Operation;
using wire::Psn;

constexpr int64_t kPsnSpace = 1 << 24;
constexpr int64_t kLateWithin = 50'000;   // ns, while no round trip is known
constexpr int64_t kMissedAtStart = 1024;  // PSNs
constexpr uint32_t kAttemptsWithoutProgress = 3;
constexpr uint32_t kAtomicSize = 8;
constexpr uint32_t kUsualPathMtu = 1024;

uint32_t read_span(uint32_t length, uint32_t path_mtu) {
  return std::max(1u, static_cast<uint32_t>((uint64_t{length} + path_mtu - 1) / path_mtu));
}

}  // namespace

void RequestTrack::start(Psn psn) {
  started_ = true;
  first_ = next_ = unacked_ = kPsnSpace + psn.value();
}

int64_t RequestTrack::extend(Psn psn) const {
  return next_ + Psn::distance(Psn(static_cast<uint32_t>(next_)), psn);
}

bool RequestTrack::fits(Psn psn) const {
  if (!started_) return true;
  const int64_t e = extend(psn);
  // While a READ's span is not known its end is not either.
  const int64_t most_span =
      !sent_.empty() && !sent_.back().span_known ? read_span(sent_.back().length, kSmallestPathMtu) : 0;
  const int64_t oldest = acknowledged_ ? unacked_ : next_;
  return e < next_ + kFarAway + most_span && e >= oldest - kFarAway;
}

bool RequestTrack::awaits(Psn psn) const {
  if (!started_ || !acknowledged_) return false;
  const int64_t e = extend(psn);
  return e >= unacked_ && e < (sent_.empty() || sent_.back().span_known
                                   ? next_
                                   : sent_.back().psn + read_span(sent_.back().length, kSmallestPathMtu));
}

bool RequestTrack::may_have_missed(Psn psn) const {
  if (!started_ || !acknowledged_ || answered_) return false;
  const int64_t e = extend(psn);
  return e < unacked_ && unacked_ - e < kMissedAtStart;
}

void RequestTrack::on_request(const Subject& subject, Store& store) {
  const Psn psn = subject.headers.bth.psn;
  if (!started_) start(psn);
  note_payload(subject, store);
  guess_span_from_next(subject, store);
  const int64_t e = extend(psn);
  subject.record.has_psn = true;
  subject.record.relative_psn = static_cast<int32_t>(e - first_);
  if (e >= next_) {
    on_new(subject, e, store);
  } else {
    on_below(subject, e, store);
  }
  last_psn_ = e;
  note_flight(subject.record);
  trim();
}

RequestTrack::Sent RequestTrack::make_sent(const Subject& subject, int64_t psn) const {
  const Headers& headers = subject.headers;
  Sent sent;
  sent.psn = sent.expected = sent.seen = psn;
  sent.first_time = sent.last_time = subject.now();
  sent.record = sent.last_record = subject.index;
  sent.payload = headers.payload_size;
  sent.operation = headers.info->operation;
  sent.first_ip_id = subject.ip_ids.extend(subject.datagram);
  sent.last_ip_id = subject.datagram.ip_id;
  sent.last = headers.info->last;
  if (sent.operation == Operation::kReadRequest) {
    sent.length = headers.reth.length;
    sent.span_known = path_mtu_ != 0 || sent.length <= kSmallestPathMtu;
    if (path_mtu_ != 0) sent.span = read_span(sent.length, path_mtu_);
  }
  return sent;
}

void RequestTrack::on_new(const Subject& subject, int64_t psn, Store& store) {
  const bool in_order = psn == next_;
  if (!in_order) {
    subject.record.findings.add(Finding::kPsnGap);
    subject.record.missing = static_cast<uint32_t>(psn - next_);
    gap_time_ = subject.now();
  }
  sequence_.check(subject.headers, in_order, path_mtu_, subject.record.findings);
  Sent sent = make_sent(subject, psn);
  join_message(subject, sent, in_order, store);
  subject.record.message = sent.message;
  if (acknowledged_) bytes_in_flight_ += sent.payload;
  next_ = sent.end();
  sent_.push_back(sent);
  if (!in_order && acknowledged_) begin_recovery(subject.now());
  if (!acknowledged_) {
    unacked_ = next_;
    acked_ = sent_.size();
  }
  replaying_ = false;
}

void RequestTrack::on_below(const Subject& subject, int64_t psn, Store& store) {
  Sent* sent = find(psn);
  if (sent != nullptr && ends_before(subject, psn, *sent)) {
    sent->span = static_cast<uint32_t>(psn - sent->psn);
    settle_gap(*sent, store);
    bound_path_mtu(sent->length, sent->span, store);
    sent = nullptr;
  }
  if (sent != nullptr) {
    subject.record.related = store.packets[sent->record].frame;
    subject.record.message = sent->message;
    if (acknowledged_ && sent->end() <= unacked_) subject.record.findings.add(Finding::kDuplicateRequest);
  }
  if (is_copy(subject, psn, sent)) {
    subject.record.findings.add(Finding::kDuplicatePacket);
    return;
  }
  if (sent != nullptr) {
    // Older than the oldest one that was captured: here the original comes at last, behind its repetition.
    const uint32_t ip_id = subject.ip_ids.extend(subject.datagram);
    if (IpIds::before(ip_id, sent->first_ip_id) && subject.late() && is_late_original(subject, psn)) {
      sent->first_ip_id = ip_id;
      subject.record.findings.add(Finding::kOutOfOrder);
      return;
    }
    on_again(subject, psn, sent, store);
    return;
  }
  // The capture began while it was under way, or with one that had overtaken it: it waits for its answer.
  if (!answered_ && acknowledged_) unacked_ = std::min(unacked_, psn);
  // Never seen: overtaken by others, or lost before the place of the capture and sent again.
  if (is_late_original(subject, psn)) {
    subject.record.findings.add(Finding::kOutOfOrder);
  } else {
    on_again(subject, psn, nullptr, store);
  }
  Sent fresh = make_sent(subject, psn);
  if (!fresh.span_known) settle_in_hole(fresh);
  join_message(subject, fresh, false, store);
  subject.record.message = fresh.message;
  insert(fresh);
}

void RequestTrack::on_again(const Subject& subject, int64_t psn, Sent* sent, Store& store) {
  Findings& findings = subject.record.findings;
  if (sent != nullptr) subject.record.wait = subject.now() - sent->last_time;
  const int64_t end = sent != nullptr ? sent->end() : psn + 1;
  if (end <= unacked_ && !(sent != nullptr && sent->needs_response() && !sent->answered())) {
    findings.add(Finding::kSpuriousRetransmission);
    if (subject.late()) findings.add(Finding::kOutOfOrder);
    if (sent != nullptr) repeat(subject, *sent);
    replaying_ = true;
    replay_next_ = end;
    return;
  }
  if (subject.late() && replaying_) {
    findings.add(Finding::kOutOfOrder);
  } else {
    const auto cause = new_attempt(subject, psn, sent);
    if (cause) {
      replay_cause_ = *cause;
      count_attempt(subject);
      end_rnr_wait(subject, psn, store);
      if (*cause == Cause::kNak) {
        note_reaction(subject.now() - nak_time_);
        nak_psn_.reset();
      }
      if (*cause == Cause::kImpliedNak) implied_psn_.reset();
      if (*cause != Cause::kRnr) begin_recovery(subject.now());
    }
    replaying_ = true;
    replay_next_ = end;
  }
  constexpr Finding kByCause[] = {Finding::kTimeoutRetransmission, Finding::kNakRetransmission,
                                  Finding::kRnrRetransmission, Finding::kImpliedNakRetransmission};
  findings.add(kByCause[static_cast<size_t>(replay_cause_)]);
  if (sent != nullptr) repeat(subject, *sent);
}

void RequestTrack::repeat(const Subject& subject, Sent& sent) const {
  sent.last_time = subject.now();
  sent.last_record = subject.index;
  sent.last_ip_id = subject.datagram.ip_id;
  sent.repeated = true;
}

// The same packet once more, not the same request: with the IP ID that only one packet has. Without IDs, or before it
// is known that they count up, if it comes faster than anything can have asked for it.
bool RequestTrack::is_copy(const Subject& subject, int64_t psn, const Sent* sent) const {
  const Datagram& datagram = subject.datagram;
  if (!acknowledged_) return sent != nullptr;  // UC sends nothing again
  if (subject.ip_ids.tell_packets(datagram) || subject.ip_ids.tell_order(datagram)) {
    return subject.ip_ids.same(datagram, subject.headers.bth) != nullptr;
  }
  if (sent == nullptr || (datagram.has_ip_id && sent->last_ip_id != datagram.ip_id)) return false;
  // A READ for the rest of it is not a copy, nor is one of several that come again in a row.
  const bool read = subject.headers.info->operation == Operation::kReadRequest;
  if ((read && subject.headers.reth.length != sent->length) || psn != last_psn_) return false;
  // What a NAK asks for begins with its PSN.
  if (replaying_ || nak_psn_ == psn || rnr_ || implied_psn_) return false;
  return subject.now() - sent->last_time < (least_round_trip_ >= 0 ? least_round_trip_ : kLateWithin);
}

// The first transmission of a request, captured behind ones that were sent later.
bool RequestTrack::is_late_original(const Subject& subject, int64_t psn) const {
  if (!acknowledged_) return true;  // UC sends nothing again
  if (subject.ip_ids.tell_order(subject.datagram)) {
    return subject.late() && !subject.ip_ids.sent_behind(subject.datagram, psn - first_);
  }
  // In front of the first one that was captured: the capture began just then, or these two were swapped.
  if (psn < first_ && acked_ == 0 && !nak_psn_ && !sent_.empty())
    return subject.now() - sent_.front().first_time < kLateWithin;
  if (psn < unacked_ || replaying_ || (nak_psn_ && *nak_psn_ <= psn) || rnr_ || implied_psn_) return false;
  return subject.now() - gap_time_ < (least_round_trip_ >= 0 ? least_round_trip_ : kLateWithin);
}

// Why the requester begins again here; nothing if it only goes on with what it began.
std::optional<RequestTrack::Cause> RequestTrack::new_attempt(const Subject& subject, int64_t psn,
                                                             const Sent* sent) const {
  if (nak_psn_ && (*nak_psn_ == psn || (psn <= *nak_psn_ && psn == unacked_))) return Cause::kNak;
  if (rnr_ && rnr_->psn == psn && !crosses_rnr_nak(subject)) return Cause::kRnr;
  const bool wants_response = sent == nullptr || sent->needs_response();
  if (implied_psn_ && wants_response && *implied_psn_ >= psn && (sent == nullptr || *implied_psn_ < sent->end())) {
    return Cause::kImpliedNak;
  }
  if (replaying_ && psn >= replay_next_) return {};
  return Cause::kTimeout;
}

void RequestTrack::count_attempt(const Subject& subject) {
  if (attempts_from_ != unacked_) attempts_ = 0;
  attempts_from_ = unacked_;
  if (++attempts_ >= kAttemptsWithoutProgress) subject.record.findings.add(Finding::kNoProgress);
}

// Sent again too soon, but perhaps by a requester that had not heard of the RNR NAK yet: that takes time if the capture
// was taken at the responder's side. How much, only other NAKs can tell.
bool RequestTrack::crosses_rnr_nak(const Subject& subject) const {
  const int64_t waited = subject.now() - rnr_->time;
  return waited < rnr_->least_wait() && (least_reaction_ < 0 || waited < 2 * least_reaction_);
}

void RequestTrack::note_reaction(int64_t time) {
  if (time >= 0 && (least_reaction_ < 0 || time < least_reaction_)) least_reaction_ = time;
}

void RequestTrack::end_rnr_wait(const Subject& subject, int64_t psn, Store& store) {
  if (!rnr_ || rnr_->psn != psn || crosses_rnr_nak(subject)) return;
  const int64_t waited = subject.now() - rnr_->time;
  PacketRecord& nak = store.packets[rnr_->record];
  nak.wait = waited;
  nak.answer = subject.datagram.frame;
  if (waited < rnr_->least_wait()) subject.record.findings.add(Finding::kRnrNotHonoured);
  note_reaction(waited - rnr_->delay);
  rnr_.reset();
}

void RequestTrack::join_message(const Subject& subject, Sent& sent, bool in_order, Store& store) {
  const wire::OpcodeInfo& info = *subject.headers.info;
  const bool is_new = sent.psn >= next_;
  uint32_t message = kNone;
  int64_t first = sent.psn;
  if (!info.first && is_new && open_message_ != kNone && (in_order || open_operation_ == info.operation)) {
    message = open_message_;
    first = open_first_;
  } else if (!info.first && !is_new) {  // in a hole: the message of the packet in front of it, if that goes on
    const Sent* const before = find(sent.psn - 1);
    if (before != nullptr && !before->last) message = before->message;
  }
  if (message == kNone) {
    message = static_cast<uint32_t>(store.messages.size());
    MessageRecord& fresh = store.messages.emplace_back();
    fresh.number = message_count_++;
    fresh.operation = static_cast<uint8_t>(info.operation);
    fresh.start = subject.now();
    if (info.first) fresh.first_frame = subject.datagram.frame;
    if (info.has_atomic_eth) {
      fresh.length = kAtomicSize;
      fresh.length_known = true;
    } else if (info.first && info.has_reth) {
      fresh.length = subject.headers.reth.length;
      fresh.length_known = true;
    }
  }
  MessageRecord& record = store.messages[message];
  ++record.packets;
  if (info.last) {
    record.last_frame = subject.datagram.frame;
    if (!record.length_known && (info.first || (record.first_frame != 0 && path_mtu_ != 0 && is_new))) {
      record.length = static_cast<uint32_t>((sent.psn - first) * path_mtu_) + sent.payload;
      record.length_known = true;
    }
  }
  sent.message = message;
  if (!is_new) return;
  open_message_ = info.last ? kNone : message;
  open_first_ = first;
  open_operation_ = info.operation;
}

void RequestTrack::insert(const Sent& sent) {
  const auto at = std::upper_bound(sent_.begin(), sent_.end(), sent.psn,
                                   [](int64_t psn, const Sent& other) { return psn < other.psn; });
  const auto position = static_cast<size_t>(at - sent_.begin());
  const bool acked = sent.end() <= unacked_;
  sent_.insert(at, sent);
  if (position < acked_ || (acked && position == acked_)) {
    ++acked_;
  } else {
    bytes_in_flight_ += sent.payload;
  }
}

// The request that has `psn` among its own, or null.
RequestTrack::Sent* RequestTrack::find(int64_t psn) {
  const auto behind =
      std::upper_bound(sent_.begin(), sent_.end(), psn, [](int64_t p, const Sent& other) { return p < other.psn; });
  if (behind == sent_.begin()) return nullptr;
  Sent& found = *std::prev(behind);
  return psn < found.end() ? &found : nullptr;
}

void RequestTrack::note_payload(const Subject& subject, Store& store) {
  if (path_mtu_ != 0) return;
  if (!subject.headers.info->last) learn_path_mtu(subject.headers.payload_size, store);
  while (least_path_mtu_ < std::min(subject.headers.payload_size, kLargestPathMtu)) least_path_mtu_ *= 2;
}

uint32_t RequestTrack::likely_path_mtu() const {
  return std::max(least_path_mtu_, kUsualPathMtu);
}

void RequestTrack::learn_path_mtu(uint32_t payload_size, Store& store) {
  if (path_mtu_ != 0 || !is_path_mtu(payload_size)) return;
  path_mtu_ = payload_size;
  settle_spans(store);
}

// The READs whose spans were not known for certain, and whether there was a gap behind them.
void RequestTrack::settle_spans(Store& store) {
  for (size_t i = 0; i < sent_.size(); ++i) {
    Sent& read = sent_[i];
    if (read.span_known && !read.span_guessed) continue;
    const int64_t span = read_span(read.length, path_mtu_);
    const int64_t room = i + 1 < sent_.size() ? sent_[i + 1].psn - read.psn : span;
    read.span = static_cast<uint32_t>(std::min(span, room));
    read.span_known = true;
    if (i + 1 == sent_.size()) {
      next_ = read.end();
    }
    settle_gap(read, store);
    read.span_guessed = false;
  }
}

// Where a READ ends is known now, and so whether there was a gap in front of the request that it was guessed from.
void RequestTrack::settle_gap(Sent& read, Store& store) const {
  if (read.guessed_at == kNone) return;
  PacketRecord& next = store.packets[read.guessed_at];
  const int64_t missing = first_ + next.relative_psn - read.end();
  next.missing = static_cast<uint32_t>(std::max<int64_t>(0, missing));
  next.findings.set(Finding::kPsnGap, missing > 0);
  read.guessed_at = kNone;
}

// A READ of this length took no more than so many PSNs: that says how large the path MTU is at least.
void RequestTrack::bound_path_mtu(uint32_t length, int64_t most_span, Store& store) {
  if (path_mtu_ != 0) return;
  while (least_path_mtu_ < kLargestPathMtu && read_span(length, least_path_mtu_) > most_span) least_path_mtu_ *= 2;
  if (least_path_mtu_ == kLargestPathMtu) learn_path_mtu(kLargestPathMtu, store);
}

// A request among the PSNs that a READ was thought to take, and not a part of that READ: it ends before, and whatever
// seemed to come right behind it did not.
bool RequestTrack::ends_before(const Subject& subject, int64_t psn, const Sent& read) const {
  if (!read.span_guessed || psn == read.psn) return false;
  if (subject.headers.info->operation != Operation::kReadRequest) return true;
  const int64_t in_front = psn - read.psn;
  for (uint32_t path_mtu = least_path_mtu_; path_mtu <= kLargestPathMtu; path_mtu *= 2) {
    if (in_front * path_mtu + subject.headers.reth.length == read.length) return false;
  }
  return true;
}

// The PSN behind a READ says how many it took, if nothing in between is missing.
void RequestTrack::guess_span_from_next(const Subject& subject, Store& store) {
  if (sent_.empty() || sent_.back().span_known) return;
  Sent& read = sent_.back();
  const int64_t span = extend(subject.headers.bth.psn) - read.psn;
  if (span <= 0) return;
  bound_path_mtu(read.length, span, store);
  if (read.span_known) return;  // the path MTU is
  bool fits = false;
  for (uint32_t path_mtu = least_path_mtu_; path_mtu <= kLargestPathMtu; path_mtu *= 2) {
    fits |= read_span(read.length, path_mtu) == span;
  }
  read.span = fits ? static_cast<uint32_t>(span)
                   : static_cast<uint32_t>(std::min<int64_t>(read_span(read.length, likely_path_mtu()), span));
  read.span_known = read.span_guessed = true;
  read.guessed_at = subject.index;
  next_ = read.end();
}

// The same for a READ that comes when later requests are known: it ends where they begin, or before.
void RequestTrack::settle_in_hole(Sent& read) {
  const auto next = std::upper_bound(sent_.begin(), sent_.end(), read.psn,
                                     [](int64_t p, const Sent& other) { return p < other.psn; });
  const auto room = static_cast<uint32_t>((next == sent_.end() ? next_ : next->psn) - read.psn);
  for (uint32_t path_mtu = least_path_mtu_; path_mtu <= kLargestPathMtu; path_mtu *= 2) {
    read.span_known |= read_span(read.length, path_mtu) == room;
  }
  read.span = read.span_known ? room : std::min(room, read_span(read.length, likely_path_mtu()));
  read.span_guessed = true;
}

void RequestTrack::trim() {
  while (acked_ > kHistory || sent_.size() > kMostKept) {
    if (acked_ > 0) {
      --acked_;
    } else {
      bytes_in_flight_ -= std::min(bytes_in_flight_, sent_.front().payload);
      unacked_ = std::max(unacked_, sent_.front().end());
    }
    sent_.pop_front();
  }
}

void RequestTrack::begin_recovery(int64_t now) {
  if (recovery_start_ >= 0) return;
  recovery_start_ = now;
  recovery_end_ = next_;
}

void RequestTrack::note_flight(PacketRecord& record) const {
  if (!acknowledged_) return;
  record.has_flight = true;
  record.packets_in_flight = static_cast<uint32_t>(std::max<int64_t>(0, next_ - unacked_));
  record.bytes_in_flight = bytes_in_flight_;
}

}  // namespace uroce::dissector
