// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/data_in_order/endpoint.h"

#include <array>
#include <cerrno>
#include <cstring>

namespace uroce::data_in_order {
namespace {

template <class T>
T* made(const char* call, T* object) {
  check(object != nullptr, std::string(call) + ": " + std::strerror(errno));
  return object;
}

void done(const char* call, int error) {
  check(error == 0, std::string(call) + ": " + std::strerror(error));
}

ibv_mtu mtu_value(int bytes) {
  for (int value = IBV_MTU_256; value <= IBV_MTU_4096; ++value) {
    if (128 << value == bytes) return static_cast<ibv_mtu>(value);
  }
  throw Failure("no path MTU: " + std::to_string(bytes));
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

Endpoint::Endpoint(const Settings& settings, Shared& shared, uint32_t side)
    : settings_(settings), shared_(shared), side_(side), memory_(kSlots * kSlotSize + kLine) {
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
  first_ = memory_.data() + (kLine - begin % kLine) % kLine;
  context_ = open(settings.device);
  pd_ = made("ibv_alloc_pd", ibv_alloc_pd(context_));
  mr_ = made("ibv_reg_mr", ibv_reg_mr(pd_, memory_.data(), memory_.size(),
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  cq_ = made("ibv_create_cq", ibv_create_cq(context_, 4 * kSlots, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq_;
  init.cap = {kSlots, kSlots, 1, 2, 0};
  qp_ = made("ibv_create_qp", ibv_create_qp(pd_, &init));
}

Endpoint::~Endpoint() {
  ibv_destroy_qp(qp_);
  ibv_destroy_cq(cq_);
  ibv_dereg_mr(mr_);
  ibv_dealloc_pd(pd_);
  ibv_close_device(context_);
}

void Endpoint::modify(ibv_qp_attr& attr, int mask) {
  done("ibv_modify_qp", ibv_modify_qp(qp_, &attr, mask));
}

void Endpoint::connect() {
  const auto nothing = [] {};
  Shared::Side& own = shared_.sides[side_];
  const Shared::Side& other = shared_.sides[1 - side_];
  own.address = {{}, qp_->qp_num, mr_->rkey, reinterpret_cast<uintptr_t>(first_)};
  done("ibv_query_gid", ibv_query_gid(context_, 1, settings_.gid_index, &own.address.gid));
  own.told.store(1);
  wait_for(
      shared_, "the other side", [&] { return other.told.load() == 1; }, nothing);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_value(settings_.path_mtu);
  attr.dest_qp_num = other.address.qpn;
  attr.max_dest_rd_atomic = kSlots;
  attr.min_rnr_timer = 6;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = other.address.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(settings_.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;  // 67 ms
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = kSlots;
  modify(attr,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  own.connected.store(1);
  wait_for(
      shared_, "the other side's QP", [&] { return other.connected.load() == 1; }, nothing);
}

void Endpoint::post(const Message& m, ibv_wr_opcode opcode) {
  const Address& other = shared_.sides[1 - side_].address;
  ibv_sge sge{reinterpret_cast<uintptr_t>(bytes(m)), m.size, mr_->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = m.number;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = other.memory + m.slot() * kSlotSize + m.offset;
  wr.wr.rdma.rkey = other.rkey;
  done("ibv_post_send", ibv_post_send(qp_, &wr, &bad));
}

void Endpoint::receive(const Message& m) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes(m));
  const uint32_t front = m.size / 3;
  ibv_sge sges[2] = {{begin, front, mr_->lkey}, {begin + front, m.size - front, mr_->lkey}};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = m.number;
  wr.sg_list = sges;
  wr.num_sge = 2;
  done("ibv_post_recv", ibv_post_recv(qp_, &wr, &bad));
}

void Endpoint::poll() {
  std::array<ibv_wc, kSlots> completions;
  const int count = ibv_poll_cq(cq_, completions.size(), completions.data());
  check(count >= 0, "ibv_poll_cq");
  for (int i = 0; i < count; ++i) {
    const ibv_wc& wc = completions[static_cast<size_t>(i)];
    const uint32_t due = completed_.load(std::memory_order_relaxed);
    check(wc.status == IBV_WC_SUCCESS, "message " + std::to_string(wc.wr_id) + ": " + ibv_wc_status_str(wc.status));
    check(wc.wr_id == due, "message " + std::to_string(wc.wr_id) + " is complete, " + std::to_string(due) + " is due");
    completed_.store(due + 1, std::memory_order_release);
  }
}

int Endpoint::data_in_order(Operation operation) const {
  constexpr std::array kOpcodes = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ};
  return ibv_query_qp_data_in_order(qp_, kOpcodes[static_cast<size_t>(operation)], 0);
}

}  // namespace uroce::data_in_order
