// SPDX-License-Identifier: BSD-2-Clause
// The life of a link: made, connected, disturbed, destroyed.
#include "tests/stress/link.h"

#include <cerrno>
#include <cstring>

namespace uroce::stress {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr uint32_t kQkey = 0x11111111;

ibv_qp_type type_of(Kind kind, bool initiator) {
  switch (kind) {
    case Kind::kUc:
      return IBV_QPT_UC;
    case Kind::kUd:
      return IBV_QPT_UD;
    case Kind::kXrc:
      return initiator ? IBV_QPT_XRC_SEND : IBV_QPT_XRC_RECV;
    default:
      return IBV_QPT_RC;
  }
}

uint64_t send_ops_of(Kind kind) {
  constexpr uint64_t kDatagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t kUnreliable = kDatagram | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  if (kind == Kind::kUd) return kDatagram;
  if (kind == Kind::kUc) return kUnreliable;
  return kUnreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
}

void check(int error, const char* what) {
  if (error != 0) give_up("%s: %s", what, std::strerror(error));
}

}  // namespace

Link::Link(Group& group, uint32_t number) : group_(group), random_(group.random()), number_(number) {
  make();
}

Link::~Link() {
  unmake();
}

bool Link::idle() const {
  if (!requests_.empty() || window_pending_) return false;
  if (failing_) return shared() || receives_done_ == receives_posted_;
  return !reliable() || receives_.empty();
}

void Link::step() {
  group_.activity().at("step of a link");
  if (!idle()) {
    check_stuck();
    if (random_.one_in(400)) {
      unmake();
      make();
    } else if (!failing_ && !requests_.empty() && random_.one_in(400)) {
      fail_both();
    }
    return;
  }
  if (failing_ || random_.one_in(100)) {
    if (poisoned_ && !receives_.empty()) give_up("%zu messages before a refused request are missing", receives_.size());
    unmake();
    make();
  } else if (random_.one_in(20)) {
    reregister();
  } else if (random_.one_in(20)) {
    check_query();
  } else if (kind_ == Kind::kRc && !window_bound_ && random_.one_in(4)) {
    bind_window();
  } else {
    start_round();
  }
  since_ = std::chrono::steady_clock::now();
}

void Link::check_stuck() {
  if (std::chrono::steady_clock::now() - since_ < kPatience) return;
  for (const Request& request : requests_) {
    std::fprintf(stderr, "  request %#lx op %d signaled %d length %u\n", static_cast<unsigned long>(request.wr_id),
                 static_cast<int>(request.op), request.signaled, request.length);
  }
  give_up("link %u of kind %d (QP %u to %u) is stuck: %zu requests, %zu messages to come, receives %u of %u, %s",
          number_, static_cast<int>(kind_), a_->qp_num, b_->qp_num, requests_.size(), receives_.size(), receives_done_,
          receives_posted_, failing_ ? "failing" : "working");
}

void Link::make() {
  group_.activity().at("make a link");
  static std::atomic<uint64_t> generations{0};
  constexpr Kind kKinds[] = {Kind::kRc, Kind::kRc, Kind::kRcShared, Kind::kUc, Kind::kUd, Kind::kXrc};
  kind_ = random_.of(kKinds);
  generation_ = ++generations & 0x3fffffff;
  next_tag_ = generation_ << 32;
  last_tag_received_ = next_tag_;
  receives_posted_ = receives_done_ = busy_write_slots_ = 0;
  failing_ = poisoned_ = window_bound_ = window_pending_ = false;
  requests_.clear();
  receives_.clear();
  make_memory();
  a_ = make_qp(true);
  b_ = make_qp(false);
  group_.add_qp(a_->qp_num, this);
  group_.add_qp(b_->qp_num, this);
  connect(b_, a_);
  connect(a_, b_);
  since_ = std::chrono::steady_clock::now();
  if (kind_ != Kind::kUd) return;
  ibv_ah_attr attr{};
  attr.grh.dgid = group_.gid();
  attr.is_global = 1;
  attr.port_num = 1;
  ah_ = ibv_create_ah(group_.pd(), &attr);
  if (ah_ == nullptr) give_up("ibv_create_ah: %s", std::strerror(errno));
}

void Link::make_memory() {
  memory_.resize((3 * kSlots + 1) * kSlot);
  *cell() = cell_value_ = random_.next();
  mr_ = ibv_reg_mr(group_.pd(), memory_.data(), memory_.size(), kAccess);
  if (mr_ == nullptr) give_up("ibv_reg_mr: %s", std::strerror(errno));
  if (kind_ != Kind::kRc) return;
  window_ = ibv_alloc_mw(group_.pd(), IBV_MW_TYPE_2);
  if (window_ == nullptr) give_up("ibv_alloc_mw: %s", std::strerror(errno));
}

