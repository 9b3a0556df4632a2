// SPDX-License-Identifier: BSD-2-Clause
// Checked for each id: no event twice, at most one end, nothing after destroy(), in an order that makes sense. For each
// connection: what one side is told, the other side has said, with its private data; both have the same PSNs, QPNs and
// depths. At the end of a run the network is faultless and applications only finish what they began: then every
// connection is established at both sides or at none. One side only is allowed where datagrams were lost, late or a
// host has crashed, and then that side can end it. When all ids are destroyed, nothing is left.
#include "tests/cm/scenario.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

constexpr uint32_t kNumbers[] = {1, 2};
constexpr ClientId kClients[] = {kAlice, kBob};

// What the world knows of an id: of its application and of what it was told.
struct Record {
  ClientId client{};
  bool datagrams = false;
  bool active = false;
  bool accepted = false, confirmed = false, established_by_packet = false;
  bool destroyed = false;
  bool meddled = false;  // commands were given without regard for the state
  std::set<EventKind> told{};
};

class World {
 public:
  explicit World(uint64_t seed) : lab_(seed) {
    const double worst[] = {0, 0.05, 0.1, 0.3};
    lab_.faults = {.drop = one_of(worst), .duplicate = one_of(worst), .reorder = one_of(worst)};
    lab_.faults.reorder_delay = lab_.random() % 2 == 0 ? Duration(1ms) : Duration(20s);
    crashes_ = lab_.random() % 3 == 0;
    faultless_ = lab_.faults.drop == 0 && (lab_.faults.reorder == 0 || lab_.faults.reorder_delay < 1s);
    lab_.filter = [this](const Datagram&) {
      ++outcome_.datagrams;
      return true;
    };
    for (int host = 0; host < 2; ++host) boot(host);
  }

  Outcome run() {
    const int steps = 20 + static_cast<int>(below(100));
    for (int i = 0; i < steps && ok(); ++i) step();
    wind_up();
    if (ok()) check_agreement();
    if (ok()) clean_up();
    return outcome_;
  }

