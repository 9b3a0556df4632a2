// SPDX-License-Identifier: BSD-2-Clause
#include "tests/cm/lab.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace uroce::cm::test {

wire::IpAddress v4(uint8_t last) {
  const uint8_t four[] = {10, 0, 0, last};
  return wire::IpAddress::v4(four);
}

wire::IpAddress v6(uint8_t last) {
  const uint8_t sixteen[] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return wire::IpAddress::v6(sixteen);
}

wire::IpAddress link_local(uint8_t last) {
  const uint8_t sixteen[] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return wire::IpAddress::v6(sixteen);
}

// --- Lab -------------------------------------------------------------------------------------------------------------

void Lab::carry(const Datagram& datagram) {
  if ((filter && !filter(datagram)) || chance(faults.drop)) return;
  const int copies = chance(faults.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Duration delay = 100us + std::chrono::microseconds(i);
    if (chance(faults.reorder)) {
      delay += std::chrono::nanoseconds(random() % static_cast<uint64_t>(faults.reorder_delay.count()));
    }
    under_way_.emplace(now + delay, datagram);
  }
}

void Lab::deliver(const Datagram& datagram) {
  for (Host* const host : hosts_) {
    if (host->address != datagram.destination) continue;
    Datagram arriving = datagram;
    arriving.ca_guid = host->guid();
    arriving.netdev = static_cast<uint32_t>(host->guid());
    host->receive(arriving);
  }
}

bool Lab::step(Time end) {
  Time next = under_way_.empty() ? kNever : under_way_.begin()->first;
  for (const Host* const host : hosts_) next = std::min(next, host->cm.deadline());
  if (next > end) return false;
  now = std::max(now, next);
  if (!under_way_.empty() && under_way_.begin()->first <= now) {
    const Datagram first = under_way_.begin()->second;
    under_way_.erase(under_way_.begin());
    deliver(first);
    return true;
  }
  for (Host* const host : hosts_) {
    if (host->cm.deadline() <= now) host->cm.on_timer(now);
  }
  return true;
}

void Lab::run_for(Duration time) {
  const Time end = now + time;
  while (step(end)) {
  }
  now = end;
}

void Lab::run_dry(Duration limit) {
  const Time end = now + limit;
  while (step(end)) {
  }
  EXPECT_TRUE(under_way_.empty());
  for (const Host* const host : hosts_) EXPECT_EQ(host->cm.deadline(), kNever) << "a timer that never ends";
}

// --- Host ------------------------------------------------------------------------------------------------------------

Host::Host(Lab& to_lab, wire::IpAddress at, const Limits& limits, uint32_t number)
    : lab(to_lab),
      address(at),
      cm(
          limits, [this] { return static_cast<uint32_t>(lab.random()); }, *this),
      judge(at),
      guid_(wire::Guid{number != 0 ? number : to_lab.hosts_.size() + 1}) {
  lab.hosts_.push_back(this);
}

Host::~Host() {
  lab.hosts_.erase(std::find(lab.hosts_.begin(), lab.hosts_.end(), this));
  const std::string found = judge.finish(lab.now);
  if (found.empty() || !is_judged) return;
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = std::string("cm-") + (test == nullptr ? "seed" : test->name()) + ".pcapng";
  ADD_FAILURE() << found << "\ncapture: " << (judge.write_capture(path) ? path : "cannot be written");
}

void Host::receive(const Datagram& datagram) {
  judge.on_datagram(datagram, false, lab.now);
  cm.on_datagram(datagram, lab.now);
}

void Host::send(const Datagram& datagram) {
  wire::CmMad mad;
  EXPECT_EQ(wire::parse_cm(datagram.mad, mad), wire::CmParseError::kNone);
  EXPECT_EQ(datagram.source, address);
  EXPECT_EQ(datagram.netdev, static_cast<uint32_t>(guid_));
  judge.on_datagram(datagram, true, lab.now);
  if (keeps_sent) sent.push_back({lab.now, datagram, mad});
  lab.carry(datagram);
}

void Host::on_event(const Event& event) {
  if (watch) watch(event);
  events.push_back(event);
}

Id Host::listen(uint16_t port, ClientId client, uint32_t backlog) {
  const Opened opened =
      cm.listen(client, {.service = wire::service_id(wire::PortSpace::kTcp, port), .backlog = backlog});
  EXPECT_EQ(opened.error, 0);
  return opened.id;
}

