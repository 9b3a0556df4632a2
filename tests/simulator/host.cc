// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/host.h"

#include <algorithm>
#include <utility>

#include "engine/io/closed_io.h"
#include "engine/objects/path.h"

namespace uroce::simulator {

using transport::QpState;

namespace {

// Locally administered.
wire::MacAddress mac_of(const wire::IpAddress& address) {
  return {2, 0, address.bytes[12], address.bytes[13], address.bytes[14], address.bytes[15]};
}

}  // namespace

SimQp::SimQp(Host& host, const QpConfig& config, wire::Qpn qpn)
    : host_(host),
      signal_all(config.signal_all),
      send_cq(config.cq_capacity, config.send_notifier),
      recv_cq(config.cq_capacity, nullptr),
      qp_({.pd = Host::kPd,
           .max_send_wr = config.depth,
           .max_recv_wr = config.depth,
           .max_send_sge = config.max_sge,
           .max_recv_sge = config.max_sge,
           .max_inline = config.max_inline,
           .signal_all = config.signal_all,
           .send_cq = &send_cq,
           .recv_cq = &recv_cq},
          qpn, host.tables_.regions, host.tables_.srqs, host.datapath_.completions(), host.datapath_.counters()) {}

bool SimQp::connect(const wire::IpAddress& peer, uint32_t peer_qpn, transport::QpAttributes a) {
  using namespace transport;
  a.address.destination = peer;
  a.dest_qpn = wire::Qpn(peer_qpn);
  a.port = 1;
  a.state = QpState::kInit;
  if (modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags) != 0) return false;
  a.state = QpState::kRtr;
  if (modify(a, kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                    kQpMinRnrTimer) != 0) {
    return false;
  }
  a.state = QpState::kRts;
  return modify(a, kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic) == 0;
}

int SimQp::modify(const transport::QpAttributes& attributes, uint32_t mask) {
  std::optional<engine::Path> path;
  if (mask & transport::kQpAddressVector) {
    const wire::Qpn remote = (mask & transport::kQpDestQpn) ? attributes.dest_qpn : rc.attributes().dest_qpn;
    path = engine::make_path(attributes.address, host_.destination(attributes.address.destination), rc.qpn(), remote);
  }
  const queue::CompletionBurst::Publisher published(host_.datapath_.completions());
  engine::Qp::Answers answers = engine::Qp::room_for_answers(attributes, mask);
  qp_.remember_answers_in(answers);
  const int error = host_.datapath_.modify(qp_, attributes, mask, std::move(path), host_.events.now());
  const bool working = rc.state() != QpState::kErr && rc.state() != QpState::kReset;
  if (error == 0 && !working && host_.tap_ != nullptr) host_.tap_->on_ended(host_, *this);
  host_.wake();
  return error;
}

int SimQp::modify(QpState state) {
  transport::QpAttributes a;
  a.state = state;
  return modify(a, transport::kQpState);
}

bool SimQp::post(queue::SendWqe wqe, std::span<const queue::Sge> sges, std::span<const uint8_t> inline_bytes) {
  queue::SendQueue::Slot slot;
  if (!sq.reserve(0, slot)) return false;
  if (!inline_bytes.empty()) {
    wqe.flags |= queue::kInline;
    wqe.length = static_cast<uint32_t>(inline_bytes.size());
    std::copy(inline_bytes.begin(), inline_bytes.end(), slot.inline_data);
  }
  wqe.sge_count = static_cast<uint8_t>(sges.size());
  uint64_t length = inline_bytes.size();
  for (const queue::Sge& sge : sges) length += sge.length;
  if (host_.tap_ != nullptr) host_.tap_->on_posted(host_, *this, wqe, length);
  *slot.wqe = wqe;
  std::copy(sges.begin(), sges.end(), slot.sges);
  sq.publish(1);
  ring();
  return true;
}

bool SimQp::post_receive(uint64_t wr_id, std::span<const queue::Sge> sges) {
  if (!rq.post(wr_id, sges)) return false;
  if (rc.state() == QpState::kErr) ring();
  return true;
}

void SimQp::ring() {
  host_.datapath_.ring(qp_);
  host_.wake();
}

