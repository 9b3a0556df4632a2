// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/memory_faults/overrun.h"

#include "tests/e2e/memory_faults/failure.h"

namespace uroce::memory_faults {
namespace {

constexpr uint32_t kRequests = 16;
constexpr size_t kSize = 4096;

// One CQ_ERR for the queue and one QP_FATAL for the QP, whatever is lost; no other event.
void expect_events(const Device& device, const Pair& pair, const ibv_cq* overrun) {
  int cq_errors = 0, qp_errors = 0;
  while (const auto event = device.event(cq_errors > 0 && qp_errors > 0 ? 100 : 10000)) {
    if (event->event_type == IBV_EVENT_CQ_ERR && event->element.cq == overrun) {
      ++cq_errors;
    } else if (event->event_type == IBV_EVENT_QP_FATAL && event->element.qp == pair.qp) {
      ++qp_errors;
    } else {
      throw Failure(std::string("an event that does not belong here: ") + ibv_event_type_str(event->event_type));
    }
  }
  check(cq_errors == 1 && qp_errors == 1,
        std::to_string(cq_errors) + " CQ_ERR and " + std::to_string(qp_errors) + " QP_FATAL instead of one of each");
}

void be_victim(const Device& device, const Control& control, Pair& pair, Region& memory, bool sends) {
  const ibv_cq* const small = sends ? pair.send_cq : pair.receive_cq;
  const auto fit = static_cast<uint64_t>(small->cqe);
  check(fit < kRequests, "the CQ is larger than this test needs it");
  const auto peer = control.exchange(memory.address());
  const auto peer_key = control.exchange(memory.key());
  for (uint32_t i = 0; i < kRequests; ++i) {
    if (!sends) {
      pair.post_receive(memory.sge(0, kSize));
      continue;
    }
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {peer, peer_key};
    pair.post(wr, memory.sge(0, kSize));
  }
  control.meet();
  expect_events(device, pair, small);
  check(pair.state() == IBV_QPS_ERR, "the QP is not in ERR");
  // What fitted is there, in order and good; the rest is lost.
  while (pair.look()) {
  }
  const Outstanding& queue = sends ? pair.sends : pair.receives;
  check(queue.successes() == fit && queue.count() == kRequests - fit,
        std::to_string(queue.successes()) + " completions were kept by a CQ of " + std::to_string(fit));
  control.meet();
}

void be_peer(const Control& control, Pair& pair, Region& memory, bool victim_sends) {
  control.exchange(memory.address());
  control.exchange(memory.key());
  control.meet();
  if (!victim_sends) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    for (uint32_t i = 0; i < kRequests; ++i) pair.post(wr, memory.sge(0, kSize));
    pair.drain(pair.sends);
    // The responder has no completion to give, so it must not acknowledge; whether it says so or falls silent is its
    // choice.
    const ibv_wc_status error = pair.sends.error();
    check(error == IBV_WC_RETRY_EXC_ERR || error == IBV_WC_REM_OP_ERR,
          std::string("the peer of an overrun CQ sees ") + ibv_wc_status_str(error));
    check(pair.sends.successes() < kRequests, "a SEND without completion was acknowledged");
  }
  control.meet();
}

}  // namespace

void run_overrun(const Device& device, const Control& control, Side side, const std::string& queue) {
  const bool sends = queue == "send-cq";
  check(sends || queue == "receive-cq", "no such queue: " + queue);
  Region memory(device.pd, kSize);
  Pair::Depths depths;
  depths.sends = depths.receives = kRequests;
  if (side == Side::kVictim) (sends ? depths.send_cqes : depths.receive_cqes) = 4;
  Pair pair(device, control, Drive::kPoll, depths);
  if (side == Side::kVictim) {
    be_victim(device, control, pair, memory, sends);
  } else {
    be_peer(control, pair, memory, sends);
  }
}

}  // namespace uroce::memory_faults
