// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/server.h"

#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "tests/e2e/transfer/failure.h"

namespace uroce::errors {
namespace {

constexpr int kAllRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kNeverGivenOut = 0x40000000;  // no table of regions is that long

int right_for(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return IBV_ACCESS_REMOTE_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_ACCESS_REMOTE_READ;
    default:
      return IBV_ACCESS_REMOTE_ATOMIC;
  }
}

size_t bad_offset(const Case& item) {
  switch (item.fault) {
    case Fault::kBefore:
      return kBeginsBefore;
    case Fault::kBehind:
      return item.many_packets ? kRegionEnd - kLong + 4 : kEndsBehind;
    case Fault::kMisaligned:
      return kBadAt + 4;
    default:
      return kBadAt;
  }
}

transfer::Verbs<ibv_pd> new_pd(ibv_context* context) {
  transfer::Verbs<ibv_pd> pd(ibv_alloc_pd(context));
  if (!pd) transfer::fail_verbs("ibv_alloc_pd", errno);
  return pd;
}

// What the server has for one case. Destroyed in reverse: the window before its region, the QP before both.
class Stage {
 public:
  Stage(const transfer::Device& device, transfer::Control& control, const Peer& peer, ibv_pd* pd)
      : control_(control), peer_(peer), pd_(pd), pair_(device, pd) {
    open_ = memory_.region(pd, kOpenSlot, 0, kSlotSize, kAllRights);
    receive_ = memory_.region(pd, kReceiveSlot, 0, kSlotSize, IBV_ACCESS_LOCAL_WRITE);
  }

  void make_target(const Case& item, ibv_pd* foreign_pd) {
    int rights = kAllRights;
    if (item.fault == Fault::kNoRight) rights &= ~right_for(item.opcode);
    if (item.fault == Fault::kClosedWindow) rights |= IBV_ACCESS_MW_BIND;
    ibv_pd* const pd = item.fault == Fault::kForeignKey ? foreign_pd : pd_;
    target_ = memory_.region(pd, kTargetSlot, kRegionBegin, kRegionEnd, rights);
    bad_address_ = memory_.address(kTargetSlot, bad_offset(item));
    bad_key_ = target_->rkey;
    if (item.fault == Fault::kUnknownKey) bad_key_ ^= kNeverGivenOut;
    if (item.fault == Fault::kStaleKey) target_.reset();
    if (item.fault == Fault::kClosedWindow) {
      window_.reset(ibv_alloc_mw(pd_, IBV_MW_TYPE_2));
      if (!window_) transfer::fail_verbs("ibv_alloc_mw of type 2", errno);
      bad_key_ = ibv_inc_rkey(window_->rkey);
    }
  }

  void post_receive(uint32_t i, uint32_t length = kPiece) {
    const ibv_sge sge{memory_.address(kReceiveSlot, receive_at(i)), length, receive_->lkey};
    if (const int error = pair_.post_receive(sge); error != 0) transfer::fail_verbs("ibv_post_recv", error);
  }

  void connect(const Case* item) {
    const transfer::Record address = control_.expect(kAddress, 2, in_time());
    control_.send(kTarget,
                  {pair_.qpn(), kStartingPsn, memory_.address(kOpenSlot, 0), open_->rkey, bad_address_, bad_key_});
    pair_.connect({pair_.qpn(), kStartingPsn},
                  {static_cast<uint32_t>(address.words[0]), static_cast<uint32_t>(address.words[1])},
                  parameters(peer_, item));
  }

