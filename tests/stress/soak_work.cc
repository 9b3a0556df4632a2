// SPDX-License-Identifier: BSD-2-Clause
// The soak's calls that let objects work: work requests right and wrong, state changes, completions, events; and now
// and then a transfer that has to arrive.
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tests/stress/pattern.h"
#include "tests/stress/soak_objects.h"

namespace uroce::stress {
namespace {

// A key that may be right.
uint32_t some_key(Objects& o, bool remote) {
  Object<ibv_mr>* mr = o.mrs.any(o.random);
  Object<ibv_mw>* mw = o.mws.any(o.random);
  if (mr == nullptr || o.random.one_in(6)) return o.random.below(3) + o.stale_keys[o.random.below(3)];
  if (remote && mw != nullptr && o.random.one_in(4)) return mw->verbs->rkey;
  return remote ? mr->verbs->rkey : mr->verbs->lkey;
}

ibv_sge some_sge(Objects& o) {
  const uint64_t at =
      o.random.one_in(12) ? o.random.next() : reinterpret_cast<uintptr_t>(o.arena.data()) + o.random.below(1 << 19);
  return {at, o.random.one_in(12) ? static_cast<uint32_t>(o.random.next()) : o.random.below(5000), some_key(o, false)};
}

struct SendRequest {
  ibv_sge sges[40];
  ibv_send_wr wr{};
};

void fill(Objects& o, ibv_qp_type type, SendRequest& request) {
  Random& random = o.random;
  for (ibv_sge& sge : request.sges) sge = some_sge(o);
  ibv_send_wr& wr = request.wr;
  wr.wr_id = random.next();
  wr.sg_list = request.sges;
  wr.num_sge = static_cast<int>(random.below(4));
  if (random.one_in(15)) wr.num_sge = random.one_in(2) ? -1 : 40;
  const uint32_t opcode = random.below(random.one_in(10) ? 40 : 12);
  wr.opcode = static_cast<ibv_wr_opcode>(opcode);
  wr.send_flags = random.below(32) & ~static_cast<uint32_t>(IBV_SEND_INLINE);
  wr.imm_data = random.one_in(2) ? some_key(o, true) : static_cast<uint32_t>(random.next());
  if (type == IBV_QPT_UD) {
    Object<ibv_ah>* ah = o.ahs.any(random);
    Object<ibv_qp>* peer = o.qps.any(random);
    wr.wr.ud = {ah == nullptr || random.one_in(6) ? nullptr : ah->verbs, peer->verbs->qp_num, 0x11111111};
    return;
  }
  Object<ibv_mw>* mw = o.mws.any(random);
  Object<ibv_mr>* mr = o.mrs.any(random);
  if (opcode == IBV_WR_BIND_MW) {
    wr.bind_mw.mw = mw == nullptr || random.one_in(6) ? nullptr : mw->verbs;
    wr.bind_mw.rkey = mw == nullptr || random.one_in(6) ? some_key(o, true) : ibv_inc_rkey(mw->verbs->rkey);
    wr.bind_mw.bind_info = {mr == nullptr || random.one_in(6) ? nullptr : mr->verbs, request.sges[0].addr,
                            random.below(4096), random.below(random.one_in(8) ? 0x10000 : 16)};
    return;
  }
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.num_sge = 1;
    request.sges[0].length = random.one_in(8) ? random.below(16) : 8;
    wr.wr.atomic = {request.sges[1].addr & (random.one_in(8) ? ~0ull : ~7ull), random.next(), random.next(),
                    some_key(o, true)};
    return;
  }
  wr.wr.rdma = {request.sges[1].addr, some_key(o, true)};
  Object<ibv_srq>* srq = o.xrc_srqs.any(random);
  if (srq != nullptr) ibv_get_srq_num(srq->verbs, &wr.qp_type.xrc.remote_srqn);
  // Inline data is read by the library at once: it has to be there.
  if (random.one_in(4) && wr.num_sge > 0 && wr.num_sge < 4) {
    wr.send_flags |= IBV_SEND_INLINE;
    for (int i = 0; i < wr.num_sge; ++i) {
      request.sges[i].addr = reinterpret_cast<uintptr_t>(o.arena.data());
      request.sges[i].length = random.below(300);
    }
  }
}

void post_send(Objects& o) {
  Object<ibv_qp>* qp = o.qps.any(o.random);
  if (qp == nullptr) return;
  SendRequest requests[3];
  const uint32_t count = 1 + o.random.below(3);
  for (uint32_t i = 0; i < count; ++i) {
    fill(o, qp->verbs->qp_type, requests[i]);
    requests[i].wr.next = i + 1 < count ? &requests[i + 1].wr : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  const int result = ibv_post_send(qp->verbs, &requests[0].wr, &bad);
  if ((result != 0) != (bad != nullptr)) give_up("ibv_post_send: %d with bad_wr %p", result, static_cast<void*>(bad));
  judge(o, "ibv_post_send", result, {EINVAL, ENOMEM, EOPNOTSUPP, EPERM});
}

// With ibv_wr_*: whichever functions the QP has.
void post_extended(Objects& o) {
  Object<ibv_qp>* object = o.qps.any(o.random);
  ibv_qp_ex* qp = object == nullptr ? nullptr : ibv_qp_to_qp_ex(object->verbs);
  if (qp == nullptr) return;
  ibv_wr_start(qp);
  for (uint32_t i = o.random.below(4); i != 0; --i) {
    const ibv_sge sge = some_sge(o);
    qp->wr_id = o.random.next();
    qp->wr_flags = o.random.below(32);
    const uint32_t key = some_key(o, true);
    if (qp->wr_send != nullptr) ibv_wr_send(qp);
    if (qp->wr_send_imm != nullptr) ibv_wr_send_imm(qp, key);
    if (qp->wr_send_inv != nullptr) ibv_wr_send_inv(qp, key);
    if (qp->wr_rdma_write != nullptr) ibv_wr_rdma_write(qp, key, sge.addr);
    if (qp->wr_rdma_write_imm != nullptr) ibv_wr_rdma_write_imm(qp, key, sge.addr, key);
    if (qp->wr_rdma_read != nullptr) ibv_wr_rdma_read(qp, key, sge.addr);
    if (qp->wr_atomic_cmp_swp != nullptr) ibv_wr_atomic_cmp_swp(qp, key, sge.addr, 1, 2);
    if (qp->wr_atomic_fetch_add != nullptr) ibv_wr_atomic_fetch_add(qp, key, sge.addr, 1);
    if (qp->wr_local_inv != nullptr) ibv_wr_local_inv(qp, key);
    if (qp->wr_atomic_write != nullptr) ibv_wr_atomic_write(qp, key, sge.addr, o.arena.data());
    Object<ibv_mw>* mw = o.mws.any(o.random);
    Object<ibv_mr>* mr = o.mrs.any(o.random);
    if (qp->wr_bind_mw != nullptr && mw != nullptr && mr != nullptr) {
      const ibv_mw_bind_info info{mr->verbs, sge.addr, 100, o.random.below(16)};
      ibv_wr_bind_mw(qp, mw->verbs, ibv_inc_rkey(mw->verbs->rkey), &info);
    }
    Object<ibv_ah>* ah = o.ahs.any(o.random);
    if (qp->wr_set_ud_addr != nullptr && ah != nullptr) ibv_wr_set_ud_addr(qp, ah->verbs, key, key);
    if (qp->wr_set_xrc_srqn != nullptr) ibv_wr_set_xrc_srqn(qp, key);
    ibv_sge list[3] = {sge, sge, sge};
    ibv_data_buf buffers[2] = {{o.arena.data(), o.random.below(300)}, {o.arena.data(), o.random.below(300)}};
    switch (o.random.below(5)) {
      case 0:
        ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
        break;
      case 1:
        ibv_wr_set_sge_list(qp, o.random.below(4), list);
        break;
      case 2:
        ibv_wr_set_inline_data(qp, o.arena.data(), o.random.below(600));
        break;
      case 3:
        ibv_wr_set_inline_data_list(qp, 2, buffers);
        break;
      default:
        break;
    }
  }
  if (o.random.one_in(4)) {
    ibv_wr_abort(qp);
  } else {
    judge(o, "ibv_wr_complete", ibv_wr_complete(qp), {EINVAL, ENOMEM, EOPNOTSUPP, EPERM});
  }
}

void bind_type1(Objects& o) {
  Object<ibv_qp>* qp = o.qps.any(o.random);
  Object<ibv_mw>* mw = o.mws.any(o.random);
  Object<ibv_mr>* mr = o.mrs.any(o.random);
  if (qp == nullptr || mw == nullptr || mr == nullptr) return;
  ibv_mw_bind bind{};
  bind.bind_info = {o.random.one_in(6) ? nullptr : mr->verbs, reinterpret_cast<uintptr_t>(o.arena.data()),
                    o.random.below(4096), o.random.below(32)};
  judge(o, "ibv_bind_mw", ibv_bind_mw(qp->verbs, mw->verbs, &bind), {EINVAL, ENOMEM, EOPNOTSUPP, EPERM});
}

void post_receive(Objects& o) {
  Object<ibv_qp>* qp = o.qps.any(o.random);
  Object<ibv_srq>* srq = o.random.one_in(2) ? o.srqs.any(o.random) : o.xrc_srqs.any(o.random);
  ibv_sge sges[40];
  for (ibv_sge& sge : sges) sge = some_sge(o);
  ibv_recv_wr wr{o.random.next(), nullptr, sges, static_cast<int>(o.random.below(4))};
  if (o.random.one_in(15)) wr.num_sge = o.random.one_in(2) ? -1 : 40;
  ibv_recv_wr* bad = nullptr;
  if (qp != nullptr) judge(o, "ibv_post_recv", ibv_post_recv(qp->verbs, &wr, &bad), {EINVAL, ENOMEM, EOPNOTSUPP});
  if (srq != nullptr) judge(o, "ibv_post_srq_recv", ibv_post_srq_recv(srq->verbs, &wr, &bad), {EINVAL, ENOMEM});
}

ibv_qp_attr good_attributes(Objects& o, uint32_t peer) {
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = 0x11111111;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  if (ibv_query_gid(o.contexts[0], 1, 0, &attr.ah_attr.grh.dgid) != 0) give_up("ibv_query_gid");
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  return attr;
}

constexpr int kToInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kToRts = IBV_QP_STATE | IBV_QP_SQ_PSN;

// The next state as applications go there; 0 or an errno value.
int advance(ibv_qp* qp, ibv_qp_attr attr) {
  const bool datagram = qp->qp_type == IBV_QPT_UD, unreliable = qp->qp_type == IBV_QPT_UC || datagram;
  switch (qp->state) {
    case IBV_QPS_RESET:
      attr.qp_state = IBV_QPS_INIT;
      return ibv_modify_qp(qp, &attr, kToInit | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    case IBV_QPS_INIT:
      attr.qp_state = IBV_QPS_RTR;
      if (datagram) return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
      return ibv_modify_qp(qp, &attr, kToRtr | (unreliable ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    default:
      attr.qp_state = IBV_QPS_RTS;
      return ibv_modify_qp(
          qp, &attr,
          kToRts | (unreliable ? 0 : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
  }
}

void modify_qp(Objects& o) {
  Object<ibv_qp>* qp = o.qps.any(o.random);
  if (qp == nullptr) return;
  ibv_qp_attr attr = good_attributes(o, o.qps.any(o.random)->verbs->qp_num);
  const ibv_qp_state before = qp->verbs->state;
  int result;
  if (!o.random.one_in(3)) {
    result = advance(qp->verbs, attr);
  } else {
    attr.qp_state = static_cast<ibv_qp_state>(o.random.below(o.random.one_in(6) ? 300 : 8));
    const int mask = o.random.one_in(2) ? static_cast<int>(o.random.next()) : IBV_QP_STATE;
    // One attribute is nonsense.
    auto* bytes = reinterpret_cast<uint8_t*>(&attr) + sizeof(attr.qp_state);
    bytes[o.random.below(sizeof(attr) - sizeof(attr.qp_state))] ^= static_cast<uint8_t>(o.random.next());
    result = ibv_modify_qp(qp->verbs, &attr, mask);
  }
  judge(o, "ibv_modify_qp", result, {EINVAL, EOPNOTSUPP, ENOMEM, ENETUNREACH, EHOSTUNREACH, ENODATA, ETIMEDOUT});
  if (result != 0 && qp->verbs->state != before) give_up("ibv_modify_qp: failed and changed the state");
}

void query_qp(Objects& o) {
  Object<ibv_qp>* qp = o.qps.any(o.random);
  if (qp == nullptr) return;
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  judge(o, "ibv_query_qp", ibv_query_qp(qp->verbs, &attr, static_cast<int>(o.random.next()), &init), {});
  if (init.qp_type != qp->verbs->qp_type || init.send_cq != qp->verbs->send_cq) give_up("ibv_query_qp: another QP's");
  ibv_ece ece{o.random.below(3), o.random.below(3), o.random.one_in(4) ? 1u : 0u};
  judge(o, "ibv_set_ece", ibv_set_ece(qp->verbs, &ece), {EINVAL, EOPNOTSUPP});
  judge(o, "ibv_query_ece", ibv_query_ece(qp->verbs, &ece), {EOPNOTSUPP});
  ibv_query_qp_data_in_order(qp->verbs, IBV_WR_SEND, 0);
  ibv_gid group{};
  group.raw[10] = group.raw[11] = 0xff;
  group.raw[12] = 239;
  group.raw[15] = static_cast<uint8_t>(o.random.below(4));
  if (o.random.one_in(5)) group.raw[0] = static_cast<uint8_t>(o.random.next());
  judge(o, "ibv_attach_mcast", ibv_attach_mcast(qp->verbs, &group, static_cast<uint16_t>(o.random.below(2))),
        {EINVAL, EOPNOTSUPP, ENOMEM});
  if (o.random.one_in(2)) {
    judge(o, "ibv_detach_mcast", ibv_detach_mcast(qp->verbs, &group, 0), {EINVAL, EOPNOTSUPP, ENOENT});
  }
}

void check_completion(Objects&, ibv_wc_status status, uint32_t vendor_error) {
  if (static_cast<uint32_t>(status) > IBV_WC_TM_RNDV_INCOMPLETE) {
    give_up("a completion with status %u, vendor error %u", static_cast<unsigned>(status), vendor_error);
  }
}

void poll_plain(Objects& o, ibv_cq* cq) {
  ibv_wc wcs[20];
  const int limit = static_cast<int>(o.random.below(22)) - 1;
  const int count = ibv_poll_cq(cq, limit > 20 ? 20 : limit, wcs);
  if (count < 0 && count != -1 && count != -EINVAL) give_up("ibv_poll_cq: %d", count);
  if (count > (limit < 0 ? 0 : limit)) give_up("ibv_poll_cq: %d of %d", count, limit);
  for (int i = 0; i < count; ++i) check_completion(o, wcs[i].status, wcs[i].vendor_err);
}

void poll_extended(Objects& o, ibv_cq_ex* cq) {
  if (cq->start_poll == nullptr) return;
  ibv_poll_cq_attr attr{o.random.one_in(10) ? 1u : 0u};
  int result = ibv_start_poll(cq, &attr);
  if (!judge(o, "ibv_start_poll", result, {ENOENT, EINVAL})) return;
  for (; result == 0; result = ibv_next_poll(cq)) {
    check_completion(o, cq->status, ibv_wc_read_vendor_err(cq));
    ibv_wc_read_opcode(cq);
    ibv_wc_read_wc_flags(cq);
    if (cq->read_byte_len != nullptr) ibv_wc_read_byte_len(cq);
    if (cq->read_imm_data != nullptr) ibv_wc_read_imm_data(cq);
    if (cq->read_qp_num != nullptr) ibv_wc_read_qp_num(cq);
    if (cq->read_src_qp != nullptr) ibv_wc_read_src_qp(cq);
    if (cq->read_slid != nullptr) ibv_wc_read_slid(cq);
    if (cq->read_sl != nullptr) ibv_wc_read_sl(cq);
    if (cq->read_dlid_path_bits != nullptr) ibv_wc_read_dlid_path_bits(cq);
    if (cq->read_completion_ts != nullptr) ibv_wc_read_completion_ts(cq);
    if (cq->read_completion_wallclock_ns != nullptr) ibv_wc_read_completion_wallclock_ns(cq);
    if (cq->read_cvlan != nullptr) ibv_wc_read_cvlan(cq);
    if (cq->read_flow_tag != nullptr) ibv_wc_read_flow_tag(cq);
    if (o.random.one_in(10)) break;
  }
  if (result != 0 && result != ENOENT) give_up("ibv_next_poll: %d", result);
  ibv_end_poll(cq);
}

// Whether it was made as an extended one: ibv_create_cq leaves these slots empty.
void poll(Objects& o) {
  Object<ibv_cq>* cq = o.cqs.any(o.random);
  if (cq == nullptr) return;
  if (o.random.one_in(2)) {
    poll_plain(o, cq->verbs);
  } else {
    poll_extended(o, reinterpret_cast<ibv_cq_ex*>(cq->verbs));
  }
  if (o.random.one_in(4))
    judge(o, "ibv_req_notify_cq", ibv_req_notify_cq(cq->verbs, static_cast<int>(o.random.below(2))), {});
}

void take_events(Objects& o) {
  if (Object<ibv_comp_channel>* channel = o.channels.any(o.random)) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel->verbs, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    if (errno != EAGAIN) give_up("ibv_get_cq_event: %s", std::strerror(errno));
  }
  for (ibv_context* context : o.contexts) {
    ibv_async_event event;
    while (ibv_get_async_event(context, &event) == 0) {
      if (ibv_event_type_str(event.event_type)[0] == '\0') give_up("ibv_event_type_str");
      ibv_ack_async_event(&event);
    }
    if (errno != EAGAIN) give_up("ibv_get_async_event: %s", std::strerror(errno));
  }
}

using Call = void (*)(Objects&);
constexpr Call kCalls[] = {post_send,    post_send, post_send, post_extended, bind_type1, post_receive,
                           post_receive, modify_qp, modify_qp, modify_qp,     modify_qp,  query_qp,
                           poll,         poll,      poll,      take_events};

// Takes the next completion. One that does not come is a failure.
ibv_wc wait(Objects& o, ibv_cq* cq) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ibv_wc wc{};
  int count = 0;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
    o.activity.at("wait for a transfer");
    if (std::chrono::steady_clock::now() > limit) give_up("a transfer hangs");
  }
  if (count != 1 || wc.status != IBV_WC_SUCCESS) give_up("a transfer failed: %s", ibv_wc_status_str(wc.status));
  return wc;
}

}  // namespace

void random_work(Objects& objects) {
  objects.activity.at("work");
  objects.random.of(kCalls)(objects);
}

// Whatever else is going on, RC carries a SEND, a WRITE and a READ unharmed.
void transfer(Objects& o) {
  o.activity.at("transfer");
  std::vector<uint8_t> memory(3 << 16);
  const uint32_t length = 1 + o.random.below(1 << 15);
  ibv_context* const context = o.context();
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_mr* const mr = pd == nullptr ? nullptr : ibv_reg_mr(pd, memory.data(), memory.size(), 7);
  if (cq == nullptr || mr == nullptr) give_up("a transfer cannot be set up: %s", std::strerror(errno));
  ibv_qp_init_attr init{nullptr, cq, cq, nullptr, {8, 8, 1, 1, 0}, IBV_QPT_RC, 1};
  ibv_qp* const a = ibv_create_qp(pd, &init);
  ibv_qp* const b = ibv_create_qp(pd, &init);
  if (a == nullptr || b == nullptr) give_up("ibv_create_qp: %s", std::strerror(errno));
  for (int i = 0; i < 3; ++i) {
    if (advance(a, good_attributes(o, b->qp_num)) != 0 || advance(b, good_attributes(o, a->qp_num)) != 0) {
      give_up("a transfer cannot be connected");
    }
  }
  const uint64_t tag = o.random.next();
  fill_pattern(memory.data(), length, tag);
  const auto base = reinterpret_cast<uintptr_t>(memory.data());
  ibv_sge to{base + (1 << 16), 1 << 16, mr->lkey}, from{base, length, mr->lkey},
      back{base + (2 << 16), length, mr->lkey};
  ibv_recv_wr receive{1, nullptr, &to, 1};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_send_wr read{}, send{};
  send.sg_list = &from;
  read.num_sge = send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.next = &read;
  read.opcode = IBV_WR_RDMA_READ;
  read.send_flags = IBV_SEND_FENCE;
  read.sg_list = &back;
  read.wr.rdma = {base + (1 << 16), mr->rkey};
  ibv_send_wr* bad = nullptr;
  if (ibv_post_recv(b, &receive, &bad_receive) != 0 || ibv_post_send(a, &send, &bad) != 0) give_up("a transfer: post");
  for (int i = 0; i < 3; ++i) wait(o, cq);
  if (check_pattern(memory.data() + (2 << 16), length, tag) != length) give_up("a transfer brought wrong data");
  if (ibv_destroy_cq(cq) != EBUSY || ibv_dealloc_pd(pd) != EBUSY) give_up("an object in use goes");
  if (ibv_destroy_qp(a) != 0 || ibv_destroy_qp(b) != 0 || ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0 ||
      ibv_dealloc_pd(pd) != 0) {
    give_up("what a transfer used does not go");
  }
  ++o.transfers;
}

}  // namespace uroce::stress
