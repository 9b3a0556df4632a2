// SPDX-License-Identifier: BSD-2-Clause
#include "bench/verbs_objects.h"

#include <cerrno>
#include <string_view>
#include <system_error>

namespace uroce::bench {
namespace {

constexpr uint8_t kPort = 1;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint8_t kReadsAtATime = 16;
constexpr uint8_t kHopLimit = 64;

ContextPtr open_device(std::string_view name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  check(list != nullptr, "ibv_get_device_list");
  ContextPtr context;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context.reset(ibv_open_device(list[i]));
  }
  ibv_free_device_list(list);
  check(context != nullptr, "ibv_open_device");
  return context;
}

void modify(ibv_qp& qp, ibv_qp_attr attributes, ibv_qp_state state, int mask) {
  attributes.qp_state = state;
  errno = ibv_modify_qp(&qp, &attributes, IBV_QP_STATE | mask);
  check(errno == 0, "ibv_modify_qp");
}

}  // namespace

void check(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

Device::Device(const char* name, size_t memory_size) : memory_(memory_size), context_(open_device(name)) {
  pd_.reset(ibv_alloc_pd(context_.get()));
  check(pd_ != nullptr, "ibv_alloc_pd");
  mr_.reset(ibv_reg_mr(pd_.get(), memory_.data(), memory_.size(), kAccess));
  check(mr_ != nullptr, "ibv_reg_mr");
}

ibv_gid Device::gid() const {
  ibv_gid gid;
  check(ibv_query_gid(context_.get(), kPort, 0, &gid) == 0, "ibv_query_gid");
  return gid;
}

CqPtr Device::create_cq(uint32_t entries) {
  CqPtr cq(ibv_create_cq(context_.get(), static_cast<int>(entries), nullptr, nullptr, 0));
  check(cq != nullptr, "ibv_create_cq");
  return cq;
}

QpPtr create_qp(Device& device, ibv_cq& cq, const ibv_qp_cap& capacity) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = &cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = capacity;
  QpPtr qp(ibv_create_qp(device.pd(), &init));
  check(qp != nullptr, "ibv_create_qp");
  return qp;
}

void connect(ibv_qp& qp, const ibv_gid& peer, uint32_t peer_qpn, ibv_mtu path_mtu) {
  ibv_qp_attr a{};
  a.port_num = a.ah_attr.port_num = kPort;
  a.qp_access_flags = kAccess;
  modify(qp, a, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  a.path_mtu = path_mtu;
  a.dest_qp_num = peer_qpn;
  a.max_dest_rd_atomic = a.max_rd_atomic = kReadsAtATime;
  a.min_rnr_timer = 1;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = peer;
  a.ah_attr.grh.hop_limit = kHopLimit;
  modify(
      qp, a, IBV_QPS_RTR,
      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  a.timeout = 16;
  a.retry_cnt = a.rnr_retry = 7;
  modify(qp, a, IBV_QPS_RTS,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace uroce::bench
