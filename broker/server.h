// SPDX-License-Identifier: BSD-2-Clause
// The broker's work: who is there, which QP numbers each has, and the answers to what clients ask (protocol.h). One
// thread, which sleeps in poll(). No packet passes through here.
//
// Clients may be hostile. What a client costs is bounded: one message of fixed size in a turn, answers that it does not
// read end its connection, kMostLeases ranges, kMostPorts names of DPDK ports, and for a user who is not root as many
// ranges and connections as are left for others. Nothing that it says is believed but the netdev that it names and its
// network namespace: who may connect from another one has been given the address on purpose. What it says of itself to
// who looks at statistics does not come through here: the broker gives both a stream.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "broker/address.h"
#include "broker/client_socket.h"
#include "broker/cm_server.h"
#include "broker/protocol.h"
#include "broker/steering.h"
#include "engine/base/clock.h"
#include "engine/base/number_allocator.h"
#include "engine/base/time.h"
#include "engine/base/unique_fd.h"
#include "engine/io/af_xdp/xdp_program.h"

namespace uroce::broker {

// Root is always served.
struct Policy {
  uid_t owner = 0;
  // Where steering keeps users apart all others are served too, or if this is set only the members of this group.
  std::optional<gid_t> group;
  // Ends so long after its last client has left; who only looks does not count.
  std::optional<Duration> linger;
};

class Server final : private CmServer::Clients {
 public:
  static constexpr size_t kMostClients = 2048;  // two connections for each program, see cli/start_broker.h
  static constexpr size_t kMostLeases = 16;     // of a client: one for each netdev that it uses
  static constexpr size_t kMostPorts = 16;
  static constexpr Duration kGreetingTime = std::chrono::seconds(5);
  // How long clients of an earlier broker have to come back before new ones are served: they look ten times a second.
  static constexpr Duration kInheritance = std::chrono::milliseconds(500);
  // Between two looks whether kept sockets are closed.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(100);

  using Clock = Time (*)();
  using XdpProgramOf = std::function<std::optional<io::AttachedProgram>(int ifindex)>;

  // `listeners`: sockets that listen, at least one. `verbose`: a line on stderr for what clients do.
  Server(std::vector<UniqueFd> listeners, std::unique_ptr<Steering> steering, Policy policy, bool verbose,
         XdpProgramOf xdp_program_of = io::attached_xdp_program, Clock clock = monotonic_now);
  ~Server();
  // Clients can make connections by this broker (cm_server.h). Before the first turn.
  void manage_connections(std::unique_ptr<net::NetView> view, const std::optional<io::FaultSpec>& faults = {},
                          const cm::Limits& limits = {});
  // Null: they cannot.
  const CmServer* connections() const { return cm_.get(); }
  // Until `stop` is readable, or nobody has been there for as long as the policy says.
  void run(int stop) {
    while (turn(stop, true)) continue;
  }
  // What there is to do now, if it does not wait for work: one message of each client at most. False: that was all.
  bool turn(int stop, bool waits_for_work);

 private:
  struct LeaseOf {
    int ifindex;
    Plane plane;
  };
  struct Client {
    Client(ClientSocket connection, const Peer& who, uint64_t its_number, Time last_greeting)
        : socket(std::move(connection)), peer(who), number(its_number), greeting_ends(last_greeting) {}
    ClientSocket socket;
    Peer peer;
    uint64_t number;
    std::string program;
    Time greeting_ends;
    bool greeted = false;
    bool observes = false;               // looks at statistics, and gets no leases
    UniqueFd reports;                    // on which it is asked for its statistics, and told of others
    std::optional<Message> postponed;    // a kLease or kCm that waits for the start
    std::map<uint32_t, LeaseOf> leases;  // by number of range
    std::set<std::string> ports;         // of DPDK that it has
  };
  using Clients = std::list<Client>;

  void start_when_due(Time now);
  bool accepts(Time now) const { return clients_.size() < kMostClients && now >= accepts_at_; }
  void accept_clients(int listener);
  bool may_connect(const Peer& peer) const;
  ClientSocket::Takes takes(const Client& client) const;
  bool serve(Client& client);
  bool answer_first(Client& client, const Message& message);
  bool welcome(Client& client);
  bool answer(Client& client, const Message& message, Descriptors& descriptors);
  bool introduce(const Client& observer, const Message& request);
  bool list_connections(const Client& observer);
  void bring_together(const Client& client, const Message& request);
  bool grant(Client& client, const Message& request);
  bool hold(Client& client, const std::string& port) const;
  std::optional<std::string> who_has(const std::string& port, const Client& asking) const;
  bool open_cm(const Client& client);
  bool is_others_qpn(cm::ClientId client, wire::Qpn qpn) override;
  bool is_root(cm::ClientId client) override;
  bool take_over(Client& client, const Message& request, Descriptors& descriptors);
  void end_lease(Client& client, uint32_t range);
  void forget_lease(uint32_t range);
  void forget_meetings(uint32_t range);
  void hold_back(Time now);
  void release_ranges(Time now);
  Clients::iterator end_client(Clients::iterator client);
  static std::optional<std::string> too_many_leases(const Client& client);
  std::optional<std::string> objection(const Client& client) const;
  std::optional<std::string> who_is_in_the_way(const Message& request) const;
  bool may_use(const Client& client) const;
  bool is_owner(const Peer& peer) const { return peer.uid == 0 || peer.uid == policy_.owner; }
  bool has_too_many(uid_t user) const;
  bool may_see(const Client& observer, const Client& client) const;
  bool is_idle() const;
  void log(const Client& client, const std::string& text) const;
  int patience(Time now) const;

  const std::unique_ptr<Steering> steering_;
  std::unique_ptr<CmServer> cm_;           // null: there is none
  const std::vector<UniqueFd> listeners_;  // closed first: whoever comes then sees that nobody listens
  const Policy policy_;
  const bool verbose_;
  const XdpProgramOf xdp_program_of_;
  const Clock now_;
  NumberAllocator ranges_;  // from 0 for range 1
  // Ranges that nobody leases and that are not free: by number, with the user who had them last (or kUnknownUser).
  std::map<uint32_t, uid_t> kept_;
  Time look_at_kept_{};
  Clients clients_;
  std::set<std::pair<uint32_t, uint32_t>> met_;  // ranges whose clients have been brought together; the lower one first
  uint64_t last_number_ = 0;
  bool started_ = false;
  Time starts_at_;
  Time accepts_at_{};
  Time empty_since_;
  std::vector<pollfd> waits_;  // of a turn
  std::set<uid_t> deceivers_;  // have brought descriptors that may not be closed
};

}  // namespace uroce::broker
