// SPDX-License-Identifier: BSD-2-Clause
// Hosts with a connection manager each, and the network between them, under virtual time. A run is a function of its
// seed.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cm/connection_manager.h"
#include "tests/cm/judge.h"

namespace uroce::cm::test {

using namespace std::chrono_literals;

inline constexpr ClientId kAlice{1}, kBob{2};
inline constexpr uint16_t kPort = 7471;

wire::IpAddress v4(uint8_t last);  // 10.0.0.last
wire::IpAddress v6(uint8_t last);  // 2001:db8::last
wire::IpAddress link_local(uint8_t last);

struct Faults {
  double drop = 0, duplicate = 0, reorder = 0;
  Duration reorder_delay = 20s;  // longer than any message waits for its answer
};

class Host;

class Lab {
 public:
  explicit Lab(uint64_t seed = 1) : random(seed) {}

  // Delivers and lets timers expire until then, in the order of time.
  void run_for(Duration time);
  // Until nothing is under way and no timer runs, but no longer than `limit`.
  void run_dry(Duration limit = 24h);
  // The datagrams that are under way arrive; timers that do not expire before that stay.
  void settle() { run_for(1s); }

  void carry(const Datagram& datagram);

  Time now{1s};
  std::mt19937_64 random;
  Faults faults;
  // Sees each datagram as it is sent; false loses it.
  std::function<bool(const Datagram&)> filter;

 private:
  friend class Host;
  void deliver(const Datagram& datagram);
  bool step(Time end);
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; }

  std::multimap<Time, Datagram> under_way_;
  std::vector<Host*> hosts_;
};

// What was sent, as the message that it is.
struct Sent {
  Time at;
  Datagram datagram;
  wire::CmMad mad;
  wire::CmAttribute kind() const { return wire::attribute_of(mad.message); }
  template <class Message>
  const Message& as() const {
    return std::get<Message>(mad.message);
  }
};

class Host final : public Output {
 public:
  // Each has the next number for its GUID and netdev, or the one that it had before it crashed.
  Host(Lab& lab, wire::IpAddress address, const Limits& limits = {}, uint32_t number = 0);
  ~Host();

  wire::Guid guid() const { return guid_; }

  void send(const Datagram& datagram) override;
  void on_event(const Event& event) override;
  Account account_of(ClientId client) override {
    const auto found = accounts.find(client);
    return found == accounts.end() ? Account{} : found->second;
  }

  // --- commands with plain parameters
  Id listen(uint16_t port, ClientId client = kAlice, uint32_t backlog = 16);
  Id listen_datagrams(uint16_t port, ClientId client = kAlice);
  Connect connection_to(const Host& other, uint16_t port, Transport transport = Transport::kRc);
  Id connect(const Connect& connect, ClientId client = kAlice) { return cm.connect(client, connect, lab.now).id; }
  Id connect(const Host& other, uint16_t port, Transport transport = Transport::kRc, ClientId client = kAlice) {
    return connect(connection_to(other, port, transport), client);
  }
  Accept acceptance();
  int accept(Id id, ClientId client = kAlice) { return cm.accept(client, id, acceptance(), lab.now); }
  int confirm(Id id, ClientId client = kAlice) { return cm.confirm(client, id, {}, lab.now); }
  int reject(Id id, ClientId client = kAlice) { return cm.reject(client, id, {}, lab.now); }
  int disconnect(Id id, ClientId client = kAlice) { return cm.disconnect(client, id, {}, lab.now); }
  int destroy(Id id, ClientId client = kAlice) { return cm.destroy(client, id, lab.now); }
  int establish(Id id, ClientId client = kAlice) { return cm.establish(client, id, lab.now); }

  // The oldest event that nobody has taken; fails the test if it is another one, or none.
  Event expect(EventKind kind);
  bool quiet() const { return events.empty(); }
  // The kinds of what was sent since the last call: "REQ MRA".
  std::string sent_kinds();
  // ESTABLISHED, or "" if there is no such id.
  std::string state(Id id) const;
  // Those ids, by their own numbers.
  std::vector<Id> in_state(const std::string& state) const;

  Lab& lab;
  const wire::IpAddress address;
  ConnectionManager cm;
  std::map<ClientId, Account> accounts;  // of those that are not alone
  std::deque<Event> events;
  std::function<void(const Event&)> watch;  // sees each event as it happens
  std::deque<Sent> sent;                    // stay where they are
  bool keeps_sent = true;
  uint32_t next_qpn = 0x100;
  // The oracle judges what it sends; what it finds fails the test when the host goes, and leaves a capture.
  Judge judge;
  bool is_judged = true;

  // What arrives.
  void receive(const Datagram& datagram);

 private:
  const wire::Guid guid_;
  size_t seen_ = 0;
};

// A host whose messages are written by hand, as nobody would send them.
class Peer {
 public:
  Peer(Lab&, Host& target, wire::IpAddress at) : address(at), target_(target) {}

  void send(const wire::CmMessage& message, uint64_t transaction = 1, uint32_t modifier = 0);
  wire::Req req(Id id, uint16_t port, uint32_t qpn = 0x500) const;
  wire::Rep rep(Id id, Id remote, uint32_t qpn = 0x500) const;
  static wire::Rtu rtu(Id id, Id remote);
  wire::Guid guid{0xfeed};
  const wire::IpAddress address;

 private:
  Host& target_;
};

// Both ids of a connection of `to`, which listens, and `from`; established, and all events taken.
struct Pair {
  Id active, passive;
};
Pair establish(Lab& lab, Host& from, Host& to, uint16_t port);

}  // namespace uroce::cm::test
