// SPDX-License-Identifier: BSD-2-Clause
// The broker's work: who is there, which QP numbers each has, and the answers to what clients ask
// (broker/protocol/protocol.h). One thread, which sleeps in poll(). No packet passes through here.
//
// Clients may be hostile. What one costs is bounded in memory and in time (bounds.h): messages of fixed size, so many
// of a user in a turn; an answer is read before there is a next one, and descriptors that are on their way to somebody
// who does not take them count as a connection of his user. A turn does nothing that a client can make slow:
// descriptors that it sends are never open here (claims.h), and what it says of itself to who
// looks at statistics goes through a file that both have. Nothing that it says is believed but the netdev that it names
// and its network namespace: who may connect from another one has been given the address on purpose.
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

#include "base/clock.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "broker/protocol/address.h"
#include "broker/protocol/protocol.h"
#include "broker/server/bounds.h"
#include "broker/server/claims.h"
#include "broker/server/client_socket.h"
#include "broker/server/cm_server.h"
#include "broker/server/meetings.h"
#include "broker/server/partings.h"
#include "broker/server/pending_meetings.h"
#include "broker/server/range_pool.h"
#include "broker/server/slow_closer.h"
#include "broker/server/time_budget.h"
#include "broker/steering/steering.h"
#include "engine/io/af_xdp/xdp_program.h"

namespace uroce::broker {

// Root is always served.
struct Policy {
  uid_t owner = 0;
  // Where steering keeps users apart all others are served too, or if this is set only the members of this group.
  std::optional<gid_t> group;
  // Processes of two users exchange packets by memory too. Else, as of two hosts, by the network: who writes to memory
  // that another one reads can make him wait (SECURITY.md).
  bool memory_between_users = false;
  // Ends so long after its last client has left; who only looks does not count.
  std::optional<Duration> linger;
  size_t most_clients = kMostClients;
  size_t enough_to_close = kMostClients;  // connections
};

class Server final : private CmServer::Clients {
 public:
  static constexpr Duration kGreetingTime = std::chrono::seconds(5);
  // How long clients of an earlier broker have to come back before new ones are served: they look ten times a second.
  static constexpr Duration kInheritance = std::chrono::milliseconds(500);
  // How much longer, while what they have brought is looked at: less than clients wait for an answer in all.
  static constexpr Duration kMoreInheritance = std::chrono::milliseconds(1000);
  // Between two looks whether kept sockets are closed.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(100);
  // Until the process that has just begun has nothing open that it is not there for.
  static constexpr Duration kMoment = std::chrono::milliseconds(1);

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
  // A claim is being read (claims.h).
  bool reads_claims() const { return claims_ && claims_->is_reading(); }
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
    bool stays = false;                  // says nothing any more: it only keeps the broker there
    UniqueFd reports;                    // on which it is asked for its statistics, and told of others
    std::optional<Message> postponed;    // a kLease or kCm that waits for the start
    std::optional<Message> claim;        // a kClaim that is read, or is to be
    std::map<uint32_t, LeaseOf> leases;  // by number of range
    std::set<std::string> ports;         // of DPDK that it has
  };
  using Clients = std::list<Client>;
  // A connection that is over for the broker, whose client may have to read what it was sent.
  struct Leaving {
    ClientSocket socket;
    UniqueFd reports;
    uid_t user;
    bool is_read() const { return !socket.unread() && !is_unread(reports.get()); }
  };
  void start_when_due(Time now);
  bool is_claimed_from() const;
  size_t connections_now() const { return clients_.size() + leaving_.size(); }
  bool has_room() const { return connections_now() < policy_.most_clients && !closer_.is_full(); }
  bool accepts(Time now) const { return has_room() && now >= accepts_at_; }
  void accept_clients(int listener);
  bool may_connect(const Peer& peer) const;
  bool is_silent(const Client& client, Time now) const;
  bool has_time(uid_t user, Time now) const;
  bool has_its_turn(const Client& client);
  void leave_to(uid_t user, UniqueFd given);
  void leave_given();
  size_t kept_of(uid_t user) const;
  bool serve_on_account(Client& client);
  void charge(uid_t user, Duration since);
  int tell(const Client& client, const Message& message, std::span<const int> descriptors = {});
  bool serve(Client& client);
  bool answer_first(Client& client, const Message& message);
  bool welcome(Client& client);
  bool answer(Client& client, const Message& message);
  bool introduce(const Client& observer, const Message& request);
  bool list_connections(const Client& observer, const Message& request);
  void meet(const Client& client, const Message& request);
  void prepare_meeting(const Client& client, uint32_t range, const Client& other, uint32_t its_range);
  void put_off(const Client& client, uint32_t range, const Client& other, uint32_t its_range);
  void bring_together(const Client& client, uint32_t range, uint32_t its_range);
  static bool is_stranger(const Client& it, const Client& to);
  bool may_begin_to_meet(const Client& client) const;
  size_t met_of_user(const Client& client, uid_t user) const;
  const Client* holder(uint32_t range) const;
  void give(Client& client, uint32_t range, const LeaseOf& lease);
  void take_away(Client& client, uint32_t range);
  bool grant(Client& client, const Message& request);
  bool hold(Client& client, const std::string& port) const;
  std::optional<std::string> who_has(const std::string& port, const Client& asking) const;
  bool open_cm(const Client& client);
  bool is_others_qpn(cm::ClientId client, wire::Qpn qpn) override;
  bool is_root(cm::ClientId client) override;
  cm::Account account_of(cm::ClientId client) override;
  bool has_time_for(const cm::Account& account) override;
  Duration spent() const override;
  void charge(const cm::Account& account, Duration since) override;
  void close_later(ClientSocket socket, const cm::Account& account) override;
  bool claim(Client& client, const Message& request, bool brings);
  bool take_over_from_owner(Client& client, const Message& request);
  bool begin_claim(Client& client);
  void work_on_claims();
  void end_claim(uint64_t number, const std::optional<Claims::Read>& read);
  std::variant<LeaseRange, io::IoError> readmit(const Claims::Read& read);
  using Readmit = std::function<std::variant<LeaseRange, io::IoError>()>;
  bool take_over(Client& client, const Message& request, const Readmit& readmit);
  void end_lease(Client& client, uint32_t range);
  void forget_lease(uint32_t range);
  void hold_back(Time now);
  void release_ranges(Time now);
  bool is_free(uint32_t range, Time now) const;
  void part(uint32_t other, uint32_t range);
  bool tell_of_parting(uint32_t other, uint32_t range);
  bool has_read(uint32_t other) const;
  Clients::iterator end_client(Clients::iterator client);
  void close_some();
  bool has_starting_child() const {
    return steering_->has_starting_child() || (claims_ && claims_->has_starting_child());
  }
  void let_go(ClientSocket& socket, UniqueFd& reports, uid_t user);
  void turn_away(ClientSocket socket, uid_t user);
  void accept_rest(int listener);
  static std::optional<std::string> too_many_leases(const Client& client);
  std::optional<std::string> objection(const Client& client) const;
  std::optional<std::string> who_is_in_the_way(const Message& request) const;
  bool may_use(const Client& client) const;
  // Nobody but he waits for what he does: he is root, or nobody else is served.
  bool is_trusted(uid_t user) const { return user == 0 || (is_owner(user) && !steering_->isolates()); }
  bool is_owner(uid_t user) const { return user == 0 || user == policy_.owner; }
  bool has_too_many(uid_t user) const;
  bool may_see(const Client& observer, const Client& client) const;
  bool is_idle() const;
  void log(const Client& client, const std::string& text) const;
  int patience(Time now) const;

