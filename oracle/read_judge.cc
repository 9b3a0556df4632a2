// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/read_judge.h"

#include <string_view>

namespace uroce::oracle {
namespace {

using wire::Operation;
using wire::Psn;

// A responder remembers at most its max_dest_rd_atomic (an 8-bit number) to answer again.
constexpr size_t kMostRemembered = 256;

const char* position_name(uint32_t index, uint32_t span) {
  if (span == 1) return "RDMA_READ_RESPONSE_ONLY";
  return index == 0          ? "RDMA_READ_RESPONSE_FIRST"
         : index + 1 == span ? "RDMA_READ_RESPONSE_LAST"
                             : "RDMA_READ_RESPONSE_MIDDLE";
}

}  // namespace

void ReadJudge::on_new(const Request& request, uint32_t span) {
  unanswered_.push_back({.request = request, .span = span, .in_front = unanswered_.size()});
}

void ReadJudge::on_duplicate(const Request& request, uint32_t span) {
  std::erase_if(repeated_, [&](const Job& job) { return job.request.psn == request.psn; });
  repeated_.push_back({.request = request, .span = span, .repeated = true});
  if (repeated_.size() > kMostRemembered) repeated_.pop_front();
}

void ReadJudge::roll_back(Psn psn) {
  while (!unanswered_.empty() && Psn::distance(psn, unanswered_.back().request.psn) >= 0) unanswered_.pop_back();
}

void ReadJudge::settle_span(uint32_t span) {
  if (!unanswered_.empty() && unanswered_.back().span == 0) unanswered_.back().span = span;
}

void ReadJudge::correct_span(Psn psn, uint32_t span) {
  if (Job* const job = unanswered(psn)) job->span = span;
}

// The response itself tells the path MTU, or that it is the only one.
void ReadJudge::settle_spans(const Packet& packet, Context& context) {
  if (packet.info().operation != Operation::kReadResponse) return;
  if (!packet.info().last) context.learn_path_mtu(packet.payload_size());
  const bool only = packet.info().first && packet.info().last;
  for (std::deque<Job>* jobs : {&unanswered_, &repeated_}) {
    for (Job& job : *jobs) {
      if (job.span != 0) continue;
      job.span = only && job.request.psn == packet.bth().psn ? 1 : context.span(job.request);
    }
  }
}

ReadJudge::Job* ReadJudge::unanswered(Psn psn) {
  const auto found =
      std::find_if(unanswered_.begin(), unanswered_.end(), [psn](const Job& job) { return job.contains(psn); });
  return found == unanswered_.end() ? nullptr : &*found;
}

void ReadJudge::on_response(const Packet& packet, Context& context) {
  settle_spans(packet, context);
  judge_order(packet.bth().psn, packet.info().name, context);
  if (packet.info().operation == Operation::kAtomicAcknowledge) {
    judge_atomic(packet, context);
  } else {
    judge_read_response(packet, context);
  }
  count_answer(packet.bth().psn, context);
}

void ReadJudge::judge_order(Psn psn, const char* response, Context& context) {
  while (!unanswered_.empty()) {
    const Job& first = unanswered_.front();
    const Psn end = first.request.psn + std::max(first.span, 1u);
    if (Psn::distance(end, psn) < 0) return;
    context.violation(Rule::kResponseOrder,
                      text("%s for PSN %u before the response for PSN %u to the %s of packet %llu", response,
                           psn.value(), (first.request.psn + first.answered).value(), first.request.info->name,
                           static_cast<unsigned long long>(first.request.number)));
    unanswered_.pop_front();  // said once
  }
}

// The READ whose answer is under way and has this as its next response. An answer may be interrupted by one to a
// repeated request and go on after it.
ReadJudge::Job* ReadJudge::continued_by(const Packet& packet) {
  const auto goes_on = [psn = packet.bth().psn](const Job& job) {
    return job.is_read() && job.next > 0 && job.next < job.span && psn == job.request.psn + job.next;
  };
  if (const auto job = std::find_if(unanswered_.begin(), unanswered_.end(), goes_on); job != unanswered_.end()) {
    return &*job;
  }
  const auto job = std::find_if(repeated_.rbegin(), repeated_.rend(), goes_on);
  return job == repeated_.rend() ? nullptr : &*job;
}

// The READ that begins with its PSN.
ReadJudge::Job* ReadJudge::begun_by(const Packet& packet) {
  const auto begins = [psn = packet.bth().psn](const Job& job) { return job.is_read() && job.request.psn == psn; };
  if (const auto job = std::find_if(unanswered_.begin(), unanswered_.end(), begins); job != unanswered_.end()) {
    return &*job;
  }
  const auto job = std::find_if(repeated_.begin(), repeated_.end(), begins);
  return job == repeated_.end() ? nullptr : &*job;
}

void ReadJudge::judge_read_response(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  // With First or Only it is more likely the beginning of an answer than the middle of another.
  Job* begun = begun_by(packet);
  Job* job = continued_by(packet);
  if (job == nullptr || (begun != nullptr && packet.info().first)) {
    job = begun;
    if (job != nullptr) job->next = 0;
  }
  if (job != nullptr) {
    judge_shape(*job, packet, context);
    ++job->next;
    if (job->repeated && job->next == job->span) {
      std::erase_if(repeated_, [number = job->request.number](const Job& j) { return j.request.number == number; });
    }
  } else if (Job* skipped = unanswered(psn); skipped != nullptr && skipped->is_read()) {
    context.violation(Rule::kResponseOrder, text("READ response for PSN %u, the next one of that READ is %u",
                                                 psn.value(), (skipped->request.psn + skipped->answered).value()));
    skipped->next = skipped->answered =
        static_cast<uint32_t>(Psn::distance(skipped->request.psn, psn)) + 1;  // said once
  } else {
    context.violation(Rule::kResponseUnrequested,
                      text("%s for PSN %u, which no READ asked for", packet.info().name, psn.value()));
  }
}

// Position and size of the response that comes next in `job`.
void ReadJudge::judge_shape(const Job& job, const Packet& packet, Context& context) const {
  const uint32_t index = job.next;
  const uint32_t length = job.request.is(Operation::kReadRequest) ? job.request.length : 0;
  if (const auto depth = context.attributes.max_dest_rd_atomic;
      depth && index == 0 && !job.repeated && job.in_front >= *depth) {
    context.violation(Rule::kResponderDepth,
                      text("answers the READ of packet %llu, which came behind %llu unanswered ones; "
                           "max_dest_rd_atomic is %u",
                           static_cast<unsigned long long>(job.request.number),
                           static_cast<unsigned long long>(job.in_front), *depth));
  }
  const char* position = position_name(index, job.span);
  const bool replay_inside =
      job.repeated && index == 0 && !packet.info().first && packet.info().last == (job.span == 1);
  if (replay_inside) {
    context.violation(Rule::kReplayBegin,
                      text("READ of packet %llu again: begins with %s",
                           static_cast<unsigned long long>(job.request.number), packet.info().name));
  } else if (packet.info().name != std::string_view(position)) {
    context.violation(Rule::kResponsePosition, text("PSN %u: %s, should be %s: response %u of %u to packet %llu",
                                                    packet.bth().psn.value(), packet.info().name, position, index + 1,
                                                    job.span, static_cast<unsigned long long>(job.request.number)));
  }
  const uint32_t mtu = context.attributes.path_mtu.value_or(length);
  const uint64_t expected = std::min<uint64_t>(mtu, length - std::min<uint64_t>(length, uint64_t{index} * mtu));
  if (packet.payload_size() != expected) {
    context.violation(
        Rule::kResponseSize,
        text("PSN %u: %u bytes, should be %llu: response %u of %u to a READ of %u bytes", packet.bth().psn.value(),
             packet.payload_size(), static_cast<unsigned long long>(expected), index + 1, job.span, length));
  }
}

void ReadJudge::judge_atomic(const Packet& packet, Context& context) {
  const Psn psn = packet.bth().psn;
  const uint64_t original = packet.wire().atomic_ack_eth.original;
  const Job* fresh = unanswered(psn);
  if (fresh != nullptr && fresh->request.is_atomic()) {
    if (const auto depth = context.attributes.max_dest_rd_atomic; depth && fresh->in_front >= *depth) {
      context.violation(Rule::kResponderDepth,
                        text("answers the atomic of packet %llu, which came behind %llu unanswered requests; "
                             "max_dest_rd_atomic is %u",
                             static_cast<unsigned long long>(fresh->request.number),
                             static_cast<unsigned long long>(fresh->in_front), *depth));
    }
    atomic_answers_.push_back({.psn = psn, .original = original});
    if (atomic_answers_.size() > kMostRemembered) atomic_answers_.pop_front();
    return;
  }
  const auto asked = std::find_if(repeated_.begin(), repeated_.end(),
                                  [&](const Job& job) { return job.request.psn == psn && job.request.is_atomic(); });
  if (asked == repeated_.end()) {
    context.violation(Rule::kResponseUnrequested, text("atomic ACK for PSN %u, which no atomic has", psn.value()));
    return;
  }
  const auto first = std::find_if(atomic_answers_.rbegin(), atomic_answers_.rend(),
                                  [psn](const AtomicAnswer& answer) { return answer.psn == psn; });
  if (first != atomic_answers_.rend() && first->original != original) {
    context.violation(Rule::kAtomicReplay, text("PSN %u: 0x%llx, was 0x%llx the first time", psn.value(),
                                                static_cast<unsigned long long>(original),
                                                static_cast<unsigned long long>(first->original)));
  }
}

// The requester has the response now, whatever it was sent for.
void ReadJudge::count_answer(Psn psn, Context& context) {
  Job* job = unanswered(psn);
  if (job == nullptr) return;
  if (psn == job->request.psn + job->answered) ++job->answered;
  if (job == &unanswered_.front() && job->answered == job->span) complete_front(context);
}

void ReadJudge::complete_front(Context& context) {
  const Request request = unanswered_.front().request;
  context.counts.goodput_in += request.is_atomic() ? 8 : request.length;
  if (Job& done = unanswered_.front(); done.is_read() && done.next < done.span) {  // another answer made it complete
    done.repeated = true;
    repeated_.push_back(done);
  }
  unanswered_.pop_front();
  // Those that may have been handled only after this one was answered had fewer in front of them.
  for (Job& later : unanswered_) {
    if (later.in_front > 0 && later.request.time + context.options.slack >= context.now) --later.in_front;
  }
}

}  // namespace uroce::oracle
