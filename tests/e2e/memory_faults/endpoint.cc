// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/memory_faults/endpoint.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>

#include "tests/e2e/memory_faults/failure.h"

namespace uroce::memory_faults {
namespace {

template <class T>
T* made(const char* call, T* object) {
  if (object == nullptr) fail_call(call, errno);
  return object;
}

void done(const char* call, int error) {
  if (error != 0) fail_call(call, error);
}

}  // namespace

// --- device ----------------------------------------------------------------------------------------------------------

Device::Device(const std::string& name, int index) : gid_index(static_cast<uint8_t>(index)) {
  int count = 0;
  ibv_device** const list = made("ibv_get_device_list", ibv_get_device_list(&count));
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context = made("ibv_open_device", ibv_open_device(list[i]));
  }
  ibv_free_device_list(list);
  check(context != nullptr, "no device " + name);
  fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
  done("ibv_query_gid", ibv_query_gid(context, 1, index, &gid));
}

Device::~Device() {
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

std::optional<ibv_async_event> Device::event(int milliseconds) const {
  pollfd waiting{context->async_fd, POLLIN, 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return std::nullopt;
  ibv_async_event event;
  if (ibv_get_async_event(context, &event) != 0) fail_call("ibv_get_async_event", errno);
  ibv_ack_async_event(&event);
  return event;
}

// --- completions -----------------------------------------------------------------------------------------------------

void Outstanding::complete(const ibv_wc& wc) {
  const std::string what = name_ + ", WR " + std::to_string(wc.wr_id) + ", " + ibv_wc_status_str(wc.status);
  check(wc.wr_id == due_ && due_ < next_,
        what + ": WR " + std::to_string(due_) + " of " + std::to_string(next_) + " is due");
  ++due_;
  if (wc.status == IBV_WC_SUCCESS) {
    check(error_ == IBV_WC_SUCCESS, what + ": after an error");
    ++successes_;
  } else if (error_ == IBV_WC_SUCCESS) {
    error_ = wc.status;
  } else {
    check(wc.status == IBV_WC_WR_FLUSH_ERR, what + ": the second error of one queue");
  }
}

void Outstanding::expect_ended(ibv_wc_status error) const {
  check(error_ == error, name_ + ": " + ibv_wc_status_str(error_) + ", not " + ibv_wc_status_str(error));
  check(count() == 0, name_ + ": " + std::to_string(count()) + " WRs have not completed");
}

// --- QP --------------------------------------------------------------------------------------------------------------

Pair::Pair(const Device& device, const Control& control, Drive drive, const Depths& depths)
    : device_(device), drive_(drive) {
  channel_ = made("ibv_create_comp_channel", ibv_create_comp_channel(device.context));
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  send_cq = made("ibv_create_cq", ibv_create_cq(device.context, depths.send_cqes, nullptr, channel_, 0));
  receive_cq = made("ibv_create_cq", ibv_create_cq(device.context, depths.receive_cqes, nullptr, channel_, 0));
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = send_cq;
  init.recv_cq = receive_cq;
  init.cap = {depths.sends, depths.receives, 1, 1, 0};
  qp = made("ibv_create_qp", ibv_create_qp(device.pd, &init));
  connect(control);
}

Pair::~Pair() {
  ibv_destroy_qp(qp);
  ibv_destroy_cq(send_cq);
  ibv_destroy_cq(receive_cq);
  ibv_destroy_comp_channel(channel_);
}

void Pair::connect(const Control& control) {
  struct Address {
    ibv_gid gid;
    uint32_t qpn;
  };
  const Address peer = control.exchange(Address{device_.gid, qp->qp_num});
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qpn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 6;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = device_.gid_index;
  attr.ah_attr.grh.hop_limit = 64;
  modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;  // 67 ms
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  modify(attr,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  control.meet();
}

void Pair::modify(ibv_qp_attr& attr, int mask) const {
  done("ibv_modify_qp", ibv_modify_qp(qp, &attr, mask));
}

void Pair::post(ibv_send_wr wr, ibv_sge sge) {
  wr.wr_id = sends.next_id();
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  done("ibv_post_send", ibv_post_send(qp, &wr, &bad));
  sends.posted();
}

void Pair::post_receive(ibv_sge sge) {
  ibv_recv_wr wr{};
  wr.wr_id = receives.next_id();
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  done("ibv_post_recv", ibv_post_recv(qp, &wr, &bad));
  receives.posted();
}

bool Pair::look(ibv_cq* cq, Outstanding& queue) {
  std::array<ibv_wc, 16> batch;
  const int count = ibv_poll_cq(cq, static_cast<int>(batch.size()), batch.data());
  check(count >= 0, "ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) {
    check(batch[static_cast<size_t>(i)].qp_num == qp->qp_num, "a completion of another QP");
    queue.complete(batch[static_cast<size_t>(i)]);
  }
  return count > 0;
}

bool Pair::look() {
  const bool sent = look(send_cq, sends);
  return look(receive_cq, receives) || sent;
}

void Pair::take() {
  if (look() || drive_ == Drive::kPoll) return;
  for (ibv_cq* cq : {send_cq, receive_cq}) done("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
  if (look()) return;  // came before the arming
  pollfd waiting{channel_->fd, POLLIN, 0};
  poll(&waiting, 1, 1000);  // bounded: the caller may wait for something else as well
  ibv_cq* cq;
  void* context;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
}

void Pair::drain(const Outstanding& queue) {
  for (const Deadline deadline; queue.count() > 0; deadline.check("completions")) take();
}

void Pair::end() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  modify(attr, IBV_QP_STATE);
  drain(sends);
  drain(receives);
}

ibv_qp_state Pair::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  done("ibv_query_qp", ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
  return attr.qp_state;
}

}  // namespace uroce::memory_faults
