// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/pair.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <poll.h>

namespace uroce::errors {

using transfer::Role;
using transfer::WorkId;
using Clock = std::chrono::steady_clock;

const ibv_wc* Work::of(uint64_t number) const {
  const auto found = std::find_if(done.begin(), done.end(),
                                  [&](const ibv_wc& wc) { return WorkId::decode(wc.wr_id).number == number; });
  return found == done.end() ? nullptr : &*found;
}

Pair::Pair(const transfer::Device& device, ibv_pd* pd)
    : device_(device),
      completions_(device.context(), kDepth, kDepth, false),
      qp_(std::make_unique<transfer::QueuePair>(pd, completions_, 0,
                                                transfer::QueuePair::Depths{kDepth, kDepth, 1, 0})),
      qpn_(qp_->qpn()) {}

ibv_qp_state Pair::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int rc = ibv_query_qp(qp_->get(), &attr, IBV_QP_STATE, &init); rc != 0) {
    transfer::fail_verbs("ibv_query_qp", rc);
  }
  return attr.qp_state;
}

void Pair::move_to(ibv_qp_state state) const {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  if (const int rc = ibv_modify_qp(qp_->get(), &attr, IBV_QP_STATE); rc != 0) {
    transfer::fail_verbs(fmt::format("ibv_modify_qp to state {}", static_cast<int>(state)), rc);
  }
}

int Pair::post(std::span<ibv_send_wr> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].wr_id = WorkId{Role::kRequest, 0, sends.posted + i}.encode();
    requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_->get(), requests.data(), &bad);
  sends.posted += error == 0 || bad == nullptr ? requests.size() : static_cast<size_t>(bad - requests.data());
  return error > 0 ? error : -error;  // librxe's sign has changed over time
}

int Pair::post_receive(ibv_sge sge) {
  ibv_recv_wr wr{};
  wr.wr_id = WorkId{Role::kReceive, 0, receives.posted}.encode();
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_->get(), &wr, &bad);
  if (error == 0) ++receives.posted;
  return error > 0 ? error : -error;
}

void Pair::poll() {
  completions_.poll(batch_);
  for (const ibv_wc& wc : batch_) {
    (WorkId::decode(wc.wr_id).role == Role::kReceive ? receives : sends).done.push_back(wc);
  }
}

bool Pair::wait(const Work& work) {
  const auto deadline = Clock::now() + kPatience;
  while (work.posted > 0 && work.of(work.posted - 1) == nullptr) {
    if (Clock::now() > deadline) return false;
    poll();
  }
  return true;
}

void Pair::check(const Work& work, const char* name, Complaints& complaints) const {
  uint64_t due = 0;
  bool failed = false;
  for (const ibv_wc& wc : work.done) {
    const WorkId id = WorkId::decode(wc.wr_id);
    const std::string what = fmt::format("{} {} ({})", name, id.number, ibv_wc_status_str(wc.status));
    if (wc.qp_num != qpn_) complaints.add(what + " says it is of another QP");
    if (id.number < due || id.number >= work.posted) complaints.add(what + " is out of order");
    // Only the error that ends the queue and the successes before it may leave out what was not signaled.
    if (failed && id.number != due) complaints.add(what + " comes ahead of those before it");
    if (failed && wc.status != IBV_WC_WR_FLUSH_ERR) complaints.add(what + " is not flushed");
    failed |= wc.status != IBV_WC_SUCCESS;
    due = id.number + 1;
  }
}

int Pair::next_event(std::chrono::milliseconds patience, Complaints& complaints) const {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{device_.context()->async_fd, POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    ibv_async_event event;
    if (ibv_get_async_event(device_.context(), &event) != 0) {
      if (left <= 0) return -1;
      continue;
    }
    const bool ours = qp_ != nullptr && event.element.qp == qp_->get();
    ibv_ack_async_event(&event);
    if (event.event_type > IBV_EVENT_PATH_MIG_ERR && event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED) continue;
    if (event.event_type == IBV_EVENT_COMM_EST || event.event_type == IBV_EVENT_PATH_MIG) continue;
    if (!ours) complaints.add(fmt::format("{} of another QP", ibv_event_type_str(event.event_type)));
    return event.event_type;
  }
}

}  // namespace uroce::errors
