// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/client.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fmt/format.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::errors {
namespace {

constexpr uint32_t kNeverGivenOut = 0x40000000;

// What the server says of its side.
struct Target {
  transfer::QueuePairAddress qp;
  uint64_t open;
  uint32_t open_key;
  uint64_t bad;
  uint32_t bad_key;
};

// A request with its SGE, which the work request points to.
struct Request {
  ibv_sge sge{};
  ibv_send_wr wr{};
};

// What the client has for one case.
class Attempt {
 public:
  Attempt(const transfer::Device& device, transfer::Control& control, const Peer& peer, ibv_pd* pd, const Case* item)
      : control_(control), item_(item), pair_(device, pd) {
    source_ = memory_.region(pd, kOpenSlot, 0, kSlotSize, 0);
    sink_ = memory_.region(pd, kTargetSlot, kRegionBegin, kRegionEnd, IBV_ACCESS_LOCAL_WRITE);
    if (item_ != nullptr && item_->fault == Fault::kLocalBounds) {
      short_ = memory_.region(pd, kOpenSlot, kRegionBegin, kRegionEnd, 0);
    }
    receive_ = memory_.region(pd, kReceiveSlot, 0, kSlotSize, IBV_ACCESS_LOCAL_WRITE);
    connect(peer);
  }

  Ending make_requests() {
    Ending seen;
    post_receives();
    const int error = post_requests();
    if (error != 0) {
      seen.request = Ending::kRefused + error;
    } else {
      if (item_->fault == Fault::kLateReceive) await_receive();
      if (!pair_.wait(pair_.sends)) complaints.add("not all requests complete");
      if (const ibv_wc* const wc = pair_.sends.of(bad_)) seen.request = wc->status;
    }
    check_neighbours(seen);
    check_state(seen);
    check_memory();
    return seen;
  }

  // The server's part of the ending.
  void settle(Ending& seen) {
    control_.send(kDone, {seen.refused() ? 1u : 0u});
    const transfer::Record outcome = control_.expect(kOutcome, 3, in_time());
    seen.event = static_cast<int>(outcome.words[0]);
    seen.receive = static_cast<int>(outcome.words[1]);
    seen.responder_state = static_cast<int>(outcome.words[2]);
    if (outcome.words.size() > 3) complaints.add("at the responder " + text_of(std::span(outcome.words).subspan(3)));
    if (pair_.next_event(std::chrono::seconds(0), complaints) >= 0) complaints.add("an event at the requester");
  }

  void exchange_healthy() {
    memory_.put(kOpenSlot, kHealthyAt, kHealthySize, kHealthyStream);
    std::array<Request, 2> requests;
    set(requests[0], IBV_WR_RDMA_WRITE, kHealthyAt, kHealthySize);
    set(requests[1], IBV_WR_SEND, kHealthyAt, kHealthySize);
    if (post(requests) != 0 || !pair_.wait(pair_.sends)) complaints.add("a new QP pair does not work");
    for (const ibv_wc& wc : pair_.sends.done) {
      if (wc.status != IBV_WC_SUCCESS) complaints.add(fmt::format("a new QP pair: {}", ibv_wc_status_str(wc.status)));
    }
    Ending nothing;
    settle(nothing);
  }

  Complaints complaints;

 private:
  void connect(const Peer& peer) {
    control_.send(kAddress, {pair_.qpn(), kStartingPsn});
    const std::vector<uint64_t> words = control_.expect(kTarget, 6, in_time()).words;
    const auto narrow = [&](size_t i) { return static_cast<uint32_t>(words[i]); };
    target_ = {{narrow(0), narrow(1)}, words[2], narrow(3), words[4], narrow(5)};
    pair_.connect({pair_.qpn(), kStartingPsn}, target_.qp, parameters(peer, item_));
    control_.expect(kReady, 0, in_time());
  }

  int post(std::span<Request> requests) {
    std::vector<ibv_send_wr> chain;
    for (Request& request : requests) {
      request.wr.sg_list = &request.sge;
      request.wr.num_sge = 1;
      chain.push_back(request.wr);
    }
    return pair_.post(chain);
  }

  // To or from the same offset where all is allowed. What is read goes to kTargetSlot.
  void set(Request& request, ibv_wr_opcode opcode, size_t at, uint32_t length) const {
    const bool answered = opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.sge = {memory_.address(answered ? kTargetSlot : kOpenSlot, at), length, (answered ? sink_ : source_)->lkey};
    request.wr.opcode = opcode;
    request.wr.send_flags = IBV_SEND_SIGNALED;
    request.wr.wr.rdma.remote_addr = target_.open + at;
    request.wr.wr.rdma.rkey = target_.open_key;
  }

