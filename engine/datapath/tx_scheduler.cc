// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/tx_scheduler.h"

#include <algorithm>

#include "engine/datapath/run_end.h"
#include "wire/bth.h"
#include "wire/opcode.h"

namespace uroce::engine {

namespace {

// Whether a datagram gets to its destination in one piece. A UD QP takes messages as long as its port allows; the route
// of one of its address handles may allow less. (A connected QP's path MTU was checked against its route.)
bool fits_route(const io::TxPacket& packet, const Path& path) {
  if (path.to == nullptr || path.loopback()) return true;  // this host's loopback takes everything
  const size_t ip_header = path.envelope.destination.is_v4() ? wire::kIpv4Size : wire::kIpv6Size;
  const uint32_t mtu = path.to->route.mtu;
  return mtu == 0 || ip_header + packet.udp_length() <= mtu;
}

// TransportQp::pull_middle_packets() may have packets to go behind it.
bool may_be_repeated(const io::TxPacket& packet) {
  return wire::opcode_info(wire::BthView::at(packet.header.data()).opcode()).is_middle();
}

// What has priority has a class of service of its own (wire.md "ConnectX and DCQCN").
const wire::Envelope* envelope_for(const io::TxPacket& packet, Qp& qp, const Path& path) {
  if (!packet.priority) return &path.envelope;
  qp.cnp_envelope = path.envelope;
  qp.cnp_envelope.traffic_class = wire::kCnpTrafficClass;
  return &qp.cnp_envelope;
}

}  // namespace

TxScheduler::TxScheduler(Tables& tables, uint32_t shard, Counters& counters, Schedule& schedule,
                         NextHopWaits& next_hops)
    : tables_(tables),
      qpns_(tables.qpns[shard]),
      counters_(counters),
      schedule_(schedule),
      next_hops_(next_hops),
      queues_([this](const io::TxPacket& packet) { on_done(packet); }) {}

size_t TxScheduler::transmit_what_is_due() {
  ReadyList& ready = schedule_.ready();
  int budget = kTransmitLimit;
  size_t acks = transmit_acks(schedule_.acks().ahead_of_data());
  while (!ready.empty() && budget > 0) {
    Qp& qp = ready.front();
    const int before = budget;
    const bool room = transmit_quantum(qp, budget);  // where memory runs out in there, the QP is still the first
    qp.ready_hook.unlink();
    schedule_.reschedule(qp, now_);
    if (room && budget == before) qp.ready_hook.unlink();  // had nothing after all; the next event brings it back
    if (!room) break;
  }
  acks += transmit_acks(schedule_.acks().behind_data());
  return static_cast<size_t>(kTransmitLimit - budget) + acks;
}

// False: backpressure.
bool TxScheduler::transmit_quantum(Qp& qp, int& budget) {
  const uint32_t long_payload = this->long_payload(qp);
  qp.transport->allow_long(long_payload);
  const bool in_runs = qp.transport->run() > 1 && long_payload == 0;
  if (in_runs) begin_run(*qp.path.to);
  const size_t quantum = in_runs ? TxBurst::kRun : kQuantum;
  RunEnd end(in_runs ? &queues_.wire().io() : nullptr);
  const io::TxPacket* previous = nullptr;  // the one just pulled, if others like it may follow
  TxBurst* to = nullptr;                   // where it went
  for (size_t pulled = 0; pulled < quantum && !end.reached(); ++pulled) {
    if (previous != nullptr) {
      const size_t most = std::min(quantum - pulled, end.room(previous->udp_length()));
      if (const auto repeated = pull_middle_packets(qp, *previous, most, *to); !repeated.empty()) {
        end.add(previous->udp_length(), repeated.size());
        budget -= static_cast<int>(repeated.size());
        pulled += repeated.size() - 1;
        previous = &repeated.back();
        continue;
      }
    }
    Path* const path = next_path(qp);
    const Reach reach = path == nullptr ? Reach::kNot : next_hops_.reach(*path, qp, now_);
    if (reach == Reach::kLater) {
      next_hops_.wait(qp, *path->to, now_);
      return true;
    }
    TxBurst& queue = path == nullptr ? queues_.wire() : queues_.to(stays_here(qp, *path));
    io::TxPacket* const packet = queue.next();
    if (packet == nullptr) return false;
    previous = nullptr;
    if (!pull(qp, *packet)) return true;
    --budget;
    packet->source_qpn = qp.transport->qpn();
    if (const auto reason = obstacle(*packet, qp, path, reach)) {
      // As if lost on the wire: a retry timer repairs or gives up.
      counters_.add(*reason);
      if (packet->completes) on_done(*packet);
      continue;
    }
    packet->envelope = envelope_for(*packet, qp, *path);
    packet->to_this_host = path->loopback();
    packet->local_delivery = path->local_delivery();
    keep_alone(*packet, *path);
    end.add(packet->udp_length());
    queue.commit();
    to = &queue;
    if (path->envelope.destination.is_multicast()) copy_to_own_group(*packet);
    if (may_be_repeated(*packet)) {
      previous = packet;
    } else if (!end.reached() && qp.transport->exhausted()) {
      return true;
    }
  }
  return !end.reached() || queues_.wire().end_run();
}

void TxScheduler::begin_run(Destination& to) {
  if (!queues_.wire().io().takes_runs(to.address)) to.runs.on_refused(now_);
  queues_.wire().begin_run();
}

// While runs to a destination pause, its packets leave one by one.
void TxScheduler::keep_alone(io::TxPacket& packet, const Path& path) const {
  if (path.to != nullptr && !path.to->runs.allowed(now_)) packet.alone = true;
}

// The packets behind `previous` that go the same way, put into its queue. It holds what it held when it was pulled,
// unless its place is taken again.
std::span<io::TxPacket> TxScheduler::pull_middle_packets(Qp& qp, const io::TxPacket& previous, size_t most,
                                                         TxBurst& queue) {
  std::span<io::TxPacket> places = queue.next(most);
  if (places.empty()) return places;
  const std::ptrdiff_t in_the_way = &previous - places.data();
  if (in_the_way >= 0) places = places.first(std::min(places.size(), static_cast<size_t>(in_the_way)));
  {
    const auto windows = tables_.regions.use_windows();
    places = places.first(qp.transport->pull_middle_packets(previous, places, now_));
  }
  for (io::TxPacket& packet : places) {
    packet.envelope = previous.envelope;
    packet.source_qpn = previous.source_qpn;
    packet.to_this_host = previous.to_this_host;
    packet.local_delivery = previous.local_delivery;
    packet.alone = previous.alone;
    packet.unreadable = false;
  }
  queue.commit(places.size());
  return places;
}

bool TxScheduler::pull(Qp& qp, io::TxPacket& packet) {
  const auto windows = tables_.regions.use_windows();
  return qp.transport->pull(packet, now_);
}

// Where the QP's next packet goes. Null: nowhere, its address handle is gone.
Path* TxScheduler::next_path(Qp& qp) {
  if (!qp.is_ud()) return &qp.path;
  AddressHandle* const handle = tables_.address_handles.find(qp.transport->next_address_handle());
  Destination* const to = handle == nullptr ? nullptr : handle->path.to.get();
  qp.transport->obey(to == nullptr ? nullptr : &to->congestion);
  return handle == nullptr ? nullptr : &handle->path;
}

// The QP's next packet, on its way along `path`, is for a QP of this process.
bool TxScheduler::stays_here(const Qp& qp, const Path& path) const {
  return path.loopback() && tables_.stays_here(path, qp.transport->next_remote());
}

// What one of its packets may carry, if more than its path MTU: it goes to another process of this host.
uint32_t TxScheduler::long_payload(const Qp& qp) {
  if (!qp.path.loopback() || qp.is_ud() || stays_here(qp, qp.path)) return 0;
  return queues_.wire().io().long_payload(qp.transport->next_remote());
}

// Why the packet does not leave.
std::optional<Counter> TxScheduler::obstacle(const io::TxPacket& packet, const Qp& qp, const Path* path, Reach reach) {
  if (path == nullptr) return Counter::kDropNoAddressHandle;
  if (qp.is_ud() && !fits_route(packet, *path)) return Counter::kDropPathMtu;
  if (reach != Reach::kNow) return Counter::kDropNoNeighbour;
  return std::nullopt;
}

// Members of this process get their copies here: what goes out does not come back in. Where other processes of the host
// are members too, the kernel makes copies for all of them.
void TxScheduler::copy_to_own_group(const io::TxPacket& packet) {
  if (tables_.shares_addresses || tables_.groups.members(packet.envelope->destination).empty()) return;
  io::TxPacket* const copy = queues_.loop().next();
  if (copy == nullptr) return;
  *copy = packet;
  copy->completes = false;
  queues_.loop().commit();
}

size_t TxScheduler::transmit_acks(AckList& qps) {
  size_t acks = 0;
  while (!qps.empty()) {
    Qp& qp = qps.front();
    const Reach reach = next_hops_.reach(qp.path, qp, now_);
    if (reach == Reach::kLater) {  // reschedule() brings it back
      qps.pop_front();
      next_hops_.wait(qp, *qp.path.to, now_);
      continue;
    }
    TxBurst& queue = queues_.to(stays_here(qp, qp.path));
    io::TxPacket* const packet = queue.next();
    if (packet == nullptr) break;
    qps.pop_front();
    // Responses go first; the last of them brings the QP back here.
    if (!qp.transport->pull_ack(*packet, now_)) continue;
    packet->envelope = &qp.path.envelope;
    packet->to_this_host = qp.path.loopback();
    packet->local_delivery = qp.path.local_delivery();
    packet->source_qpn = qp.transport->qpn();
    keep_alone(*packet, qp.path);
    if (reach == Reach::kNow) queue.commit();
    ++acks;
  }
  return acks;
}

void TxScheduler::settle_ack(Qp& qp, Time now) {
  if (qp.transport->agenda(now).ack) {
    now_ = now;
    schedule_.acks().put_first(qp);
    transmit_acks(schedule_.acks().ahead_of_data());
  }
  queues_.flush_insistently();
}

void TxScheduler::settle_acks(Time now) {
  now_ = now;
  schedule_.acks().end_waits();
  AckList& acks = schedule_.acks().ahead_of_data();
  do {
    transmit_acks(acks);
    queues_.flush_insistently();
  } while (!acks.empty() && !queues_.backpressured());
}

// The bytes of a packet have been made, or could not be: the application unmapped or protected the memory.
void TxScheduler::on_done(const io::TxPacket& packet) {
  if (packet.unreadable) counters_.add(Counter::kMemoryFaults);
  Qp* const qp = qpns_.find(packet.source_qpn);
  if (qp == nullptr) return;
  if (packet.unreadable) {
    qp->transport->on_unreadable(packet, now_);
  } else {
    qp->transport->on_taken(packet, now_);
  }
  schedule_.reschedule(*qp, now_);
}

}  // namespace uroce::engine