  const std::unique_ptr<Steering> steering_;
  std::optional<Claims> claims_;  // none: it serves its owner only
  std::unique_ptr<CmServer> cm_;  // null: there is none
  std::vector<UniqueFd> listeners_;
  const Policy policy_;
  const bool verbose_;
  const XdpProgramOf xdp_program_of_;
  const Clock now_;
  RangePool ranges_;  // from 0 for range 1
  // Ranges that nobody leases and that are not free: by number, with the user who had them last (or kUnknownUser).
  std::map<uint32_t, uid_t> kept_;
  Time look_at_kept_{};
  Clients clients_;
  std::map<uint32_t, Client*> holders_;  // of ranges
  std::list<Leaving> leaving_;
  SlowCloser closer_;  // of what has descriptors in its queue
  std::vector<std::pair<uid_t, UniqueFd>> given_;
  Time given_since_{};
  Meetings meetings_;
  PendingMeetings pending_;
  Partings partings_;
  uint64_t last_number_ = 0;
  bool started_ = false;
  Time starts_at_;
  const Time starts_latest_;
  const Time claims_end_;  // of users who are not the owner
  Time accepts_at_{};
  Time empty_since_;
  std::vector<pollfd> waits_;       // of a turn
  std::map<uid_t, size_t> served_;  // in a turn: messages
  TimeBudget budget_;
  Duration charged_{};        // to whomever
  bool closes_more_ = false;  // than in this turn
};

}  // namespace uroce::broker
