// SPDX-License-Identifier: BSD-2-Clause
#include "tests/stress/group.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <utility>

#include "tests/stress/link.h"

namespace uroce::stress {
namespace {

constexpr int kEntries = 2048;

template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) give_up("%s: %s", what, std::strerror(errno));
  return object;
}

void destroyed(int result, const char* what) {
  if (result != 0) give_up("%s: %s", what, std::strerror(result));
}

}  // namespace

Group::Group(ibv_context* context, ibv_pd* pd, Random& random, Totals& totals, Activity& activity)
    : context_(context), pd_(pd), random_(random), totals_(totals), activity_(activity) {
  activity_.at("make a group");
  if (ibv_query_gid(context, 1, 0, &gid_) != 0) give_up("ibv_query_gid: %s", std::strerror(errno));
  make_queues();
  make_shared_queues();
  for (uint32_t i = 0; i < kLinks; ++i) links_.push_back(std::make_unique<Link>(*this, i));
}

Group::~Group() {
  activity_.at("destroy a group");
  check_busy();
  links_.clear();
  destroyed(ibv_destroy_srq(srq_), "ibv_destroy_srq");
  destroyed(ibv_destroy_srq(xrc_srq_), "ibv_destroy_srq of XRC");
  destroyed(ibv_close_xrcd(xrcd_), "ibv_close_xrcd");
  destroyed(ibv_dereg_mr(shared_mr_), "ibv_dereg_mr");
  if (events_taken_ != 0) ibv_ack_cq_events(cq_, events_taken_);
  destroyed(ibv_destroy_cq(cq_), "ibv_destroy_cq");
  destroyed(ibv_destroy_comp_channel(channel_), "ibv_destroy_comp_channel");
  ++totals_.remade;
}

void Group::make_queues() {
  channel_ = made(ibv_create_comp_channel(context_), "ibv_create_comp_channel");
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  if (random_.one_in(2)) {
    cq_ = made(ibv_create_cq(context_, kEntries, this, channel_, 0), "ibv_create_cq");
  } else {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = kEntries;
    attr.cq_context = this;
    attr.channel = channel_;
    attr.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    extended_ = made(ibv_create_cq_ex(context_, &attr), "ibv_create_cq_ex");
    cq_ = ibv_cq_ex_to_cq(extended_);
  }
}

void Group::make_shared_queues() {
  shared_memory_.resize(2 * kSharedReceives * kSlot);
  shared_mr_ =
      made(ibv_reg_mr(pd_, shared_memory_.data(), shared_memory_.size(), IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
  ibv_srq_init_attr plain{};
  plain.attr.max_wr = kSharedReceives;
  plain.attr.max_sge = 1;
  srq_ = made(ibv_create_srq(pd_, &plain), "ibv_create_srq");
  ibv_xrcd_init_attr domain{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  xrcd_ = made(ibv_open_xrcd(context_, &domain), "ibv_open_xrcd");
  ibv_srq_init_attr_ex attr{};
  attr.attr = {kSharedReceives, 1, 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = pd_;
  attr.xrcd = xrcd_;
  attr.cq = cq_;
  xrc_srq_ = made(ibv_create_srq_ex(context_, &attr), "ibv_create_srq_ex");
  for (uint32_t i = 0; i < kSharedReceives; ++i) post_shared_receive(kSharedMark | i);
  for (uint32_t i = 0; i < kSharedReceives; ++i) post_shared_receive(kSharedMark | kXrcMark | (kSharedReceives + i));
}

void Group::post_shared_receive(uint64_t wr_id) {
  ibv_sge sge{reinterpret_cast<uintptr_t>(shared_slot(wr_id)), kSlot, shared_mr_->lkey};
  ibv_recv_wr wr{wr_id, nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv((wr_id & kXrcMark) ? xrc_srq_ : srq_, &wr, &bad);
  if (error != 0) give_up("ibv_post_srq_recv: %s", std::strerror(error));
}

// With QPs on them.
void Group::check_busy() {
  if (ibv_destroy_cq(cq_) != EBUSY) give_up("ibv_destroy_cq: a queue in use goes");
  if (ibv_close_xrcd(xrcd_) != EBUSY) give_up("ibv_close_xrcd: a domain in use goes");
  if (ibv_destroy_comp_channel(channel_) != EBUSY) give_up("ibv_destroy_comp_channel: a channel in use goes");
}

void Group::step() {
  ++steps_;
  links_[random_.below(kLinks)]->step();
  if (random_.one_in(64) && !wait_for_event()) return;
  poll();
}

// True: there may be completions. As applications do: arm, look once more, sleep.
bool Group::wait_for_event() {
  activity_.at("wait for an event");
  if (ibv_req_notify_cq(cq_, 0) != 0) give_up("ibv_req_notify_cq");
  poll();
  pollfd descriptor{channel_->fd, POLLIN, 0};
  if (::poll(&descriptor, 1, 2) != 1) return true;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    if (cq != cq_ || context != this) give_up("ibv_get_cq_event: an event of another queue");
    ++events_taken_;
    ++totals_.events;
  }
  if (random_.one_in(2)) ibv_ack_cq_events(cq_, std::exchange(events_taken_, 0));
  return true;
}

void Group::poll() {
  activity_.at("poll");
  while ((extended_ != nullptr && random_.one_in(2) ? poll_extended() : poll_plain()) != 0) {
  }
}

uint32_t Group::poll_plain() {
  std::array<ibv_wc, 16> wcs;
  const int count = ibv_poll_cq(cq_, 1 + static_cast<int>(random_.below(16)), wcs.data());
  if (count < 0) give_up("ibv_poll_cq: %d", count);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& wc = wcs[static_cast<size_t>(i)];
    take({wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.imm_data, wc.qp_num, wc.wc_flags});
  }
  return static_cast<uint32_t>(count);
}

uint32_t Group::poll_extended() {
  ibv_poll_cq_attr attr{};
  int result = ibv_start_poll(extended_, &attr);
  if (result == ENOENT) return 0;
  if (result != 0) give_up("ibv_start_poll: %s", std::strerror(result));
  // Taken out first: the links post, and that may be a long way round.
  std::vector<Completion> completions;
  for (; result == 0; result = ibv_next_poll(extended_)) {
    completions.push_back({extended_->wr_id, extended_->status, ibv_wc_read_opcode(extended_),
                           ibv_wc_read_byte_len(extended_), ibv_wc_read_imm_data(extended_),
                           ibv_wc_read_qp_num(extended_), ibv_wc_read_wc_flags(extended_)});
    if (ibv_wc_read_completion_ts(extended_) == 0) give_up("ibv_wc_read_completion_ts: 0");
  }
  ibv_end_poll(extended_);
  for (const Completion& completion : completions) take(completion);
  return static_cast<uint32_t>(completions.size());
}

void Group::take(const Completion& completion) {
  const auto found = by_qpn_.find(completion.qpn);
  // What an XRC target delivered belongs to the shared receive queue, and stays when the target goes. Others take their
  // completions along.
  constexpr uint64_t kXrcReceive = kSharedMark | kXrcMark;
  if (found == by_qpn_.end() && (completion.wr_id & kXrcReceive) == kXrcReceive) {
    return post_shared_receive(completion.wr_id);
  }
  if (found == by_qpn_.end()) {
    give_up("a completion of QP %u, which is gone: wr_id %#lx, opcode %d, status %s", completion.qpn,
            static_cast<unsigned long>(completion.wr_id), static_cast<int>(completion.opcode),
            ibv_wc_status_str(completion.status));
  }
  found->second->on_completion(completion);
}

}  // namespace uroce::stress
