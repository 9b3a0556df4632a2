// SPDX-License-Identifier: BSD-2-Clause
// A connection manager with small limits among hostile peers: any MAD, and messages that name ids that are there, in
// any order with the commands of two clients and with time that passes.
//
// The input is a list of operations, each a byte (modulo the number of Operation) and what it reads behind it.
//
// Checked: what leaves is a message of the connection manager to a host that can be answered; a MAD brings two answers
// at the most; each id has events of its own client only, none twice, one end, none after it was destroyed; no more ids
// than the limits allow; timers end; when the clients are gone, nothing is left.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "cm/connection_manager.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"

namespace uroce::fuzz {
namespace {

using cm::Id;

constexpr cm::ClientId kClients[] = {cm::ClientId{1}, cm::ClientId{2}};
constexpr cm::Limits kLimits{.ids = 24,
                             .masks = 4,
                             .ids_of_client = 14,
                             .places = 4,
                             .half_open_of_listener = 6,
                             .half_open = 8,
                             .ended = 5,
                             .abandoned = 3,
                             .waiting_services = 3,
                             .waiting_requests = 3,
                             .proven = 2,
                             .ended_in_a_turn = 3};
constexpr uint64_t kServices[] = {0x01061d2f, 0x01111d2f, 0x013f0001};

wire::IpAddress address(uint8_t choice) {
  const uint8_t last = 1 + (choice & 3);
  const uint8_t four[] = {10, 0, 0, last};
  const uint8_t sixteen[] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return (choice & 4) == 0 ? wire::IpAddress::v4(four) : wire::IpAddress::v6(sixteen);
}

class Session final : public cm::Output {
 public:
  explicit Session(Input& input) : input_(input) {}

  enum class Operation : uint8_t {
    kListen,
    kConnect,
    kTake,
    kAccept,
    kConfirm,
    kReject,
    kEstablish,
    kDisconnect,
    kDestroy,
    kEndClient,
    kWait,
    kBytes,    // a MAD of the input's bytes
    kMessage,  // a message with ids that are known
    kEcho,     // what was sent last comes back, from its destination
    kCount
  };

  void run() {
    for (int steps = 0; !input_.empty() && steps < 1000; ++steps) {
      step(static_cast<Operation>(input_.below(static_cast<uint32_t>(Operation::kCount))));
      check(cm_.size() <= kLimits.ids, "there are no more ids than the limits allow");
    }
    for (const cm::ClientId client : kClients) end(client);
    for (int timers = 0; cm_.deadline() != kNever; ++timers) {
      check(timers < 100000, "timers end");
      now_ = std::max(now_, cm_.deadline());
      turn();
    }
    check(cm_.size() == 0, "nothing is left");
  }

  void send(const cm::Datagram& datagram) override {
    wire::CmMad mad;
    check(wire::parse_cm(datagram.mad, mad) == wire::CmParseError::kNone, "what leaves is a message");
    check(!datagram.destination.is_unspecified() && !datagram.destination.is_multicast(), "to one host");
    ++sent_;
    last_ = datagram;
  }

  // The second one has what the first one leaves.
  cm::Account account_of(cm::ClientId client) override {
    return {cm::UserId{static_cast<uint64_t>(client)}, client == kClients[0]};
  }

  void on_event(const cm::Event& event) override {
    if (event.kind == cm::EventKind::kConnectRequest) {
      check(records_.count(event.id) == 0, "the id of a request is new");
      records_[event.id].client = event.client;
      ids_.push_back(event.id);
    }
    const auto found = records_.find(event.id);
    check(found != records_.end(), "an event is of an id that somebody has");
    Record& record = found->second;
    check(record.client == event.client, "and that client's");
    check(record.told.insert(event.kind).second, "once");
    const bool end = event.kind == cm::EventKind::kRejected || event.kind == cm::EventKind::kUnreachable ||
                     event.kind == cm::EventKind::kDisconnected;
    check(!end || !record.ended, "it ends once");
    record.ended = record.ended || end;
    check(event.kind != cm::EventKind::kTimewaitExit || record.told.count(cm::EventKind::kDisconnected) > 0,
          "TIMEWAIT is over after DISCONNECTED");
  }

 private:
  struct Record {
    cm::ClientId client{};
    bool ended = false;
    std::set<cm::EventKind> told;
  };

