// SPDX-License-Identifier: BSD-2-Clause
#include "tests/interop/remote_disk/nvme_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <rdma/rdma_verbs.h>

namespace uroce::remote_disk {
namespace {

constexpr auto kAnswerPatience = std::chrono::seconds(60);
constexpr int kResolvePatience = 5000;  // milliseconds
constexpr size_t kCapsule = sizeof(NvmeCommand) + NvmeQueue::kInCapsule, kAnswer = 16;
constexpr size_t kRequestData = 32;                // private data of the connection's request
constexpr uint64_t kReceives = uint64_t{1} << 32;  // in work request numbers

template <typename Pointer>
Pointer* made(Pointer* pointer, const char* what) {
  if (pointer == nullptr) throw Wrong(std::string(what) + ": " + std::strerror(errno));
  return pointer;
}

void check(int result, const char* what) {
  if (result != 0) throw Wrong(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

// --- the connection
// ------------------------------------------------------------------------------------------------------

NvmeQueue::NvmeQueue(const std::string& address, const std::string& port, uint16_t number, uint16_t depth)
    : slots_(depth), memory_(depth * (kCapsule + kAnswer + kLargestCommand)) {
  resolve(address, port);
  make_qp();
  for (size_t i = 0; i < depth; ++i) post_receive(i);
  connect_to(number);
}

NvmeQueue::~NvmeQueue() {
  if (id_ != nullptr) rdma_disconnect(id_.get());
}

void NvmeQueue::DestroyId::operator()(rdma_cm_id* id) const {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

// Without an event channel: each call waits for its event.
void NvmeQueue::resolve(const std::string& address, const std::string& port) {
  rdma_cm_id* id = nullptr;
  check(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  id_.reset(id);
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  check(rdma_getaddrinfo(address.c_str(), port.c_str(), &hints, &found), "rdma_getaddrinfo");
  const int resolved = rdma_resolve_addr(id, nullptr, found->ai_dst_addr, kResolvePatience);
  rdma_freeaddrinfo(found);
  check(resolved, "rdma_resolve_addr");
  check(rdma_resolve_route(id, kResolvePatience), "rdma_resolve_route");
}

void NvmeQueue::make_qp() {
  ibv_context* const context = id_->verbs;
  const auto depth = static_cast<uint32_t>(slots_.size());
  domain_.reset(made(ibv_alloc_pd(context), "ibv_alloc_pd"));
  channel_.reset(made(ibv_create_comp_channel(context), "ibv_create_comp_channel"));
  queue_.reset(made(ibv_create_cq(context, static_cast<int>(2 * depth), nullptr, channel_.get(), 0), "ibv_create_cq"));
  constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  region_.reset(made(ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(), kRights), "ibv_reg_mr"));
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  wanted.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  check(rdma_create_qp(id_.get(), domain_.get(), &wanted), "rdma_create_qp");
}

void NvmeQueue::connect_to(uint16_t number) {
  const auto depth = static_cast<uint16_t>(slots_.size());
  std::array<uint8_t, kRequestData> request{};  // of format 0
  put(request, 2, number);
  put(request, 4, depth);                             // receives
  put(request, 6, static_cast<uint16_t>(depth - 1));  // commands, less one
  rdma_conn_param how{};
  how.private_data = request.data();
  how.private_data_len = static_cast<uint8_t>(request.size());
  how.responder_resources = 16;
  how.retry_count = how.rnr_retry_count = 7;
  if (rdma_connect(id_.get(), &how) != 0) throw Lost(std::string("rdma_connect: ") + std::strerror(errno));
}

void NvmeQueue::disconnect() {
  check(rdma_disconnect(id_.get()), "rdma_disconnect");
  id_.reset();
}

// --- commands
// ------------------------------------------------------------------------------------------------------------

std::span<uint8_t> NvmeQueue::capsule(size_t slot) {
  return std::span(memory_).subspan(slot * kCapsule, kCapsule);
}

std::span<uint8_t> NvmeQueue::answer(size_t receive) {
  return std::span(memory_).subspan(slots_.size() * kCapsule + receive * kAnswer, kAnswer);
}

std::span<uint8_t> NvmeQueue::data(size_t slot) {
  return std::span(memory_).subspan(slots_.size() * (kCapsule + kAnswer) + slot * kLargestCommand, kLargestCommand);
}

// A slot is also in use while its SEND has not completed: it may have to be sent again.
size_t NvmeQueue::take_slot() {
  while (true) {
    const auto found = std::ranges::find_if(slots_, &Slot::free);
    if (found != slots_.end()) return static_cast<size_t>(found - slots_.begin());
    if (const auto answered = handle(next_completion())) early_.push_back(*answered);
  }
}

void NvmeQueue::send_in_capsule(NvmeCommand command, std::span<const uint8_t> data) {
  const size_t slot = take_slot();
  describe_capsule(command, data.size());
  std::ranges::copy(data, capsule(slot).subspan(command.size()).begin());
  post_from(slot, command, data.size(), {});
}

void NvmeQueue::send_with_memory(NvmeCommand command, size_t size, std::span<const uint8_t> copied,
                                 std::span<uint8_t> for_data) {
  const size_t slot = take_slot();
  const auto place = data(slot).first(size);
  std::ranges::fill(place, uint8_t{0x5a});
  std::ranges::copy(copied, place.begin());
  describe_memory(command, reinterpret_cast<uint64_t>(place.data()), size, region_->rkey);
  post_from(slot, command, 0, for_data);
}

void NvmeQueue::post(NvmeCommand command, size_t in_capsule, std::span<uint8_t> for_data) {
  post_from(take_slot(), command, in_capsule, for_data);
}

void NvmeQueue::post_from(size_t slot, NvmeCommand command, size_t in_capsule, std::span<uint8_t> for_data) {
  put(command, 2, static_cast<uint16_t>(slot));  // its number comes back in the answer
  std::ranges::copy(command, capsule(slot).begin());
  ibv_sge bytes{reinterpret_cast<uint64_t>(capsule(slot).data()), static_cast<uint32_t>(command.size() + in_capsule),
                region_->lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = slot;
  request.sg_list = &bytes;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  slots_[slot] = {false, false, for_data};
  ++outstanding_;
  if (ibv_post_send(id_->qp, &request, &bad) != 0) throw Wrong("ibv_post_send");
}

void NvmeQueue::post_receive(size_t receive) {
  ibv_sge bytes{reinterpret_cast<uint64_t>(answer(receive).data()), kAnswer, region_->lkey};
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = kReceives + receive;
  request.sg_list = &bytes;
  request.num_sge = 1;
  if (ibv_post_recv(id_->qp, &request, &bad) != 0) throw Wrong("ibv_post_recv");
}

// --- answers
// -------------------------------------------------------------------------------------------------------------

std::optional<NvmeAnswer> NvmeQueue::handle(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) throw Lost(ibv_wc_status_str(completion.status));
  if (completion.wr_id < kReceives) {
    slots_.at(completion.wr_id).sent = true;
    return std::nullopt;
  }
  const size_t receive = completion.wr_id - kReceives;
  if (completion.byte_len != kAnswer) throw Wrong("an answer of " + std::to_string(completion.byte_len) + " bytes");
  const auto bytes = answer(receive);
  const auto slot = get<uint16_t>(bytes, 12);
  if (slot >= slots_.size() || slots_[slot].answered) throw Wrong("an answer to no command");
  const auto status = static_cast<uint16_t>(get<uint16_t>(bytes, 14) >> 1);
  const NvmeAnswer answered{get<uint64_t>(bytes, 0), status, slot, data(slot), slots_[slot].for_data};
  post_receive(receive);
  return answered;
}

NvmeAnswer NvmeQueue::wait() {
  std::optional<NvmeAnswer> answered;
  if (!early_.empty()) {
    answered = early_.front();
    early_.pop_front();
  }
  while (!answered) answered = handle(next_completion());
  slots_[answered->slot].answered = true;
  --outstanding_;
  return *answered;
}

ibv_wc NvmeQueue::next_completion() {
  for (bool armed = false;; armed = !armed) {
    ibv_wc completion;
    const int came = ibv_poll_cq(queue_.get(), 1, &completion);
    if (came < 0) throw Wrong("ibv_poll_cq");
    if (came == 1) return completion;
    if (armed) {
      wait_for_event();
    } else {
      check(ibv_req_notify_cq(queue_.get(), 0), "ibv_req_notify_cq");
    }
  }
}

// Of the completion queue; the connection has no other one than its end.
void NvmeQueue::wait_for_event() {
  std::array<pollfd, 2> wait{pollfd{channel_->fd, POLLIN, 0}, pollfd{id_->channel->fd, POLLIN, 0}};
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(kAnswerPatience);
  const int ready = poll(wait.data(), wait.size(), static_cast<int>(patience.count()));
  if (ready < 0) throw Wrong("poll");
  if (ready == 0) throw Wrong("neither an answer nor an error");
  if (wait[1].revents != 0) throw Lost("disconnected");
  ibv_cq* queue = nullptr;
  void* of = nullptr;
  check(ibv_get_cq_event(channel_.get(), &queue, &of), "ibv_get_cq_event");
  ibv_ack_cq_events(queue, 1);
}

NvmeAnswer NvmeQueue::ask(const NvmeCommand& command) {
  send(command);
  const NvmeAnswer answered = wait();
  if (answered.status != 0) throw Wrong("a command ends with status " + std::to_string(answered.status));
  return answered;
}

NvmeAnswer NvmeQueue::ask_with_memory(const NvmeCommand& command, size_t size, std::span<const uint8_t> copied) {
  send_with_memory(command, size, copied);
  const NvmeAnswer answered = wait();
  if (answered.status != 0) throw Wrong("a command ends with status " + std::to_string(answered.status));
  return answered;
}

}  // namespace uroce::remote_disk