Id Host::listen_datagrams(uint16_t port, ClientId client) {
  const Opened opened =
      cm.listen(client, {.service = wire::service_id(wire::PortSpace::kUdp, port), .datagrams = true});
  EXPECT_EQ(opened.error, 0);
  return opened.id;
}

Connect Host::connection_to(const Host& other, uint16_t port, Transport transport) {
  const auto space = transport == Transport::kUd ? wire::PortSpace::kUdp : wire::PortSpace::kTcp;
  return {
      .transport = transport,
      .service = wire::service_id(space, port),
      .names =
          wire::CmaHeader{.v4 = address.is_v4(), .source_port = 40000, .source = address, .destination = other.address},
      .path = {.netdev = static_cast<uint32_t>(guid_),
               .ca_guid = guid_,
               .local = address,
               .remote = other.address,
               .flow_label = 0x12345},
      .parameters = {.qpn = wire::Qpn(next_qpn++),
                     .responder_resources = 4,
                     .initiator_depth = 3,
                     .retry_count = 7,
                     .rnr_retry = 6}};
}

Accept Host::acceptance() {
  return {.parameters = {.qpn = wire::Qpn(next_qpn++),
                         .qkey = 0x01234567,
                         .responder_resources = 3,
                         .initiator_depth = 2,
                         .rnr_retry = 5}};
}

Event Host::expect(EventKind kind) {
  if (events.empty()) {
    ADD_FAILURE() << "no event, where one of kind " << static_cast<int>(kind) << " should be";
    return {};
  }
  const Event event = events.front();
  events.pop_front();
  EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind));
  return event;
}

std::string Host::sent_kinds() {
  std::string text;
  for (; seen_ < sent.size(); ++seen_) {
    text += (text.empty() ? "" : " ") + std::string(wire::cm_message_name(sent[seen_].kind()));
  }
  return text;
}

std::string Host::state(Id id) const {
  std::string found;
  cm.list([&](const Listing& listing) {
    if (listing.id == id) found = listing.state;
  });
  return found;
}

std::vector<Id> Host::in_state(const std::string& state) const {
  std::vector<Id> ids;
  cm.list([&](const Listing& listing) {
    if (listing.state == state) ids.push_back(listing.id);
  });
  return ids;
}

// --- Peer ------------------------------------------------------------------------------------------------------------

void Peer::send(const wire::CmMessage& message, uint64_t transaction, uint32_t modifier) {
  target_.receive({.netdev = static_cast<uint32_t>(target_.guid()),
                   .ca_guid = target_.guid(),
                   .source = address,
                   .destination = target_.address,
                   .mad = wire::emit_cm(
                       {.transaction = wire::TransactionId{transaction}, .modifier = modifier, .message = message})});
}

wire::Req Peer::req(Id id, uint16_t port, uint32_t qpn) const {
  wire::Req req;
  req.local_id = id;
  req.service_id = wire::service_id(wire::PortSpace::kTcp, port);
  req.ca_guid = guid;
  req.qpn = wire::Qpn(qpn);
  req.local_response_timeout = 20;
  req.remote_response_timeout = 20;
  req.max_cm_retries = 15;
  req.path_mtu = 3;
  req.primary.local_gid = address;
  req.primary.remote_gid = target_.address;
  req.primary.hop_limit = 64;
  req.primary.ack_timeout = 19;
  wire::CmaHeader{.v4 = address.is_v4(), .source_port = 40001, .source = address, .destination = target_.address}.emit(
      req.private_data.data());
  return req;
}

wire::Rep Peer::rep(Id id, Id remote, uint32_t qpn) const {
  wire::Rep rep;
  rep.local_id = id;
  rep.remote_id = remote;
  rep.ca_guid = guid;
  rep.qpn = wire::Qpn(qpn);
  return rep;
}

wire::Rtu Peer::rtu(Id id, Id remote) {
  wire::Rtu rtu;
  rtu.local_id = id;
  rtu.remote_id = remote;
  return rtu;
}

Pair establish(Lab& lab, Host& from, Host& to, uint16_t port) {
  const Id active = from.connect(to, port);
  lab.settle();
  const Id passive = to.expect(EventKind::kConnectRequest).id;
  EXPECT_EQ(to.accept(passive), 0);
  lab.settle();
  EXPECT_EQ(from.expect(EventKind::kConnectResponse).id, active);
  EXPECT_EQ(from.confirm(active), 0);
  lab.settle();
  EXPECT_EQ(to.expect(EventKind::kEstablished).id, passive);
  return {active, passive};
}

}  // namespace uroce::cm::test