std::optional<queue::Cqe> SimQp::poll(queue::CompletionQueue& cq) {
  std::optional<queue::Cqe> result;
  cq.poll(1, [&](const queue::Cqe& cqe) { result = cqe; });
  if (result && &cq == &send_cq && host_.tap_ != nullptr) host_.tap_->on_completed(host_, *result);
  return result;
}

wire::IpAddress Host::address_of(uint16_t number) {
  const uint8_t bytes[4] = {192, 0, static_cast<uint8_t>(kFirstNet + number / 256), static_cast<uint8_t>(number)};
  return wire::IpAddress::v4(bytes);
}

Host::Host(EventQueue& event_queue, uint16_t number, Link& out, Tap* tap, congestion::Algorithm algorithm)
    : events(event_queue),
      number_(number),
      address_(address_of(number)),
      out_(out),
      tap_(tap),
      random_(0x1234567u * (number + 1u)),
      tables_([this] { return random_ = random_ * 1664525 + 1013904223; }),
      datapath_(tables_),
      destinations_(algorithm) {
  Nic::Watcher watcher;
  if (tap_ != nullptr) {
    watcher = [this](Nic::Direction direction, const Frame& frame) {
      tap_->on_frame(*this, direction, frame, events.now());
    };
  }
  auto nic = std::make_unique<Nic>(out_, std::move(watcher));
  nic_ = nic.get();
  datapath_.attach(std::move(nic), nullptr);
  tables_.addresses = {address_};
}

// Nothing is sent any more: who watched the network may be gone.
Host::~Host() {
  datapath_.forget_waiting_packets();
  datapath_.attach(std::make_unique<io::ClosedIo>(*nic_), nullptr);
  const queue::CompletionBurst::Publisher published(datapath_.completions());
  for (const auto& qp : qps_) datapath_.remove(qp->qp_, events.now());
}

SimQp& Host::add_qp(const QpConfig& config) {
  wire::Qpn qpn;
  tables_.qpns[0].take(qpn);
  SimQp& qp = *qps_.emplace_back(std::make_unique<SimQp>(*this, config, qpn));
  tables_.qpns[0].bind(qpn, &qp.qp_);
  datapath_.add(qp.qp_);
  return qp;
}

uint32_t Host::register_memory(void* base, size_t length, uint32_t access) {
  const auto address = reinterpret_cast<uint64_t>(base);
  return mrs.add({.base = static_cast<uint8_t*>(base), .iova = address, .length = length, .access = access, .pd = kPd});
}

// All hosts are neighbours.
std::shared_ptr<engine::Destination> Host::destination(const wire::IpAddress& peer) {
  auto to = destinations_.get(address_, peer);
  if (to->route.next_hop == nullptr) {
    to->route.source_mac = mac_of(address_);
    to->route.next_hop =
        std::make_shared<net::NextHop>(1, peer, net::Neighbour{net::NeighbourState::kUsable, mac_of(peer)});
  }
  return to;
}

void Host::receive(Frame frame) {
  if (frozen) return;
  nic_->arrive(std::move(frame));
  wake();
}

void Host::wake() {
  if (std::exchange(round_wanted_, true)) return;
  events.after(kRound, [this] { round(); });
}

void Host::round() {
  round_wanted_ = false;
  if (frozen) return;
  datapath_.iterate(engine::Datapath::Caller::kPolling, events.now());
  if (application_) application_();
  if (has_work()) {
    wake();
  } else if (datapath_.unfinished()) {
    wait_for_room();
  }
  arm_timer();
}

void Host::wait_for_room() {
  if (std::exchange(waits_for_room_, true)) return;
  events.at(out_.room_at(), [this] {
    waits_for_room_ = false;
    if (has_work()) wake();
  });
}

// The first deadline there is, or one before it: whoever expires then looks again.
void Host::arm_timer() {
  const Time deadline = std::max(datapath_.next_deadline(), events.now() + kRound);
  if (datapath_.next_deadline() == kNever || timer_at_ <= deadline) return;
  timer_at_ = deadline;
  events.at(deadline, [this, deadline] {
    if (timer_at_ != deadline) return;  // an earlier one was armed meanwhile
    timer_at_ = kNever;
    if (datapath_.next_deadline() <= events.now()) {
      wake();
    } else {
      arm_timer();
    }
  });
}

}  // namespace uroce::simulator
