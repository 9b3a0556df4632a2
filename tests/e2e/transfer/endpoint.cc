// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

constexpr unsigned kNumberBits = 44;
constexpr unsigned kQpBits = 12;

// A handle that cannot be given back is a defect of the provider; the run has its verdict by then, so it is only said.
void destroyed(int rc, const char* call) {
  if (rc != 0)
    fmt::print(stderr, "{}: {} failed: {}\n", program_invocation_short_name, call, std::strerror(rc > 0 ? rc : errno));
}

void set_nonblocking(int fd) {
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) fail_verbs("fcntl(O_NONBLOCK) on a verbs fd", errno);
}

ibv_mtu mtu_code(uint32_t bytes) {
  unsigned code = IBV_MTU_256;
  for (uint32_t mtu = 256; mtu < bytes; mtu *= 2) ++code;
  return static_cast<ibv_mtu>(code);
}

ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) fail_verbs("ibv_get_device_list", errno);
  ibv_context* context = nullptr;
  int error = 0;
  std::string names;
  for (int i = 0; i < count && context == nullptr && error == 0; ++i) {
    const std::string device = ibv_get_device_name(list[i]);
    names += " " + device;
    if (!name.empty() && name != device) continue;
    context = ibv_open_device(list[i]);
    if (context == nullptr) error = errno;
  }
  ibv_free_device_list(list);
  if (error != 0) fail_verbs("ibv_open_device", error);
  if (context == nullptr) {
    throw Failure(ExitCode::kUsage,
                  name.empty() ? "there is no RDMA device" : fmt::format("no device '{}'; there are:{}", name, names));
  }
  return context;
}

template <typename Wr>
[[noreturn]] void fail_post(const char* call, int error, const Wr* bad) {
  const std::string at = bad == nullptr ? "it does not say which" : "the " + WorkId::decode(bad->wr_id).describe();
  throw Failure(ExitCode::kMismatch, fmt::format("{} failed, {}: {}", call, at, std::strerror(error)));
}

bool is_harmless(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return true;
    default:
      return false;
  }
}

}  // namespace

void VerbsDeleter::operator()(ibv_context* p) const {
  destroyed(ibv_close_device(p), "ibv_close_device");
}
void VerbsDeleter::operator()(ibv_pd* p) const {
  destroyed(ibv_dealloc_pd(p), "ibv_dealloc_pd");
}
void VerbsDeleter::operator()(ibv_mr* p) const {
  destroyed(ibv_dereg_mr(p), "ibv_dereg_mr");
}
void VerbsDeleter::operator()(ibv_mw* p) const {
  destroyed(ibv_dealloc_mw(p), "ibv_dealloc_mw");
}
void VerbsDeleter::operator()(ibv_comp_channel* p) const {
  destroyed(ibv_destroy_comp_channel(p), "ibv_destroy_comp_channel");
}
void VerbsDeleter::operator()(ibv_cq* p) const {
  destroyed(ibv_destroy_cq(p), "ibv_destroy_cq");
}
void VerbsDeleter::operator()(ibv_qp* p) const {
  destroyed(ibv_destroy_qp(p), "ibv_destroy_qp");
}

void fail_verbs(const std::string& call, int error) {
  throw Failure(ExitCode::kUsage, fmt::format("{} failed: {}", call, std::strerror(error)));
}

Device::Device(const std::string& name, int gid_index)
    : context_(open_device(name)), gid_index_(static_cast<uint8_t>(gid_index)) {
  if (const int rc = ibv_query_device(context(), &attributes_); rc != 0) fail_verbs("ibv_query_device", rc);
  ibv_port_attr port{};
  if (const int rc = ibv_query_port(context(), kPort, &port); rc != 0) fail_verbs("ibv_query_port", rc);
  if (port.state != IBV_PORT_ACTIVE) throw Failure(ExitCode::kUsage, "the port is not active");
  active_mtu_ = 128u << port.active_mtu;
  if (ibv_query_gid(context(), kPort, gid_index, &gid_) != 0) {
    fail_verbs(fmt::format("ibv_query_gid of index {}", gid_index), errno);
  }
  set_nonblocking(context()->async_fd);
}

Provider provider_of(const ibv_context* context) {
  const std::string_view name = ibv_get_device_name(context->device);
  if (name.starts_with("uroce_")) return Provider::kUroce;
  return name.starts_with("rxe") ? Provider::kRxe : Provider::kOther;
}