  void step(Operation operation) {
    switch (operation) {
      case Operation::kListen:
        return listen();
      case Operation::kConnect:
        return connect();
      case Operation::kWait:
        return wait();
      case Operation::kBytes:
        return bytes();
      case Operation::kMessage:
        return message();
      case Operation::kEcho:
        return deliver(last_.destination, last_.source, last_.mad);
      case Operation::kEndClient:
        return end(input_.one_of(kClients));
      default:
        return command(operation);
    }
  }

  void opened(cm::ClientId client, const cm::Opened& opened) {
    check((opened.id == cm::kNoId) == (opened.error != 0), "an id or an error");
    if (opened.error != 0) return;
    check(records_.count(opened.id) == 0, "the id is new");
    records_[opened.id].client = client;
    ids_.push_back(opened.id);
  }

  void listen() {
    const uint8_t choice = input_.byte();
    const cm::ClientId client = kClients[choice & 1];
    opened(client, cm_.listen(client, {.service = wire::ServiceId{input_.one_of(kServices)},
                                       .service_mask = (choice & 2) != 0 ? UINT64_MAX : ~uint64_t{0xff},
                                       .ip = (choice & 4) == 0,
                                       .datagrams = (choice & 8) != 0,
                                       .address = (choice & 16) == 0 ? wire::IpAddress{} : address(0),
                                       .takes_v4 = (choice & 32) == 0,
                                       .backlog = input_.below(8)}));
  }

  void connect() {
    const uint8_t choice = input_.byte();
    const cm::ClientId client = kClients[choice & 1];
    cm::Connect connect{.transport = static_cast<cm::Transport>(choice >> 1 & 3),
                        .service = wire::ServiceId{input_.one_of(kServices)},
                        .path = {.local = address(0),
                                 .remote = (choice & 0x10) != 0 ? wire::IpAddress{} : address(input_.byte()),
                                 .ack_timeout = input_.byte()},
                        .parameters = {.qpn = wire::Qpn(input_.below(4))},
                        .data = data()};
    if ((choice & 8) == 0) connect.names = wire::CmaHeader{.source = address(0), .destination = connect.path.remote};
    opened(client, cm_.connect(client, connect, now_));
  }

  cm::PrivateData data() {
    std::array<uint8_t, cm::PrivateData::kMost> bytes;
    const std::span<uint8_t> some = std::span(bytes).first(input_.below(cm::PrivateData::kMost + 1));
    input_.fill(some.first(std::min<size_t>(some.size(), 8)));
    std::fill(some.begin() + static_cast<ptrdiff_t>(std::min<size_t>(some.size(), 8)), some.end(), uint8_t{0x5a});
    return cm::PrivateData(some);
  }

  Id some_id() { return ids_.empty() ? Id{input_.dword()} : ids_[input_.below(static_cast<uint32_t>(ids_.size()))]; }

  void command(Operation operation) {
    const Id id = some_id();
    const auto found = records_.find(id);
    // Now and then of somebody who does not have it.
    const cm::ClientId client = found == records_.end() || input_.byte() == 0xff ? kClients[1] : found->second.client;
    const bool mine = found != records_.end() && found->second.client == client;
    int result = 0;
    switch (operation) {
      case Operation::kTake:
        result = cm_.take(client, id);
        break;
      case Operation::kAccept:
        result = cm_.accept(client, id, {.parameters = {.qpn = wire::Qpn(input_.below(4))}, .data = data()}, now_);
        break;
      case Operation::kConfirm:
        result = cm_.confirm(client, id, data(), now_);
        break;
      case Operation::kReject:
        result = cm_.reject(client, id, {.data = data()}, now_);
        break;
      case Operation::kEstablish:
        result = cm_.establish(client, id, now_);
        break;
      case Operation::kDisconnect:
        result = cm_.disconnect(client, id, data(), now_);
        break;
      default:
        if (mine) records_.erase(found);  // no events from now on, not even of this call
        std::erase(ids_, mine ? id : cm::kNoId);
        result = cm_.destroy(client, id, now_);
        check(!mine || result == 0, "who has an id can destroy it");
        forget_children();
    }
    check(mine == (result != ENOENT), "ids are their client's");
  }

