// SPDX-License-Identifier: BSD-2-Clause
// What a device says of itself to who looks on (device/device_statistics.h). Nothing is counted for this: it costs
// while somebody looks.
#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/concat.h"
#include "engine/device/device.h"
#include "engine/device/device_statistics.h"
#include "engine/engine.h"

namespace uroce::engine {

namespace {

// QP numbers that are gone through while everybody else waits.
constexpr uint32_t kNumbersAtOnce = 512;
constexpr size_t kQpsAtOnce = 64;

constexpr std::pair<const char*, uint64_t io::IoCounters::*> kIoCounters[] = {
    {"rx_packets", &io::IoCounters::rx_packets},
    {"rx_bytes", &io::IoCounters::rx_bytes},
    {"drop_malformed", &io::IoCounters::rx_malformed},
    {"drop_wrong_netdev", &io::IoCounters::rx_wrong_netdev},
    {"drop_forged", &io::IoCounters::rx_forged},
    {"drop_too_long", &io::IoCounters::rx_too_long},
    {"drop_no_buffer", &io::IoCounters::rx_no_buffer},
    {"tx_packets", &io::IoCounters::tx_packets},
    {"tx_bytes", &io::IoCounters::tx_bytes},
    {"rx_by_memory", &io::IoCounters::rx_by_memory},
    {"tx_by_memory", &io::IoCounters::tx_by_memory},
    {"drop_tx_unread", &io::IoCounters::tx_unread},
    {"tx_stalls", &io::IoCounters::tx_stalls},
    {"rx_runs", &io::IoCounters::rx_runs},
    {"rx_run_packets", &io::IoCounters::rx_run_packets},
    {"tx_runs", &io::IoCounters::tx_runs},
    {"tx_run_packets", &io::IoCounters::tx_run_packets},
    {"tx_run_refusals", &io::IoCounters::tx_run_refusals},
    {"tx_backpressure", &io::IoCounters::tx_backpressure},
    {"drop_tx_errors", &io::IoCounters::tx_errors},
    {"kick_errors", &io::IoCounters::kick_errors},
    {"ring_errors", &io::IoCounters::ring_errors},
    {"capture_dropped", &io::IoCounters::capture_dropped},
};

// "kDropBadIcrc" -> "drop_bad_icrc"
std::string name_of(Counter counter) {
  std::string name;
  for (const char* c = Counters::name(counter) + 1; *c != '\0'; ++c) {
    const auto letter = static_cast<unsigned char>(*c);
    if (std::isupper(letter) != 0 && !name.empty()) name += '_';
    name += static_cast<char>(std::tolower(letter));
  }
  return name;
}

const char* name_of(transport::QpType type) {
  using transport::QpType;
  switch (type) {
    case QpType::kRc:
      return "rc";
    case QpType::kUc:
      return "uc";
    case QpType::kUd:
      return "ud";
    case QpType::kXrcInitiator:
      return "xrc_initiator";
    default:
      return "xrc_target";
  }
}

const char* name_of(transport::QpState state) {
  constexpr std::array kNames{"reset", "init", "rtr", "rts", "sqd", "sqe", "err"};
  return kNames[static_cast<size_t>(state)];
}

// As much of a QP as is copied while everybody waits.
struct SeenQp {
  uint32_t qpn;
  transport::QpType type;
  transport::QpState state;
  uint32_t peer_qpn;
  wire::IpAddress peer;
  transport::TransportQp::Position position;
  uint32_t posted_sends, posted_receives;
};

SeenQp look_at(const Qp& qp) {
  const transport::TransportQp& transport = *qp.transport;
  const transport::QpAttributes& attributes = transport.attributes();
  return {.qpn = transport.qpn().value(),
          .type = transport.type(),
          .state = transport.state(),
          .peer_qpn = attributes.dest_qpn.value(),
          .peer = attributes.address.destination,
          .position = transport.position(),
          .posted_sends = qp.sq.head() - qp.sq.tail(),
          .posted_receives = qp.rq.available()};
}

QpStatistics described(const SeenQp& qp) {
  const bool connected = qp.type != transport::QpType::kUd && qp.state >= transport::QpState::kRtr;
  return {.qpn = qp.qpn,
          .type = name_of(qp.type),
          .state = name_of(qp.state),
          .peer_qpn = connected ? qp.peer_qpn : 0,
          .peer = connected && !qp.peer.is_unspecified() ? qp.peer.text() : std::string(),
          .sent = qp.position.sent.value(),
          .received = qp.position.received.value(),
          .posted_sends = qp.posted_sends,
          .posted_receives = qp.posted_receives};
}

// All QPs of a shard, a few at a time, so that packets wait for microseconds only. `each` is called without the lock.
template <class F>
void for_each_qp(Device& device, uint32_t shard, F&& each) {
  std::array<SeenQp, kQpsAtOnce> seen;
  uint32_t index = 0;
  bool more = true;
  while (more) {
    size_t count = 0;
    {
      Progress::Guard guard(device.progress);
      const QpnSpace& space = device.tables.qpns[shard];
      const uint32_t end = std::min(index + kNumbersAtOnce, space.count());
      for (; index < end && count < seen.size(); ++index) {
        if (const Qp* const qp = space.at(index)) seen[count++] = look_at(*qp);
      }
      more = index < space.count();
    }
    for (size_t i = 0; i < count; ++i) each(seen[i]);
  }
}

}  // namespace

std::optional<DeviceStatistics> Engine::statistics(uint32_t most_qps) {
  const std::optional<io::IoCounters> io = device_->io_counters();
  if (!io) return std::nullopt;
  DeviceStatistics statistics;
  statistics.netdev = device_->name();
  statistics.name = concat("uroce_", device_->name());  // unless the user calls it otherwise, which the process knows
  statistics.packet_io = device_->packet_io();
  for (const auto& [name, value] : kIoCounters) statistics.counters[name] = (*io).*value;
  const CounterSums sums = counters();
  for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
    const auto counter = static_cast<Counter>(i);
    statistics.counters[name_of(counter)] = sums.get(counter);
  }
  for (uint32_t shard = 0; shard < device_->progress.shard_count(); ++shard) {
    for_each_qp(*device_, shard, [&](const SeenQp& qp) {
      ++statistics.qp_counts[{name_of(qp.type), name_of(qp.state)}];
      if (statistics.qps.size() < most_qps) statistics.qps.push_back(described(qp));
    });
  }
  return statistics;
}

bool Engine::has_received(uint32_t number) {
  const wire::Qpn qpn(number);
  Progress::Guard guard(device_->progress);
  const Qp* const qp = device_->tables.qpns[io::shard_of(qpn, device_->progress.shard_count())].find(qpn);
  return qp != nullptr && qp->transport->state() >= transport::QpState::kRtr &&
         qp->transport->position().received != qp->transport->attributes().rq_psn;
}

}  // namespace uroce::engine
