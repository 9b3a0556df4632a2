// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/last_ack/endpoint.h"

#include <cerrno>
#include <cstring>

namespace uroce::last_ack {
namespace {

template <class T>
T* made(const char* call, T* object) {
  check(object != nullptr, std::string(call) + ": " + std::strerror(errno));
  return object;
}

void done(const char* call, int error) {
  check(error == 0, std::string(call) + ": " + std::strerror(error));
}

ibv_context* open(const std::string& name) {
  int count = 0;
  ibv_context* context = nullptr;
  ibv_device** const list = made("ibv_get_device_list", ibv_get_device_list(&count));
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context = made("ibv_open_device", ibv_open_device(list[i]));
  }
  ibv_free_device_list(list);
  check(context != nullptr, "no device " + name);
  return context;
}

}  // namespace

Endpoint::Endpoint(const std::string& device, Wait wait) : wait_(wait), memory_(kLargest) {
  context_ = open(device);
  pd_ = made("ibv_alloc_pd", ibv_alloc_pd(context_));
  mr_ = made("ibv_reg_mr",
             ibv_reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  if (wait == Wait::kEvent) channel_ = made("ibv_create_comp_channel", ibv_create_comp_channel(context_));
  cq_ = made("ibv_create_cq", ibv_create_cq(context_, 4, nullptr, channel_, 0));
}

void Endpoint::modify(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  done("ibv_modify_qp", ibv_modify_qp(qp_, &attr, IBV_QP_STATE));
}

void Endpoint::connect(Shared& shared, Round& round, uint32_t side) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq_;
  init.cap = {1, 1, 1, 1, 0};
  qp_ = made("ibv_create_qp", ibv_create_qp(pd_, &init));
  Side& own = round.sides[side];
  const Side& other = round.sides[1 - side];
  own.qpn = qp_->qp_num;
  own.rkey = mr_->rkey;
  own.memory = reinterpret_cast<uintptr_t>(memory_.data());
  done("ibv_query_gid", ibv_query_gid(context_, 1, 0, &own.gid));
  own.told.store(1);
  wait_for(shared, "the other side", [&] { return other.told.load() == 1; });
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  done("ibv_modify_qp to INIT",
       ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  ibv_sge sge{own.memory, kLargest, mr_->lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  done("ibv_post_recv", ibv_post_recv(qp_, &wr, &bad));
  if (channel_ != nullptr) done("ibv_req_notify_cq", ibv_req_notify_cq(cq_, 0));
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = other.qpn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 6;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = other.gid;
  attr.ah_attr.grh.hop_limit = 64;
  done("ibv_modify_qp to RTR", ibv_modify_qp(qp_, &attr,
                                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 13;  // 34 ms
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  done("ibv_modify_qp to RTS", ibv_modify_qp(qp_, &attr,
                                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
  own.connected.store(1);
  wait_for(shared, "the other side's QP", [&] { return other.connected.load() == 1; });
}

ibv_wc_status Endpoint::send(const Shared& shared, const Side& to, uint32_t size) {
  std::fill_n(memory_.data(), size, uint8_t{1});
  ibv_sge sge{reinterpret_cast<uintptr_t>(memory_.data()), size, mr_->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = wait_ == Wait::kMemory ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = to.memory;
  wr.wr.rdma.rkey = to.rkey;
  done("ibv_post_send", ibv_post_send(qp_, &wr, &bad));
  ibv_wc wc{};
  wait_for(shared, "the completion of what was sent", [&] { return ibv_poll_cq(cq_, 1, &wc) == 1; });
  return wc.status;
}

void Endpoint::receive(const Shared& shared, uint32_t size) {
  if (wait_ == Wait::kMemory) {
    const uint8_t* const last = &memory_[size - 1];
    wait_for(shared, "the last byte", [&] { return __atomic_load_n(last, __ATOMIC_ACQUIRE) == 1; });
    return;
  }
  if (wait_ == Wait::kEvent) {
    ibv_cq* of = nullptr;
    void* context = nullptr;
    done("ibv_get_cq_event", ibv_get_cq_event(channel_, &of, &context));
    ibv_ack_cq_events(cq_, 1);
  }
  ibv_wc wc{};
  wait_for(shared, "the message", [&] { return ibv_poll_cq(cq_, 1, &wc) == 1; });
  check(wc.status == IBV_WC_SUCCESS && wc.byte_len == size,
        std::string("the message: ") + ibv_wc_status_str(wc.status));
}

void Endpoint::destroy_qp() {
  done("ibv_destroy_qp", ibv_destroy_qp(qp_));
}

void Endpoint::close() {
  destroy_qp();
  done("ibv_destroy_cq", ibv_destroy_cq(cq_));
  if (channel_ != nullptr) done("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel_));
  done("ibv_dereg_mr", ibv_dereg_mr(mr_));
  done("ibv_dealloc_pd", ibv_dealloc_pd(pd_));
  done("ibv_close_device", ibv_close_device(context_));
}

void Endpoint::poll_once() {
  ibv_wc wc{};
  check(ibv_poll_cq(cq_, 1, &wc) == 0, "a completion that nobody expects");
}

}  // namespace uroce::last_ack