  void set_bad(Request& request) const {
    set(request, item_->opcode, kBadAt, item_->length());
    if (item_->fault == Fault::kLocalKey) request.sge.lkey ^= kNeverGivenOut;
    if (item_->fault == Fault::kLocalBounds) {
      request.sge.addr += local_ends_behind(item_->length()) - kBadAt;
      if (item_->opcode != IBV_WR_RDMA_READ) request.sge.lkey = short_->lkey;
    }
    if (item_->local()) return;  // the peer would allow it
    if (item_->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.wr.atomic.remote_addr = target_.bad;
      request.wr.wr.atomic.rkey = target_.bad_key;
      request.wr.wr.atomic.compare_add = 1;
    } else {
      request.wr.wr.rdma.remote_addr = target_.bad;
      request.wr.wr.rdma.rkey = target_.bad_key;
    }
  }

  // In one chain: a good WRITE, where it can succeed, the bad request, and what must not be executed any more.
  int post_requests() {
    std::vector<Request> requests(kFollowers + 1);
    set_bad(requests[0]);
    memory_.put(kOpenSlot, kBadAt, item_->length(), kBadStream);
    for (uint32_t i = 0; i < kFollowers; ++i) {
      const bool write = i == 0 || i == kFollowers - 1;
      set(requests[1 + i], write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, follower_at(i), kPiece);
      if (write) memory_.put(kOpenSlot, follower_at(i), kPiece, kFollowerStream);
      // An error is told of whether it was asked for or not.
      if (!write && item_->fault != Fault::kLateReceive) requests[1 + i].wr.send_flags = 0;
    }
    bad_ = item_->peer_is_dead() ? 0 : 1;
    unsignaled_ = bad_ + 2;
    if (bad_ == 0) return post(requests);
    memory_.put(kOpenSlot, kLeadAt, kPiece, kLeadStream);
    Request lead;
    set(lead, IBV_WR_RDMA_WRITE, kLeadAt, kPiece);
    if (reason_to_fail_alone(*item_, own_provider()) != nullptr) {
      if (post({&lead, 1}) != 0 || !pair_.wait(pair_.sends)) complaints.add("the WRITE before it does not complete");
    } else {
      requests.insert(requests.begin(), lead);
    }
    return post(requests);
  }

  Provider own_provider() const { return provider_of(sink_->context); }

  void post_receives() {
    for (uint32_t i = 0; i < kReceives; ++i) post_receive(i);
  }
  void post_receive(uint32_t i) {
    const ibv_sge sge{memory_.address(kReceiveSlot, receive_at(i)), kPiece, receive_->lkey};
    if (const int error = pair_.post_receive(sge); error != 0) transfer::fail_verbs("ibv_post_recv", error);
  }

  void await_receive() {
    control_.expect(kAbout, 0, in_time());
    pair_.poll();
    if (pair_.sends.of(bad_) != nullptr) complaints.add("the SEND completes before there is a receive");
    control_.send(kGo, {});
  }

  // What was posted before the bad request has succeeded, what was posted behind it is flushed.
  void check_neighbours(const Ending& seen) {
    if (!pair_.wait(pair_.sends)) return;  // said already
    pair_.check(pair_.sends, "request", complaints);
    for (uint64_t number = 0; number < pair_.sends.posted; ++number) {
      if (number == bad_) continue;
      const ibv_wc* const wc = pair_.sends.of(number);
      const int due = number < bad_ || seen.request == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR;
      if (wc == nullptr && due == IBV_WC_SUCCESS && number == unsignaled_) {
        continue;  // the bad request has succeeded, which is told elsewhere
      } else if (wc == nullptr) {
        complaints.add(fmt::format("request {} does not complete", number));
      } else if (wc->status != due) {
        complaints.add(fmt::format("request {}: {}", number, ibv_wc_status_str(wc->status)));
      }
    }
  }

  // The QP is in ERR after an error, and flushes its receives and what else is posted to it.
  void check_state(const Ending& seen) {
    const ibv_qp_state due = seen.refused() || seen.request == IBV_WC_SUCCESS ? IBV_QPS_RTS : IBV_QPS_ERR;
    if (const ibv_qp_state state = pair_.state(); state != due) {
      complaints.add(fmt::format("the requester's QP is in state {}", static_cast<int>(state)));
    }
    if (due == IBV_QPS_RTS) pair_.move_to(IBV_QPS_ERR);
    if (pair_.wait(pair_.receives)) {
      post_late();
    } else {
      complaints.add("the requester's receives are not flushed");
    }
    pair_.poll();
    pair_.check(pair_.sends, "request", complaints);
    pair_.check(pair_.receives, "receive", complaints);
    if (pair_.receives.done.size() != pair_.receives.posted) complaints.add("not all receives complete");
    for (const ibv_wc& wc : pair_.receives.done) {
      if (wc.status != IBV_WC_WR_FLUSH_ERR) complaints.add(fmt::format("a receive: {}", ibv_wc_status_str(wc.status)));
    }
  }

