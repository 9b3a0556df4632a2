// SPDX-License-Identifier: BSD-2-Clause
#include "cm/local/gsi_qp.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "engine/memory/mr_table.h"
#include "engine/queue/completion_queue.h"
#include "engine/queue/work_queue.h"
#include "engine/transport/common/qp_state.h"

namespace uroce::rdma_cm {
namespace {

using transport::QpState;

constexpr uint32_t kPd = UINT32_MAX;  // of no application: those count up from 1
// As long as the netdev may take to send what waits: a full queue is 1 ms of a network of 1 Gb/s.
constexpr Duration kPatience = std::chrono::milliseconds(100);

}  // namespace

int GsiQp::open(std::shared_ptr<engine::Engine> engine, std::function<void()> arrived, std::unique_ptr<GsiQp>& out) {
  try {
    std::unique_ptr<GsiQp> gsi(new GsiQp(std::move(engine), std::move(arrived)));
    if (const int error = gsi->set_up()) return error;
    out = std::move(gsi);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

GsiQp::GsiQp(std::shared_ptr<engine::Engine> engine, std::function<void()> arrived)
    : engine_(std::move(engine)), cq_(kReceives + kSends, &notifier_), buffers_(kReceives) {
  notifier_.arrived = std::move(arrived);
}

GsiQp::~GsiQp() {
  if (qp_ != nullptr) {
    settle(0);
    engine_->destroy_qp(qp_);
  }
  for (const Address& address : addresses_) engine_->destroy_address(address.handle);
  if (registered_) engine_->deregister_memory(key_);
}

int GsiQp::set_up() {
  memory::MemoryRegion region;
  region.pd = kPd;
  region.base = reinterpret_cast<uint8_t*>(buffers_.data());
  region.iova = reinterpret_cast<uint64_t>(buffers_.data());
  region.length = buffers_.size() * sizeof(Buffer);
  region.access = memory::kLocalWrite;
  if (const int error = engine_->register_memory(region, key_)) return error;
  registered_ = true;
  engine::QpInit init;
  init.type = transport::QpType::kUd;
  init.gsi = true;
  init.pd = kPd;
  init.max_send_wr = kSends;
  init.max_recv_wr = kReceives;
  init.max_inline = wire::kMadSize;
  init.send_cq = init.recv_cq = &cq_;
  if (const int error = engine_->create_qp(init, qp_)) {
    qp_ = nullptr;
    return error;
  }
  return start();
}

int GsiQp::start() {
  using namespace transport;
  QpAttributes attributes;
  attributes.port = 1;
  attributes.qkey = wire::kGsiQkey;
  attributes.state = QpState::kInit;
  if (const int error = engine_->modify_qp(*qp_, attributes, kQpState | kQpPkeyIndex | kQpPort | kQpQkey)) return error;
  for (uint64_t i = 0; i < buffers_.size(); ++i) post_receive(i);
  attributes.state = QpState::kRtr;
  if (const int error = engine_->modify_qp(*qp_, attributes, kQpState)) return error;
  attributes.state = QpState::kRts;
  if (const int error = engine_->modify_qp(*qp_, attributes, kQpState | kQpSqPsn)) return error;
  cq_.arm(queue::CompletionQueue::Arm::kAny);
  return 0;
}

void GsiQp::post_receive(uint64_t index) {
  const queue::Sge sge{reinterpret_cast<uint64_t>(&buffers_[index]), sizeof(Buffer), key_};
  engine::Engine::receive_queue(*qp_).post(index, {&sge, 1});
}

int GsiQp::send(const cm::Datagram& datagram) {
  uint32_t handle = 0;
  if (const int error = address_of(datagram, handle)) return error;
  queue::SendQueue& queue = engine::Engine::send_queue(*qp_);
  queue::SendQueue::Slot slot;
  if (!queue.reserve(0, slot)) {
    settle(kSends / 2);
    if (!queue.reserve(0, slot)) return ENOBUFS;
  }
  *slot.wqe = {};
  slot.wqe->opcode = queue::WrOpcode::kSend;
  slot.wqe->flags = queue::kInline;
  slot.wqe->length = static_cast<uint32_t>(datagram.mad.size());
  slot.wqe->ud = {.address_handle = handle, .remote_qpn = wire::kGsiQpn.value(), .remote_qkey = wire::kGsiQkey};
  std::memcpy(slot.inline_data, datagram.mad.data(), datagram.mad.size());
  queue.publish(1);
  engine_->doorbell(*qp_);
  return 0;
}

// A doorbell may leave the work to another thread, which has the shard's lock just then.
void GsiQp::settle(uint32_t most) {
  const queue::SendQueue& queue = engine::Engine::send_queue(*qp_);
  if (stuck_at_ == queue.tail()) return;
  const Time end = monotonic_now() + kPatience;
  while (queue.head() - queue.tail() > most) {
    if (monotonic_now() > end) {
      stuck_at_ = queue.tail();
      return;
    }
    engine_->progress();
    std::this_thread::yield();
  }
}

int GsiQp::address_of(const cm::Datagram& datagram, uint32_t& handle) {
  const Way way{datagram.source.bytes, datagram.destination.bytes, datagram.flow_label, datagram.traffic_class,
                datagram.hop_limit};
  const auto known = by_way_.find(way);
  if (known != by_way_.end()) {
    addresses_.splice(addresses_.begin(), addresses_, known->second);
    handle = known->second->handle;
    return 0;
  }
  const std::vector<wire::IpAddress> gids = engine_->port_status().gids;
  const auto source = std::find(gids.begin(), gids.end(), datagram.source);
  if (source == gids.end()) return EINVAL;
  transport::AddressVector vector;
  vector.destination = datagram.destination;
  vector.flow_label = datagram.flow_label;
  vector.source_gid_index = static_cast<uint8_t>(source - gids.begin());
  vector.hop_limit = datagram.hop_limit;
  vector.traffic_class = datagram.traffic_class;
  vector.global = true;
  if (const int error = engine_->create_address(vector, handle)) return error;
  if (addresses_.size() >= kMostAddresses) {
    engine_->destroy_address(addresses_.back().handle);
    by_way_.erase(addresses_.back().way);
    addresses_.pop_back();
  }
  addresses_.push_front({way, handle});
  by_way_.emplace(way, addresses_.begin());
  return 0;
}

bool GsiQp::receive(const std::function<void(const cm::Datagram&)>& take) {
  std::array<queue::Cqe, 64> came;
  size_t taken = 0;
  while (taken < kReceives) {
    size_t count = 0;
    cq_.poll(came.size(), [&](const queue::Cqe& cqe) { came[count++] = cqe; });
    if (count == 0) break;
    taken += count;
    for (const queue::Cqe& cqe : std::span(came).first(count)) {
      if (cqe.opcode != queue::WcOpcode::kReceive) continue;
      const std::optional<cm::Datagram> datagram = read(cqe);
      post_receive(cqe.wr_id);
      if (datagram) take(*datagram);
    }
  }
  if (taken >= kReceives) return true;
  cq_.arm(queue::CompletionQueue::Arm::kAny);
  return !cq_.empty();
}

// Whoever sent it has chosen all of it but the addresses' place; its length is checked here, what it says by the
// connection manager.
std::optional<cm::Datagram> GsiQp::read(const queue::Cqe& cqe) const {
  const Buffer& buffer = buffers_[cqe.wr_id];
  if (cqe.status != queue::WcStatus::kSuccess || cqe.byte_length != sizeof(Buffer)) return std::nullopt;
  const auto envelope = wire::parse_grh_area(std::span(buffer).first<wire::kGrhSize>());
  if (!envelope) return std::nullopt;
  cm::Datagram datagram;
  datagram.source_qpn = wire::Qpn(cqe.source_qpn);
  datagram.source = envelope->source;
  datagram.destination = envelope->destination;
  datagram.flow_label = envelope->flow_label;
  datagram.traffic_class = envelope->traffic_class;
  datagram.hop_limit = envelope->hop_limit;
  std::copy_n(buffer.begin() + wire::kGrhSize, datagram.mad.size(), datagram.mad.begin());
  return datagram;
}

}  // namespace uroce::rdma_cm
