// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/rdma_cm/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <rdma/rdma_verbs.h>

namespace uroce::cm_exchange {
namespace {

constexpr size_t kGrh = 40;
constexpr auto kPatience = std::chrono::seconds(60);

struct Place {
  uint64_t address;
  uint32_t key;
  uint32_t length;
};

}  // namespace

void fail_errno(const std::string& what) {
  throw Wrong(what + ": " + std::strerror(errno));
}

Channel::Channel() : channel_(rdma_create_event_channel()) {
  if (channel_ == nullptr) fail_errno("rdma_create_event_channel");
}

Channel::~Channel() {
  rdma_destroy_event_channel(channel_);
}

Event Channel::next(std::chrono::seconds patience) {
  pollfd wait{channel_->fd, POLLIN, 0};
  const int ready = poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(patience).count()));
  check(ready == 1, "no event comes");
  rdma_cm_event* came = nullptr;
  if (rdma_get_cm_event(channel_, &came) != 0) fail_errno("rdma_get_cm_event");
  Event event{came->event, came->status, came->id, came->listen_id, {}, came->param.conn, came->param.ud};
  const bool datagrams = came->id->qp_type == IBV_QPT_UD;
  const void* const data = datagrams ? came->param.ud.private_data : came->param.conn.private_data;
  const size_t size = datagrams ? came->param.ud.private_data_len : came->param.conn.private_data_len;
  if (data != nullptr) event.data.assign(static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size);
  rdma_ack_cm_event(came);
  return event;
}

Event Channel::expect(rdma_cm_event_type type, const rdma_cm_id* id) {
  Event event = next();
  check(event.type == type, std::string("not ") + rdma_event_str(type) + " but " + rdma_event_str(event.type) +
                                ", status " + std::to_string(event.status));
  check(id == nullptr || event.id == id, std::string(rdma_event_str(type)) + " of another id");
  return event;
}

void DestroyId::operator()(rdma_cm_id* id) const {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

Memory::Memory(rdma_cm_id* id) : id_(id), in_(kMessage + kGrh), out_(kMessage), shared_(kMessage) {
  ibv_qp_init_attr wanted{};
  wanted.qp_type = id->qp_type;
  wanted.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  wanted.sq_sig_all = 1;
  if (rdma_create_qp(id, nullptr, &wanted) != 0) fail_errno("rdma_create_qp");
  in_region_ = ibv_reg_mr(id->pd, in_.data(), in_.size(), IBV_ACCESS_LOCAL_WRITE);
  out_region_ = ibv_reg_mr(id->pd, out_.data(), out_.size(), 0);
  shared_region_ = ibv_reg_mr(id->pd, shared_.data(), shared_.size(), IBV_ACCESS_REMOTE_READ);
  if (in_region_ == nullptr || out_region_ == nullptr || shared_region_ == nullptr) fail_errno("ibv_reg_mr");
}

Memory::~Memory() {
  if (in_region_ != nullptr) ibv_dereg_mr(in_region_);
  if (out_region_ != nullptr) ibv_dereg_mr(out_region_);
  if (shared_region_ != nullptr) ibv_dereg_mr(shared_region_);
}

void Memory::post_receive() {
  if (rdma_post_recv(id_, nullptr, in_.data(), in_.size(), in_region_) != 0) fail_errno("rdma_post_recv");
}

ibv_wc Memory::wait(ibv_cq* queue) const {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  ibv_wc completion{};
  while (true) {
    const int count = ibv_poll_cq(queue, 1, &completion);
    check(count >= 0, "ibv_poll_cq fails");
    if (count == 1) break;
    check(std::chrono::steady_clock::now() < end, "no completion comes");
  }
  check(completion.status == IBV_WC_SUCCESS, std::string("a completion says ") + ibv_wc_status_str(completion.status));
  return completion;
}

void Memory::send(const std::vector<uint8_t>& bytes) {
  std::copy(bytes.begin(), bytes.end(), out_.begin());
  if (rdma_post_send(id_, nullptr, out_.data(), bytes.size(), out_region_, 0) != 0) fail_errno("rdma_post_send");
  wait(id_->send_cq);
}

void Memory::send_datagram(const rdma_ud_param& to, const std::vector<uint8_t>& bytes) {
  ibv_ah_attr attributes = to.ah_attr;
  ibv_ah* const handle = ibv_create_ah(id_->pd, &attributes);
  if (handle == nullptr) fail_errno("ibv_create_ah");
  std::copy(bytes.begin(), bytes.end(), out_.begin());
  ibv_sge piece{reinterpret_cast<uint64_t>(out_.data()), static_cast<uint32_t>(bytes.size()), out_region_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.wr.ud = {handle, to.qp_num, to.qkey};
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id_->qp, &request, &bad);
  check(error == 0, "ibv_post_send fails");
  wait(id_->send_cq);
  ibv_destroy_ah(handle);
}

void Memory::read(const std::vector<uint8_t>& place) {
  Place there{};
  check(place.size() >= sizeof(there), "no place");
  std::memcpy(&there, place.data(), sizeof(there));
  check(there.length <= in_.size(), "a place that is too large");
  std::fill(in_.begin(), in_.end(), uint8_t{0});
  if (rdma_post_read(id_, nullptr, in_.data(), there.length, in_region_, 0, there.address, there.key) != 0) {
    fail_errno("rdma_post_read");
  }
  wait(id_->send_cq);
}

std::vector<uint8_t> Memory::share(const std::vector<uint8_t>& bytes) {
  std::copy(bytes.begin(), bytes.end(), shared_.begin());
  const Place here{reinterpret_cast<uint64_t>(shared_.data()), shared_region_->rkey,
                   static_cast<uint32_t>(bytes.size())};
  std::vector<uint8_t> place(sizeof(here));
  std::memcpy(place.data(), &here, sizeof(here));
  return place;
}

std::vector<uint8_t> Memory::receive() {
  const ibv_wc completion = wait(id_->recv_cq);
  const size_t head = id_->qp_type == IBV_QPT_UD ? kGrh : 0;
  check(completion.byte_len >= head && completion.byte_len <= in_.size(), "a receive of a wrong length");
  return {in_.begin() + static_cast<ptrdiff_t>(head), in_.begin() + completion.byte_len};
}

}  // namespace uroce::cm_exchange