  // Opens and closes the window, so that nothing but its state is wrong.
  void close_window() {
    ibv_send_wr requests[2] = {};
    requests[0].opcode = IBV_WR_BIND_MW;
    requests[0].bind_mw.mw = window_.get();
    requests[0].bind_mw.rkey = bad_key_;
    requests[0].bind_mw.bind_info = {target_.get(), memory_.address(kTargetSlot, kBadAt), kPiece,
                                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    requests[1].opcode = IBV_WR_LOCAL_INV;
    requests[1].invalidate_rkey = bad_key_;
    for (ibv_send_wr& request : requests) request.send_flags = IBV_SEND_SIGNALED;
    // One after the other: LOCAL_INV may run ahead of a bind that it is not fenced against.
    for (ibv_send_wr& request : requests) {
      if (const int error = pair_.post({&request, 1}); error != 0)
        transfer::fail_verbs("ibv_post_send of a bind", error);
      const ibv_wc* const wc = pair_.wait(pair_.sends) ? pair_.sends.of(pair_.sends.posted - 1) : nullptr;
      if (wc == nullptr || wc->status != IBV_WC_SUCCESS) complaints.add("a window cannot be bound and invalidated");
    }
  }

  // What happens to the QP before the request comes.
  void prepare(const Case& item) {
    switch (item.fault) {
      case Fault::kClosedWindow:
        return close_window();
      case Fault::kPeerError:
        return pair_.move_to(IBV_QPS_ERR);
      case Fault::kPeerReset:
        return pair_.move_to(IBV_QPS_RESET);
      case Fault::kPeerDestroyed:
        return pair_.destroy();
      default:
        return;
    }
  }

  // The client has seen everything complete; what has it done here?
  Ending ending(const Case& item, bool refused, Provider provider) {
    const Ending rule = expected(item);
    Ending seen;
    const bool event_due = rule.event != Ending::kNone && !refused && provider != Provider::kRxe;
    seen.event = pair_.next_event(std::chrono::seconds(event_due ? 5 : 0), complaints);
    seen.responder_state = item.fault == Fault::kPeerDestroyed ? Ending::kNone : static_cast<int>(pair_.state());
    if (seen.responder_state == IBV_QPS_RTS) pair_.move_to(IBV_QPS_ERR);
    const bool flushes = item.fault != Fault::kPeerDestroyed && item.fault != Fault::kPeerReset;
    if (flushes && !pair_.wait(pair_.receives)) complaints.add("the responder's receives are not flushed");
    pair_.poll();
    pair_.check(pair_.receives, "receive", complaints);
    if (flushes && pair_.receives.done.size() != pair_.receives.posted) complaints.add("a receive has not completed");
    if (const ibv_wc* const first = pair_.receives.of(0)) seen.receive = first->status;
    if (pair_.next_event(std::chrono::seconds(0), complaints) >= 0) complaints.add("one more event at the responder");
    return seen;
  }

  void check_memory(const Case& item) {
    if (!item.peer_is_dead())
      memory_.expect(kOpenSlot, kLeadAt, kPiece, kLeadStream, "the WRITE before it", complaints);
    if (item.fault == Fault::kLateReceive) {
      memory_.expect(kReceiveSlot, receive_at(0), kPiece, kBadStream, "what was received", complaints);
    }
    for (const uint32_t i : {0u, kFollowers - 1}) {  // those that are WRITEs
      if (item.fault == Fault::kLateReceive) {
        memory_.expect(kOpenSlot, follower_at(i), kPiece, kFollowerStream, "a WRITE behind it", complaints);
      } else if (item.next_may_run()) {
        memory_.allow(kOpenSlot, follower_at(i), kPiece, kFollowerStream);
      }
    }
    // A message that does not fit may have been begun; it stays in the receive's bounds.
    if (item.opcode == IBV_WR_SEND && (item.fault == Fault::kTooLong || item.local())) {
      memory_.ignore(kReceiveSlot, receive_at(0), item.first_receive());
    }
    // The requester finds that it has no more data when the first packets are sent.
    if (item.local() && item.many_packets) memory_.ignore(kOpenSlot, kBadAt, kLong);
    memory_.expect_untouched(complaints);
  }

  void check_healthy() {
    if (!pair_.wait(pair_.receives)) return complaints.add("a new QP pair does not receive");
    const ibv_wc& wc = *pair_.receives.of(0);
    if (wc.status != IBV_WC_SUCCESS || wc.byte_len != kHealthySize) complaints.add("a new QP pair receives wrongly");
    memory_.expect(kOpenSlot, kHealthyAt, kHealthySize, kHealthyStream, "a WRITE of a new QP pair", complaints);
    memory_.expect(kReceiveSlot, receive_at(0), kHealthySize, kHealthyStream, "a SEND of a new QP pair", complaints);
    memory_.expect_untouched(complaints);
  }

  void tell(const Ending& seen) {
    std::vector<uint64_t> words;
    for (const int value : {seen.event, seen.receive, seen.responder_state})
      words.push_back(static_cast<uint64_t>(value));
    append_text(words, complaints.text());
    control_.send(kOutcome, words);
  }

  Complaints complaints;

 private:
  transfer::Control& control_;
  const Peer& peer_;
  ibv_pd* const pd_;
  Memory memory_{kServerGuard};
  transfer::Verbs<ibv_mr> open_, receive_, target_;
  transfer::Verbs<ibv_mw> window_;
  Pair pair_;
  uint64_t bad_address_ = 0;
  uint32_t bad_key_ = 0;
};

}  // namespace

Server::Server(transfer::Device& device, transfer::Control control)
    : device_(device),
      control_(std::move(control)),
      peer_(greet(control_, device)),
      provider_(provider_of(device.context())),
      pd_(new_pd(device.context())),
      foreign_pd_(new_pd(device.context())) {}

uint64_t Server::run() {
  for (;;) {
    const transfer::Record record = control_.expect_any(in_time());
    if (record.type == kBye && !record.words.empty()) return record.words[0];
    if (record.type == kHealthy) {
      run_healthy();
    } else if (record.type == kCase && !record.words.empty() && record.words[0] < all_cases().size()) {
      run_case(all_cases()[record.words[0]]);
    } else {
      throw transfer::Failure(transfer::ExitCode::kMismatch, "the client says what it should not");
    }
  }
}

void Server::run_case(const Case& item) {
  Stage stage(device_, control_, peer_, pd_.get());
  stage.make_target(item, foreign_pd_.get());
  stage.connect(&item);
  for (uint32_t i = 0; i < item.receives(); ++i) {
    stage.post_receive(i, i == 0 ? item.first_receive() : kPiece);
  }
  stage.prepare(item);
  control_.send(kReady, {});
  if (item.fault == Fault::kLateReceive) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what the case is about
    control_.send(kAbout, {});
    control_.expect(kGo, 0, in_time());
    stage.post_receive(0);
  }
  const bool refused = control_.expect(kDone, 1, in_time()).words[0] != 0;
  const Ending seen = stage.ending(item, refused, provider_);
  stage.check_memory(item);
  stage.tell(seen);
}

void Server::run_healthy() {
  Stage stage(device_, control_, peer_, pd_.get());
  stage.connect(nullptr);
  stage.post_receive(0);
  control_.send(kReady, {});
  control_.expect(kDone, 1, in_time());
  stage.check_healthy();
  stage.tell({});
}

}  // namespace uroce::errors