std::string Device::unexpected_events(bool port_changes) {
  std::string text;
  ibv_async_event event;
  while (ibv_get_async_event(context(), &event) == 0) {
    if (!is_harmless(event.event_type) && !(port_changes && event.event_type == IBV_EVENT_PORT_ERR))
      text += fmt::format("{}{}", text.empty() ? "" : ", ", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
  }
  return text;
}

RegisteredMemory::RegisteredMemory(ibv_pd* pd, uint64_t slots, size_t slot_size, uint64_t guard_key, int access)
    : memory(slots, slot_size, guard_key),
      mr(ibv_reg_mr(pd, memory.bytes().data(), memory.bytes().size(), static_cast<unsigned>(access))) {
  if (!mr) fail_verbs(fmt::format("ibv_reg_mr of {} bytes", memory.bytes().size()), errno);
}

WorkId WorkId::decode(uint64_t wr_id) {
  return {static_cast<Role>(wr_id >> 56), static_cast<uint32_t>(wr_id >> kNumberBits & ((1u << kQpBits) - 1)),
          wr_id & ((1ull << kNumberBits) - 1)};
}

std::string WorkId::describe() const {
  const char* what = role == Role::kRequest   ? "request"
                     : role == Role::kReceive ? "receive"
                     : role == Role::kBind    ? "window bind"
                                              : "wr_id of nobody, read as";
  return fmt::format("{} for message {} of qp {}", what, number, qp);
}

Completions::Completions(ibv_context* context, int send_depth, int receive_depth, bool events) {
  if (events) {
    channel_.reset(ibv_create_comp_channel(context));
    if (!channel_) fail_verbs("ibv_create_comp_channel", errno);
    set_nonblocking(channel_->fd);
  }
  const std::array<int, 2> depths = {send_depth, receive_depth};
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].cq.reset(ibv_create_cq(context, depths[i], &queues_[i], channel_.get(), 0));
    if (!queues_[i].cq) fail_verbs(fmt::format("ibv_create_cq of {} entries", depths[i]), errno);
  }
}

void Completions::drain(Queue& queue, std::vector<ibv_wc>& out) {
  std::array<ibv_wc, 16> batch;
  int count;
  while ((count = ibv_poll_cq(queue.cq.get(), static_cast<int>(batch.size()), batch.data())) > 0) {
    out.insert(out.end(), batch.begin(), batch.begin() + count);
  }
  if (count < 0) throw Failure(ExitCode::kMismatch, fmt::format("ibv_poll_cq returned {}", count));
}

void Completions::arm(Queue& queue) {
  if (const int rc = ibv_req_notify_cq(queue.cq.get(), 0); rc != 0) fail_verbs("ibv_req_notify_cq", rc);
  ++queue.arms;
}

void Completions::take_events() {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  while (ibv_get_cq_event(channel_.get(), &cq, &cq_context) == 0) {
    auto* queue = static_cast<Queue*>(cq_context);
    const bool ours = queue == &queues_[0] || queue == &queues_[1];
    if (!ours || queue->cq.get() != cq) throw Failure(ExitCode::kMismatch, "an event names a CQ that is not ours");
    ibv_ack_cq_events(cq, 1);
    queue->ready = true;
    if (++queue->events > queue->arms)
      throw Failure(ExitCode::kMismatch, "a CQ gave more events than it was armed for");
  }
  if (errno != EAGAIN) fail_verbs("ibv_get_cq_event", errno);
}

void Completions::poll(std::vector<ibv_wc>& out) {
  out.clear();
  if (!channel_) {
    for (Queue& queue : queues_) drain(queue, out);
    return;
  }
  take_events();
  for (Queue& queue : queues_) {
    if (!queue.ready) continue;
    drain(queue, out);
    arm(queue);
    // What arrived between the last poll and the arming raises no event.
    drain(queue, out);
    queue.ready = false;
  }
}

size_t Completions::count_without_event() {
  std::vector<ibv_wc> found;
  for (Queue& queue : queues_) drain(queue, found);
  return found.size();
}

QueuePair::QueuePair(ibv_pd* pd, const Completions& completions, uint32_t index, const Depths& depths) : index_(index) {
  ibv_qp_init_attr init{};
  init.send_cq = completions.send_cq();
  init.recv_cq = completions.receive_cq();
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 0;
  init.cap = {depths.sends, depths.receives, depths.pieces, depths.pieces, depths.inline_bytes};
  qp_.reset(ibv_create_qp(pd, &init));
  if (!qp_) {
    fail_verbs(fmt::format("ibv_create_qp (send depth {}, receive depth {}, {} SGEs, {} bytes inline)", depths.sends,
                           depths.receives, depths.pieces, depths.inline_bytes),
               errno);
  }
  const ibv_qp_cap& cap = init.cap;
  if (cap.max_send_wr < depths.sends || cap.max_recv_wr < depths.receives || cap.max_send_sge < depths.pieces ||
      cap.max_recv_sge < depths.pieces || cap.max_inline_data < depths.inline_bytes) {
    throw Failure(ExitCode::kMismatch, "ibv_create_qp succeeded but reports less than was asked for");
  }
}

