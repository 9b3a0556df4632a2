// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/oracle.h"

#include <algorithm>

#include "oracle/cm_judge.h"
#include "oracle/connection_table.h"
#include "oracle/packet.h"

namespace uroce::oracle {

class Oracle::Impl {
 public:
  explicit Impl(const Options& o)
      : options(o), findings(o.kept_violations), connections(findings, options), cm(findings, options, connections) {}

  void judge(PacketState state, bool out);
  bool is_local(const wire::IpAddress& address) const {
    return std::find(locals.begin(), locals.end(), address) != locals.end();
  }
  const Options options;
  Findings findings;
  ConnectionTable connections;
  CmJudge cm;
  std::vector<wire::IpAddress> locals;
  bool locals_named = false;
  uint64_t packets = 0;
  uint64_t last_number = 0;
  Time last_time{};
  Packet packet;  // reused
  std::vector<Packet::Finding> found;

 private:
  void judge_form(Connection* connection);
};

// What every packet has to keep, whether it belongs to a connection or not.
void Oracle::Impl::judge_form(Connection* connection) {
  found.clear();
  packet.judge(found);
  for (Packet::Finding& finding : found) {
    const ConnectionName name = connection != nullptr ? connection->name()
                                                      : ConnectionName{.local = packet.envelope().source,
                                                                       .remote = packet.envelope().destination};
    findings.add({.packet = packet.number(),
                  .time = packet.time(),
                  .rule = finding.rule,
                  .connection = name,
                  .text = std::move(finding.text)});
  }
}

void Oracle::Impl::judge(PacketState state, bool out) {
  const bool reliable = packet.has_bth() && wire::opcode_info(packet.bth().opcode).known &&
                        wire::opcode_info(packet.bth().opcode).transport == wire::Transport::kRc;
  if (!reliable) {
    if (out) judge_form(nullptr);
    if (state == PacketState::kUsable) cm.on_packet(packet, out);
    return;
  }
  const wire::IpAddress& local = out ? packet.envelope().source : packet.envelope().destination;
  const wire::IpAddress& remote = out ? packet.envelope().destination : packet.envelope().source;
  Connection* connection = connections.find(local, remote, packet.bth().dest_qp, out);
  if (out) judge_form(connection);
  if (state != PacketState::kUsable) {
    // Where it says that it goes need not be true.
    if (connection != nullptr && state == PacketState::kUnusable && !out) connection->on_unusable(packet);
    return;
  }
  if (connection == nullptr) {
    connection = &connections.add_direction(local, remote, packet.bth().dest_qp, out);
    if (out && connections.any_declared()) {
      findings.add({.packet = packet.number(),
                    .time = packet.time(),
                    .rule = Rule::kDestination,
                    .connection = connection->name(),
                    .text = "no QP of this host is connected to that one"});
    }
  }
  if (!packet.info().request && !connection->paired()) {
    connection = &connections.pair(*connection, packet.bth().psn, out);
  }
  connection->on_packet(packet, out);
}

Oracle::Oracle(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
Oracle::~Oracle() = default;

void Oracle::add_local(const wire::IpAddress& address) {
  impl_->locals_named = true;
  if (!impl_->is_local(address)) impl_->locals.push_back(address);
}

void Oracle::declare(const wire::IpAddress& local, wire::Qpn local_qpn, const wire::IpAddress& remote,
                     wire::Qpn remote_qpn, const Attributes& attributes) {
  add_local(local);
  impl_->connections.declare({.local = local, .remote = remote, .local_qpn = local_qpn, .remote_qpn = remote_qpn},
                             attributes);
}

void Oracle::ended(wire::Qpn local_qpn) {
  if (Connection* connection = impl_->connections.declared(local_qpn)) connection->end();
}

void Oracle::add(const pcapng::Record& record) {
  Impl& impl = *impl_;
  impl.last_number = record.number;
  impl.last_time = record.time;
  const PacketState state = impl.packet.parse(record);
  if (state == PacketState::kForeign) return;
  if (!impl.locals_named && record.direction == pcapng::Direction::kOut &&
      !impl.is_local(impl.packet.envelope().source)) {
    impl.locals.push_back(impl.packet.envelope().source);
  }
  const bool out = record.direction != pcapng::Direction::kIn && impl.is_local(impl.packet.envelope().source);
  const bool in = record.direction != pcapng::Direction::kOut && impl.is_local(impl.packet.envelope().destination);
  if (out || in) ++impl.packets;
  if (out) impl.judge(state, true);
  if (in) impl.judge(state, false);
}

void Oracle::posted(wire::Qpn local_qpn, uint64_t wr_id, bool signaled, WorkKind kind, uint64_t length) {
  if (Connection* connection = impl_->connections.declared(local_qpn))
    connection->posted(wr_id, signaled, kind, length);
}

void Oracle::completed(wire::Qpn local_qpn, uint64_t wr_id, Outcome outcome) {
  if (Connection* connection = impl_->connections.declared(local_qpn)) {
    connection->completed(wr_id, outcome, impl_->last_number, impl_->last_time);
  }
}

void Oracle::finish(Time end) {
  for (const auto& connection : impl_->connections.all()) connection->finish(end);
  impl_->cm.finish(end);
}

const std::vector<Violation>& Oracle::violations() const {
  return impl_->findings.violations();
}
uint64_t Oracle::violation_count() const {
  return impl_->findings.count();
}
uint64_t Oracle::error_count() const {
  return impl_->findings.errors();
}
uint64_t Oracle::packet_count() const {
  return impl_->packets;
}

std::vector<ConnectionSummary> Oracle::summary() const {
  std::vector<ConnectionSummary> all;
  for (const auto& connection : impl_->connections.all()) {
    if (!connection->unused()) all.push_back(connection->summary());
  }
  return all;
}

std::vector<CmSummary> Oracle::cm_summary() const {
  return impl_->cm.summary();
}

}  // namespace uroce::oracle