ibv_qp* Link::make_qp(bool initiator) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = type_of(kind_, initiator);
  attr.qp_context = this;
  attr.cap = {2 * kSlots, kSlots, 2, 2, 128};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = group_.pd();
  attr.send_cq = attr.recv_cq = group_.cq();
  if (kind_ == Kind::kRcShared && !initiator) attr.srq = group_.srq();
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    attr = {};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = group_.xrcd();
  }
  const bool extended = initiator && random_.one_in(2);
  if (extended) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = send_ops_of(kind_);
  }
  ibv_qp* qp = ibv_create_qp_ex(group_.context(), &attr);
  if (qp == nullptr) give_up("ibv_create_qp_ex: %s", std::strerror(errno));
  if (initiator) extended_ = extended ? ibv_qp_to_qp_ex(qp) : nullptr;
  return qp;
}

void Link::connect(ibv_qp* qp, ibv_qp* peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const bool datagram = kind_ == Kind::kUd;
  check(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
        "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer->qp_num;
  // Both directions count from the same number, which no earlier QP of this number is likely to have had.
  attr.rq_psn = attr.sq_psn = static_cast<uint32_t>(scramble(generation_)) & 0xffffff;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = group_.gid();
  attr.timeout = 17;
  attr.retry_cnt = attr.rnr_retry = 7;
  const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const int responder = reliable() ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
  const int requester = reliable() ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
  check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | (datagram ? 0 : path | responder)), "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | requester), "to RTS");
}

// Also under way: the memory is nobody's but ours from then on.
void Link::unmake() {
  group_.activity().at("destroy a link");
  if (shared()) group_.lose_receives(static_cast<uint32_t>(receives_.size()));
  group_.remove_qp(a_->qp_num);
  group_.remove_qp(b_->qp_num);
  const bool window_first = random_.one_in(2);
  if (window_ != nullptr && window_first) check(ibv_dealloc_mw(window_), "ibv_dealloc_mw");
  ibv_qp* const first = random_.one_in(2) ? a_ : b_;
  check(ibv_destroy_qp(first), "ibv_destroy_qp");
  check(ibv_destroy_qp(first == a_ ? b_ : a_), "ibv_destroy_qp");
  if (window_ != nullptr && !window_first) check(ibv_dealloc_mw(window_), "ibv_dealloc_mw");
  if (ah_ != nullptr) check(ibv_destroy_ah(ah_), "ibv_destroy_ah");
  check(ibv_dereg_mr(mr_), "ibv_dereg_mr");
  std::memset(memory_.data(), 0, memory_.size());
  a_ = b_ = nullptr;
  ah_ = nullptr;
  mr_ = nullptr;
  window_ = nullptr;
}

void Link::fail_both() {
  failing_ = true;
  poisoned_ = false;  // whether what precedes the refused request still arrives is open now
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  check(ibv_modify_qp(a_, &attr, IBV_QP_STATE), "to ERR");
  check(ibv_modify_qp(b_, &attr, IBV_QP_STATE), "to ERR");
}

void Link::reregister() {
  if (window_bound_) {
    if (ibv_dereg_mr(mr_) != EBUSY) give_up("ibv_dereg_mr: a region with a window on it goes");
    return;
  }
  if (!reliable()) {  // messages may be under way to it
    if (ah_ == nullptr) return;
    check(ibv_destroy_ah(ah_), "ibv_destroy_ah");
    ibv_ah_attr attr{};
    attr.grh.dgid = group_.gid();
    attr.is_global = 1;
    attr.port_num = 1;
    ah_ = ibv_create_ah(group_.pd(), &attr);
    if (ah_ == nullptr) give_up("ibv_create_ah: %s", std::strerror(errno));
    return;
  }
  if (random_.one_in(2)) {
    const int result = ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                                    memory_.data(), memory_.size(), kAccess);
    if (result != 0) give_up("ibv_rereg_mr: %d", result);
    return;
  }
  check(ibv_dereg_mr(mr_), "ibv_dereg_mr");
  mr_ = ibv_reg_mr(group_.pd(), memory_.data(), memory_.size(), kAccess);
  if (mr_ == nullptr) give_up("ibv_reg_mr: %s", std::strerror(errno));
}

// The responder's window, used by the next rounds until one of them invalidates it.
void Link::bind_window() {
  ibv_send_wr wr{};
  wr.wr_id = generation_ << 32 | 3;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window_;
  wr.bind_mw.rkey = ibv_inc_rkey(window_->rkey);
  wr.bind_mw.bind_info = {mr_, reinterpret_cast<uintptr_t>(memory_.data()), memory_.size(),
                          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  ibv_send_wr* bad = nullptr;
  window_pending_ = true;
  check(ibv_post_send(b_, &wr, &bad), "bind");
}

void Link::check_query() {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  check(ibv_query_qp(a_, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), "ibv_query_qp");
  if (attr.qp_state != IBV_QPS_RTS) give_up("ibv_query_qp: state %d", static_cast<int>(attr.qp_state));
  if (init.qp_context != this || init.send_cq != group_.cq()) give_up("ibv_query_qp: another QP's");
}

}  // namespace uroce::stress