  // A listener has taken some along.
  void forget_children() {
    std::set<Id> there;
    cm_.list([&](const cm::Listing& listing) {
      if (!listing.abandoned) there.insert(listing.id);
    });
    std::erase_if(records_, [&](const auto& record) { return there.count(record.first) == 0; });
    std::erase_if(ids_, [&](Id id) { return there.count(id) == 0; });
  }

  void end(cm::ClientId client) {
    std::erase_if(records_, [client](const auto& record) { return record.second.client == client; });
    cm_.end_client(client, now_);
    forget_children();
  }

  void wait() {
    now_ += std::chrono::milliseconds(int64_t{1} << input_.below(20));
    turn();
  }

  void turn() {
    cm_.on_timer(now_);
    check(cm_.is_ending() || cm_.deadline() > now_, "a timer has expired");
  }

  void deliver(const wire::IpAddress& from, const wire::IpAddress& to, const wire::Mad& mad) {
    sent_ = 0;
    cm_.on_datagram({.netdev = 1, .ca_guid = wire::Guid{1}, .source = from, .destination = to, .mad = mad}, now_);
    check(sent_ <= 2, "nobody gets more out than two for one");
  }

  void bytes() {
    const uint8_t from = input_.byte();
    wire::Mad mad{};
    wire::MadHeader{.transaction = wire::TransactionId{input_.below(3)},
                    .attribute = static_cast<uint16_t>(0x10 + input_.below(12))}
        .emit(mad.data());
    input_.fill(std::span(mad).subspan(wire::kMadHeaderSize));
    deliver(address(from), address(0), mad);
  }

  // What the peer may well say to an id that is there: with the right ids and numbers, and one byte that may be wrong.
  void message() {
    const uint8_t from = input_.byte();
    const auto attribute = static_cast<wire::CmAttribute>(0x10 + input_.below(11));
    const Id ours = some_id();
    Id theirs{1 + input_.below(6)};
    wire::Qpn qpn{};
    cm_.list([&](const cm::Listing& listing) {
      if (listing.id != ours) return;
      if (listing.remote_id != cm::kNoId) theirs = listing.remote_id;
      qpn = listing.local_qpn;
    });
    wire::Mad mad{};
    wire::MadHeader{.transaction = wire::TransactionId{input_.below(3)}, .attribute = static_cast<uint16_t>(attribute)}
        .emit(mad.data());
    uint8_t* const body = mad.data() + wire::kMadHeaderSize;
    const uint8_t value = input_.byte();
    wire::store_be32(body, static_cast<uint32_t>(theirs));
    switch (attribute) {
      case wire::CmAttribute::kReq: {
        wire::store_be64(body + 8, input_.one_of(kServices));
        wire::store_be24(body + 32, value & 3);
        body[50] = 3 << 4;
        const wire::IpAddress gid = address(from);
        std::copy(gid.bytes.begin(), gid.bytes.end(), body + 56);
        wire::CmaHeader{.source = gid, .destination = address(0)}.emit(body + 140);
        break;
      }
      case wire::CmAttribute::kSidrReq:
        wire::store_be64(body + 8, input_.one_of(kServices));
        wire::CmaHeader{.source = address(from), .destination = address(0)}.emit(body + 16);
        break;
      case wire::CmAttribute::kSidrRep:
        wire::store_be32(body, static_cast<uint32_t>(ours));
        body[4] = value & 1;
        break;
      default:
        wire::store_be32(body + 4, static_cast<uint32_t>(ours));
        wire::store_be24(body + (attribute == wire::CmAttribute::kRep ? 12 : 8),
                         attribute == wire::CmAttribute::kDreq ? qpn.value() : uint32_t{value} << 16 | value);
    }
    const uint8_t wrong = input_.byte();
    if (wrong != 0) mad[wrong] = input_.byte();
    deliver(address(from), address(0), mad);
  }

  Input& input_;
  uint32_t random_ = 1;
  cm::ConnectionManager cm_{kLimits, [this] { return random_ = random_ * 1664525 + 1013904223; }, *this};
  Time now_{std::chrono::seconds(1)};
  std::map<Id, Record> records_;  // of ids that clients have
  std::vector<Id> ids_;
  cm::Datagram last_{};
  uint32_t sent_ = 0;
};

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::Session(input).run();
  return 0;
}