  // To a QP in ERR. The user space part of rxe puts receives into a ring that nobody looks at any more.
  void post_late() {
    if (own_provider() == Provider::kRxe) return;
    std::array<Request, 1> late;
    set(late[0], IBV_WR_RDMA_WRITE, follower_at(0), kPiece);
    if (post(late) != 0) complaints.add("a QP in ERR takes no requests");
    post_receive(0);
    if (!pair_.wait(pair_.sends) || !pair_.wait(pair_.receives)) complaints.add("a QP in ERR does not flush");
  }

  // Sources are as they were, and nothing came but what was asked for.
  void check_memory() {
    if (bad_ == 1) memory_.expect(kOpenSlot, kLeadAt, kPiece, kLeadStream, "a source", complaints);
    memory_.expect(kOpenSlot, kBadAt, item_->length(), kBadStream, "the source", complaints);
    for (const uint32_t i : {0u, kFollowers - 1}) {
      memory_.expect(kOpenSlot, follower_at(i), kPiece, kFollowerStream, "a source", complaints);
    }
    if (item_->next_may_run()) memory_.ignore(kTargetSlot, follower_at(1), kPiece);
    if (item_->fault == Fault::kLocalBounds) {  // of an answer, what fits may have been placed
      const size_t begin = local_ends_behind(item_->length());
      memory_.ignore(kTargetSlot, begin, kRegionEnd - begin);
    }
    memory_.expect_untouched(complaints);
  }

  transfer::Control& control_;
  const Case* const item_;
  Memory memory_{kClientGuard};
  transfer::Verbs<ibv_mr> source_, sink_, short_, receive_;
  Pair pair_;
  Target target_{};
  uint64_t bad_ = 0;         // number of the bad request
  uint64_t unsignaled_ = 0;  // of the one behind it that asks for no completion
};

transfer::Verbs<ibv_pd> new_pd(ibv_context* context) {
  transfer::Verbs<ibv_pd> pd(ibv_alloc_pd(context));
  if (!pd) transfer::fail_verbs("ibv_alloc_pd", errno);
  return pd;
}

}  // namespace

Client::Client(transfer::Device& device, transfer::Control control)
    : device_(device),
      control_(std::move(control)),
      peer_(greet(control_, device)),
      provider_(provider_of(device.context())),
      pd_(new_pd(device.context())) {
  fmt::print("requester {}, responder {}\n", name_of(provider_), name_of(peer_.provider));
}

bool Client::run_case(size_t index) {
  const Case& item = all_cases()[index];
  control_.send(kCase, {index});
  Ending seen;
  std::string complaints;
  {
    Attempt attempt(device_, control_, peer_, pd_.get(), &item);
    seen = attempt.make_requests();
    attempt.settle(seen);
    complaints = attempt.complaints.text();
  }
  Verdict verdict = judge(item, provider_, peer_.provider, seen);
  for (const std::string& more : {complaints, run_healthy()}) {
    if (!more.empty()) verdict.complaint += (verdict.complaint.empty() ? "" : "; ") + more;
  }
  if (const char* const reason = reason_to_fail_alone(item, provider_)) {
    verdict.reason += fmt::format("{}{}", verdict.reason.empty() ? "" : "; ", reason);
  }
  const bool ok = verdict.complaint.empty();
  const std::string excuse = verdict.reason.empty() ? "" : " (" + verdict.reason + ")";
  fmt::print("{:<32} {:<17} {:<45} {}\n", item.name, seen.requester_text(), seen.responder_text(),
             ok ? "ok" + excuse : "WRONG: " + verdict.complaint);
  std::fflush(stdout);
  return ok;
}

std::string Client::run_healthy() {
  control_.send(kHealthy, {});
  Attempt attempt(device_, control_, peer_, pd_.get(), nullptr);
  attempt.exchange_healthy();
  return attempt.complaints.text();
}

void Client::finish(uint64_t failed) {
  control_.send(kBye, {failed});
  control_.flush(in_time());
}

}  // namespace uroce::errors