void QueuePair::connect(const Device& device, QueuePairAddress local, QueuePairAddress remote,
                        const ConnectionParameters& p) {
  const auto modify = [this](ibv_qp_attr& attr, int mask, const char* what) {
    if (const int rc = ibv_modify_qp(qp_.get(), &attr, mask); rc != 0) {
      fail_verbs(fmt::format("ibv_modify_qp to {}", what), rc);
    }
  };
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = Device::kPort;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");

  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_code(p.mtu);
  attr.dest_qp_num = remote.qpn;
  attr.rq_psn = remote.psn;
  attr.max_dest_rd_atomic = p.responder_depth;
  attr.min_rnr_timer = p.rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = Device::kPort;
  attr.ah_attr.grh.dgid = p.remote_gid;
  attr.ah_attr.grh.sgid_index = device.gid_index();
  attr.ah_attr.grh.hop_limit = 64;
  modify(attr,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         "RTR");

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = p.ack_timeout;
  attr.retry_cnt = p.retry_count;
  attr.rnr_retry = p.rnr_retry;
  attr.sq_psn = local.psn;
  attr.max_rd_atomic = p.initiator_depth;
  modify(attr,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");

  ibv_qp_init_attr init{};
  if (const int rc = ibv_query_qp(qp_.get(), &attr, IBV_QP_STATE, &init); rc != 0) fail_verbs("ibv_query_qp", rc);
  if (attr.qp_state != IBV_QPS_RTS) throw Failure(ExitCode::kMismatch, "ibv_query_qp does not report RTS");
}

void QueuePair::post_send(ibv_send_wr* chain) {
  for (const ibv_send_wr* wr = chain; wr != nullptr; wr = wr->next) {
    sends_.push_back({wr->wr_id, (wr->send_flags & IBV_SEND_SIGNALED) != 0});
  }
  ibv_send_wr* bad = nullptr;
  if (const int rc = ibv_post_send(qp_.get(), chain, &bad); rc != 0) fail_post("ibv_post_send", rc, bad);
}

void QueuePair::post_receive(ibv_recv_wr* chain) {
  for (const ibv_recv_wr* wr = chain; wr != nullptr; wr = wr->next) receives_.push_back({wr->wr_id, true});
  ibv_recv_wr* bad = nullptr;
  if (const int rc = ibv_post_recv(qp_.get(), chain, &bad); rc != 0) fail_post("ibv_post_recv", rc, bad);
}

std::vector<QueuePair::Retired> QueuePair::retire(const ibv_wc& wc) {
  const WorkId id = WorkId::decode(wc.wr_id);
  std::deque<Outstanding>& queue = id.role == Role::kReceive ? receives_ : sends_;
  const auto fail = [&](const std::string& what) {
    throw Failure(ExitCode::kMismatch, fmt::format("completion of the {}: {}", id.describe(), what));
  };
  if (wc.qp_num != qpn()) fail(fmt::format("qp_num is {:#x}, not {:#x}", wc.qp_num, qpn()));
  if (wc.status != IBV_WC_SUCCESS) {
    fail(fmt::format("status {} ({}), vendor error {:#x}", static_cast<int>(wc.status), ibv_wc_status_str(wc.status),
                     wc.vendor_err));
  }
  const auto match = std::find_if(queue.begin(), queue.end(), [&](const auto& o) { return o.wr_id == wc.wr_id; });
  if (match == queue.end()) fail("nothing of that name is outstanding: completed twice, or never posted");
  if (!match->signaled) fail("it was posted unsignaled");
  std::vector<Retired> retired;
  for (auto o = queue.begin(); o != match; ++o) {
    if (o->signaled) fail(fmt::format("out of order: the {} is due first", WorkId::decode(o->wr_id).describe()));
    retired.push_back({WorkId::decode(o->wr_id), nullptr});
  }
  retired.push_back({id, &wc});
  queue.erase(queue.begin(), match + 1);
  return retired;
}

}  // namespace uroce::transfer