 private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(lab_.random() % limit); }
  template <class T, size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[below(N)];
  }
  bool ok() const { return outcome_.error.empty(); }
  [[gnu::format(printf, 2, 3)]] void fail(const char* format, ...) {
    if (!ok()) return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    outcome_.error = text;
  }

  // --- hosts
  void boot(int host) {
    auto& place = hosts_[host];
    const uint32_t first_qpn = 0x100 + below(2) * 0x1000;  // perhaps those that it had
    place.reset();
    place = std::make_unique<Host>(lab_, v4(static_cast<uint8_t>(kNumbers[host])), Limits{}, kNumbers[host]);
    place->keeps_sent = false;
    place->next_qpn = first_qpn;
    place->watch = [this, host](const Event& event) { on_event(host, event); };
    ids_[host].clear();
    for (const ClientId client : kClients) begin(host, client);
  }
  void crash(int host) {
    ++outcome_.crashes;
    faultless_ = false;
    for (auto& [id, record] : records_[host]) record.destroyed = true;
    pending_[host].clear();
    boot(host);
  }
  // The client's program starts.
  void begin(int host, ClientId client) {
    const auto port = static_cast<uint16_t>(kPort + static_cast<uint16_t>(client));
    const uint32_t backlog = 1 + below(4);
    listeners_[host][client] = {hosts_[host]->listen(port, client, backlog),
                                hosts_[host]->listen_datagrams(port, client)};
  }
  void die(int host, ClientId client) {
    for (auto& [id, record] : records_[host]) {
      if (record.client == client) record.destroyed = true;
    }
    std::erase_if(ids_[host], [&](Id id) { return records_[host].at(id).client == client; });
    std::erase_if(pending_[host], [&](const Event& event) { return event.client == client; });
    hosts_[host]->cm.end_client(client, lab_.now);
    begin(host, client);
  }

  // --- what happens
  void step() {
    const int host = static_cast<int>(below(2));
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return connect(host);
      case 5:
        return any_command(host);
      case 6:
        if (below(10) == 0) return die(host, one_of(kClients));
        if (crashes_ && below(5) == 0) return crash(host);
        return;
      case 7:
        return lab_.run_for(std::chrono::seconds(below(100)));
      case 8:
      case 9:
      case 10:
        return lab_.run_for(std::chrono::milliseconds(below(5000)));
      case 11:
      case 12:
        return lab_.run_for(100us);
      default:
        return answer(host);
    }
  }

  // Private data that nobody has sent before, in a message that leads to this event.
  PrivateData tagged(EventKind kind) {
    const uint32_t tag = ++tags_;
    said_.emplace(kind, tag);
    return PrivateData(std::array<uint8_t, 4>{static_cast<uint8_t>(tag >> 24), static_cast<uint8_t>(tag >> 16),
                                              static_cast<uint8_t>(tag >> 8), static_cast<uint8_t>(tag)});
  }
  void check_tag(const Event& event) {
    const uint32_t tag = wire::load_be32(event.data.bytes().data());
    if (said_.count({event.kind, tag}) == 0) {
      fail("private data that nobody sent: event %d, tag %u", static_cast<int>(event.kind), tag);
    }
  }

  void connect(int host) {
    const ClientId client = one_of(kClients);
    const bool itself = below(10) == 0;
    Host& from = *hosts_[host];
    const Host& to = *hosts_[itself ? host : 1 - host];
    const Transport transports[] = {Transport::kRc, Transport::kRc, Transport::kUc, Transport::kUd, Transport::kXrc};
    const auto port = static_cast<uint16_t>(kPort + static_cast<uint16_t>(one_of(kClients)) + below(10) / 9 * 5);
    Connect connect = from.connection_to(to, port, one_of(transports));
    connect.data = tagged(EventKind::kConnectRequest);
    const Id id = from.connect(connect, client);
    if (id == kNoId) return fail("connect() failed");
    if (records_[host].count(id) > 0) return fail("an id twice");
    records_[host][id] = {.client = client, .datagrams = connect.transport == Transport::kUd, .active = true};
    ids_[host].push_back(id);
    ++outcome_.connects;
  }

  // As the event arrives: before anybody answers it.
  void on_event(int host, const Event& event) {
    auto& records = records_[host];
    if (event.kind == EventKind::kConnectRequest) {
      if (records.count(event.id) > 0) return fail("a request with an id that was there");
      records[event.id] = {.client = event.client, .datagrams = event.transport == Transport::kUd};
      ids_[host].push_back(event.id);
      const auto& mine = listeners_[host][event.client];
      if (event.listener != mine.first && event.listener != mine.second) return fail("a request of no listener");
      check_tag(event);
    }
    const auto found = records.find(event.id);
    if (found == records.end()) return fail("an event of no id");
    Record& record = found->second;
    check_event(host, event, record);
    record.told.insert(event.kind);
    pending_[host].push_back(event);
  }

  void check_event(int host, const Event& event, const Record& record) {
    if (record.destroyed) return fail("an event of an id that was destroyed: kind %d", static_cast<int>(event.kind));
    if (record.client != event.client) return fail("an event of another client");
    if (record.told.count(event.kind) > 0) return fail("event %d twice", static_cast<int>(event.kind));
    const auto told = [&](EventKind kind) { return record.told.count(kind) > 0; };
    const bool ended = told(EventKind::kRejected) || told(EventKind::kUnreachable) || told(EventKind::kDisconnected);
    switch (event.kind) {
      case EventKind::kConnectRequest:
        return;
      case EventKind::kConnectResponse:
        if (!record.active || ended) return fail("a response out of order");
        check_tag(event);
        return check_same(host, event);
      case EventKind::kEstablished:
        if (ended) return fail("established after its end");
        if (record.datagrams) return check_tag(event);
        if (record.active) return fail("the active side is told that it is established");
        if (!record.accepted) return fail("established, but never accepted");
        if (!record.established_by_packet) check_confirmed(host, event);
        ++outcome_.established;
        return;
      case EventKind::kRejected:
      case EventKind::kUnreachable:
      case EventKind::kDisconnected:
        if (ended) return fail("event %d after the end", static_cast<int>(event.kind));
        if (event.kind == EventKind::kUnreachable &&
            (told(EventKind::kConnectResponse) || told(EventKind::kEstablished)))
          return fail("unreachable, after all");
        return;
      case EventKind::kTimewaitExit:
        if (!told(EventKind::kDisconnected)) fail("TIMEWAIT_EXIT before DISCONNECTED");
        return;
    }
  }

  // Which id at which host has this connection's other end, if it is still known there.
  std::optional<std::pair<int, Listing>> other_end(int host, Id id) {
    std::optional<Listing> own;
    const auto find = [](Host& at, auto&& which) {
      std::optional<Listing> found;
      at.cm.list([&](const Listing& listing) {
        if (which(listing)) found = listing;
      });
      return found;
    };
    own = find(*hosts_[host], [&](const Listing& l) { return l.id == id; });
    if (!own) return std::nullopt;
    const int there = own->remote == hosts_[host]->address ? host : 1 - host;
    const auto other =
        find(*hosts_[there], [&](const Listing& l) { return l.id == own->remote_id && l.remote_id == id; });
    if (!other) return std::nullopt;
    return std::pair{there, *other};
  }

  void check_same(int host, const Event& event) {
    const auto other = other_end(host, event.id);
    if (!other || other->second.abandoned) return;
    const QpAttributes* const theirs = hosts_[other->first]->cm.attributes(other->second.client, other->second.id);
    if (theirs == nullptr) return fail("an other end without attributes");
    if (theirs->rq_psn != event.qp.sq_psn || theirs->sq_psn != event.qp.rq_psn) return fail("PSNs differ");
    if (other->second.local_qpn != event.qp.dest_qpn) return fail("another QP than was accepted");
    if (theirs->path.mtu != event.qp.path.mtu) return fail("MTUs differ");
    if (event.qp.max_rd_atomic > theirs->max_dest_rd_atomic && event.transport == Transport::kRc) {
      return fail("more READs than the other side takes");
    }
  }

  void check_confirmed(int host, const Event& event) {
    std::optional<Listing> own;
    hosts_[host]->cm.list([&](const Listing& listing) {
      if (listing.id == event.id) own = listing;
    });
    if (!own) return fail("an event of an id that is not there");
    const int there = own->remote == hosts_[host]->address ? host : 1 - host;
    const auto other = records_[there].find(own->remote_id);
    if (other == records_[there].end() || !other->second.confirmed) fail("established, but never confirmed");
  }

  // --- applications
  void answer(int host) {
    if (pending_[host].empty()) return;
    const Event event = pending_[host].front();
    pending_[host].pop_front();
    respond_to(host, event, below(10));
  }

  void respond_to(int host, const Event& event, uint32_t mood) {
    Host& at = *hosts_[host];
    Record& record = records_[host].at(event.id);
    const bool wrong = mood == 0;
    switch (event.kind) {
      case EventKind::kConnectRequest: {
        if (at.cm.take(event.client, event.id) != 0) return fail("a request that is not there");
        if (mood == 1) return reject(host, event);
        if (wrong) return destroy(host, event.id);
        if (mood == 2) return pending_[host].push_back(event);  // it takes its time
        Accept accept = at.acceptance();
        accept.data = tagged(record.datagrams ? EventKind::kEstablished : EventKind::kConnectResponse);
        const int result = at.cm.accept(event.client, event.id, accept, lab_.now);
        if (result == 0) record.accepted = true;
        if (result != 0 && record.told.size() == 1 && !record.meddled) fail("accept() failed: %d", result);
        if (mood == 3 && !record.datagrams && result == 0) {
          record.established_by_packet = true;
          if (at.establish(event.id, event.client) != 0) fail("establish() failed");
        }
        return;
      }
      case EventKind::kConnectResponse: {
        if (wrong) return destroy(host, event.id);
        if (mood == 1) return reject(host, event);
        record.confirmed = true;
        const int result = at.confirm(event.id, event.client);
        if (result != 0 && record.told.size() == 1 && !record.meddled) fail("confirm() failed: %d", result);
        return;
      }
      case EventKind::kEstablished:
        if (wrong) return destroy(host, event.id);
        if (mood == 1 && !record.datagrams) at.disconnect(event.id, event.client);
        return;
      case EventKind::kDisconnected:
        if (!wrong) at.disconnect(event.id, event.client);
        if (mood < 5) destroy(host, event.id);
        return;
      case EventKind::kRejected:
      case EventKind::kUnreachable:
      case EventKind::kTimewaitExit:
        if (mood < 8) destroy(host, event.id);
        return;
    }
  }
  void reject(int host, const Event& event) {
    Record& record = records_[host].at(event.id);
    const PrivateData data = tagged(EventKind::kRejected);
    const int result = hosts_[host]->cm.reject(event.client, event.id, {.data = data}, lab_.now);
    if (result != 0 && record.told.size() == 1 && !record.meddled) fail("reject() failed: %d", result);
  }

  void destroy(int host, Id id) {
    Record& record = records_[host].at(id);
    record.destroyed = true;
    std::erase(ids_[host], id);
    std::erase_if(pending_[host], [&](const Event& event) { return event.id == id; });
    if (hosts_[host]->destroy(id, record.client) != 0) fail("destroy() failed");
    if (hosts_[host]->destroy(id, record.client) != ENOENT) fail("destroyed twice");
  }

  // Without regard for the state.
  void any_command(int host) {
    if (ids_[host].empty()) return;
    const Id id = ids_[host][below(static_cast<uint32_t>(ids_[host].size()))];
    Record& record = records_[host].at(id);
    Host& at = *hosts_[host];
    record.meddled = true;
    switch (below(6)) {
      case 0:
        return destroy(host, id);
      case 1:
        if (at.disconnect(id, record.client) != 0) fail("disconnect() failed");
        return;
      case 2:
        at.reject(id, record.client);
        return;
      case 3:
        if (at.confirm(id, record.client) == 0) record.confirmed = true;
        return;
      case 4:
        record.established_by_packet = true;
        at.establish(id, record.client);
        return;
      default: {
        Accept accept = at.acceptance();
        accept.data = tagged(record.datagrams ? EventKind::kEstablished : EventKind::kConnectResponse);
        if (at.cm.accept(record.client, id, accept, lab_.now) == 0) record.accepted = true;
      }
    }
  }

  // --- the end
  // No more faults; all events are answered.
  void wind_up() {
    lab_.faults = {};
    for (int round = 0; round < 400 && ok(); ++round) {
      for (int host = 0; host < 2; ++host) {
        while (!pending_[host].empty() && ok()) {
          const Event event = pending_[host].front();
          pending_[host].pop_front();
          respond_to(host, event, 9);
        }
      }
      lab_.run_for(20s);
    }
    lab_.run_dry();
    for (int host = 0; host < 2; ++host) {
      if (!pending_[host].empty()) return fail("it never ends");
    }
  }

  void check_agreement() {
    for (int host = 0; host < 2; ++host) {
      std::vector<Listing> listings;
      hosts_[host]->cm.list([&](const Listing& listing) { listings.push_back(listing); });
      for (const Listing& own : listings) {
        const std::string state = own.state;
        if (own.abandoned) return fail("%s of nobody is left", own.state);
        if (state == "LISTEN" || state == "SPENT" || state == "RESOLVED") continue;
        if (state != "ESTABLISHED") return fail("%s is left", own.state);
        const auto other = other_end(host, own.id);
        if (other && std::string(other->second.state) == "ESTABLISHED") continue;
        ++outcome_.one_sided;
        if (faultless_) return fail("established at one side only");
        // Whoever uses it notices that nobody answers.
        hosts_[host]->disconnect(own.id, own.client);
        lab_.run_for(1s);
        if (records_[host].at(own.id).told.count(EventKind::kDisconnected) == 0) {
          return fail("%s, the other end %s, cannot be ended", own.state, other ? other->second.state : "gone");
        }
      }
    }
  }

  void clean_up() {
    for (int host = 0; host < 2; ++host) {
      for (const ClientId client : kClients) {
        for (auto& [id, record] : records_[host]) record.destroyed = true;
        hosts_[host]->cm.end_client(client, lab_.now);
      }
    }
    lab_.run_dry();
    for (int host = 0; host < 2; ++host) {
      if (hosts_[host]->cm.size() != 0) return fail("%zu ids are left", hosts_[host]->cm.size());
    }
  }

  Lab lab_;
  Outcome outcome_;
  bool crashes_ = false;
  bool faultless_ = true;
  std::unique_ptr<Host> hosts_[2];
  std::map<Id, Record> records_[2];  // of all that ever were
  std::vector<Id> ids_[2];           // that applications have
  std::deque<Event> pending_[2];     // that they have not seen
  std::map<ClientId, std::pair<Id, Id>> listeners_[2];
  uint32_t tags_ = 0;
  std::set<std::pair<EventKind, uint32_t>> said_;
};

}  // namespace

Outcome run_scenario(uint64_t seed) {
  return World(seed).run();
}

}  // namespace uroce::cm::test
