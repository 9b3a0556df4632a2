// SPDX-License-Identifier: BSD-2-Clause
#include "bench/messages_src/traffic.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>

namespace uroce::messages {
namespace {

// A ring that is larger than the caches would be measured instead of the engine, and nobody is so far behind.
constexpr uint32_t kMostCompletions = 16384;

std::vector<QpPtr> create_qps(const Settings& settings, Device& device, ibv_cq& cq, const ibv_qp_cap& capacity) {
  std::vector<QpPtr> qps(settings.qps_per_thread());
  for (QpPtr& qp : qps) qp = create_qp(device, cq, capacity);
  return qps;
}

void check_completion(const ibv_wc& completion) {
  if (completion.status == IBV_WC_SUCCESS) return;
  throw std::runtime_error(std::string("a work request failed: ") + ibv_wc_status_str(completion.status));
}

}  // namespace

Requester::Requester(const Settings& settings, Device& device, size_t memory, Device& peer)
    : list_(settings.list),
      window_(std::max(settings.window, settings.list)),
      depth_(settings.depth()),
      cq_(device.create_cq(window_)),
      qps_(create_qps(settings, device, *cq_, {depth_, 1, 1, 1, 0})),
      under_way_(qps_.size()),
      sges_(list_),
      requests_(list_),
      meter_(settings.split) {
  for (uint32_t i = 0; i < list_; ++i) {
    const size_t place = memory + size_t{i} * settings.size;
    sges_[i] = {reinterpret_cast<uintptr_t>(device.memory() + place), settings.size, device.key()};
    ibv_send_wr& request = requests_[i];
    request.next = i + 1 < list_ ? &requests_[i + 1] : nullptr;
    request.sg_list = &sges_[i];
    request.num_sge = 1;
    request.opcode = settings.op;
    request.wr.rdma = {reinterpret_cast<uintptr_t>(peer.memory() + place), peer.key()};
  }
  requests_.back().send_flags = IBV_SEND_SIGNALED;
}

void Requester::post_list() {
  requests_.back().wr_id = turn_;
  ibv_send_wr* bad = nullptr;
  ibv_qp* const qp = qps_[turn_].get();
  errno = meter_.post([&] { return ibv_post_send(qp, requests_.data(), &bad); });
  check(errno == 0, "ibv_post_send");
  under_way_[turn_] += list_;
  in_flight_ += list_;
  to_post_ -= list_;
  if (++turn_ == qps_.size()) turn_ = 0;
}

void Requester::complete(const ibv_wc& completion) {
  check_completion(completion);
  under_way_[completion.wr_id] -= list_;
  in_flight_ -= list_;
  to_complete_ -= list_;
}

bool Requester::step() {
  while (to_post_ > 0 && in_flight_ + list_ <= window_ && under_way_[turn_] + list_ <= depth_) post_list();
  ibv_wc completions[kMostPolled];
  const int count = meter_.poll([&] { return ibv_poll_cq(cq_.get(), kMostPolled, completions); });
  for (int i = 0; i < count; ++i) complete(completions[i]);
  return count > 0;
}

// The requester may be a window ahead of the receives that are posted again.
Responder::Responder(const Settings& settings, Device& device, size_t memory)
    : receives_(settings.op == IBV_WR_SEND ? 2 * settings.depth() : 0),
      cq_(device.create_cq(std::clamp(receives_ * settings.qps_per_thread(), 1u, kMostCompletions))),
      qps_(create_qps(settings, device, *cq_, {1, std::max(receives_, 1u), 1, 1, 0})),
      sge_{reinterpret_cast<uintptr_t>(device.memory() + memory), settings.size, device.key()},
      meter_(settings.split) {
  for (ibv_recv_wr& request : requests_) {
    request.sg_list = &sge_;
    request.num_sge = 1;
  }
}

void Responder::post_receives() {
  for (uint64_t qp = 0; qp < qps_.size(); ++qp) {
    for (uint32_t left = receives_; left > 0;) {
      const uint32_t count = std::min(left, kMostPolled);
      post(qp, count);
      left -= count;
    }
  }
}

void Responder::post(uint64_t qp, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    requests_[i].wr_id = qp;
    requests_[i].next = i + 1 < count ? &requests_[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  ibv_qp* const to = qps_[qp].get();
  errno = meter_.post([&] { return ibv_post_recv(to, requests_.data(), &bad); });
  check(errno == 0, "ibv_post_recv");
}

bool Responder::step() {
  ibv_wc completions[kMostPolled];
  const int count = meter_.poll([&] { return ibv_poll_cq(cq_.get(), kMostPolled, completions); });
  for (int first = 0; first < count;) {  // runs of the same QP
    int end = first;
    for (; end < count && completions[end].wr_id == completions[first].wr_id; ++end) {
      check_completion(completions[end]);
    }
    post(completions[first].wr_id, static_cast<uint32_t>(end - first));
    first = end;
  }
  return count > 0;
}

}  // namespace uroce::messages
