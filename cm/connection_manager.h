// SPDX-License-Identifier: BSD-2-Clause
// The connection manager of the GSI (IBTA 12, cm.md): makes and ends connections of QPs by datagrams between the QP1s
// of two hosts. One for all that share a port space: a process, or the broker for all processes of a network namespace.
//
// Without I/O (architecture.md, decision 3): whoever owns it hands in
//   on_datagram(datagram, now)   a datagram to QP1, its Q_Key, P_Key and ICRC checked
//   on_timer(now)                at or after deadline()
//   the commands of clients, which return 0 or an errno value (an Opened: the id too)
// and takes what comes out through Output, during the call. Output must not call back. No clock, lock or system call
// inside; one thread at a time.
//
// A client listens or connects and gets an id; a request of the network is an id of the listener's client. It keeps the
// id until it calls destroy(), whatever happens to the connection. What each message does to it is a table:
// cm/connection_states.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/time.h"
#include "cm/counters.h"
#include "cm/endpoint_table.h"
#include "cm/listeners.h"
#include "cm/proven_peers.h"
#include "cm/shares.h"
#include "cm/types.h"
#include "cm/waiting_requests.h"

namespace uroce::cm {

class Output {
 public:
  virtual void send(const Datagram& datagram) = 0;
  // In the order in which things happened. `event` ends with the call.
  virtual void on_event(const Event& event) = 0;
  // Packets from `local` to `remote` leave through this netdev. Asked of requests; those of which it is not so are
  // refused.
  virtual bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) {
    static_cast<void>(netdev), static_cast<void>(local), static_cast<void>(remote);
    return true;
  }
  // Whose the client is, which has not ended: asked for each id that it is to have.
  virtual Account account_of(ClientId client) {
    static_cast<void>(client);
    return {};
  }
  // Somebody has the port that the service id stands for, listening or not.
  virtual bool is_bound(wire::ServiceId service) {
    static_cast<void>(service);
    return false;
  }

 protected:
  ~Output() = default;
};

// A new id, or none and an errno value.
struct Opened {
  Id id = kNoId;
  int error = 0;
};

// An id, for who looks on.
struct Listing {
  Id id = kNoId;
  ClientId client{};
  UserId user{};
  bool abandoned = false;  // destroyed: what is left of it is the connection manager's
  const char* state = "";  // "ESTABLISHED"
  Transport transport{};
  wire::ServiceId service{};
  wire::IpAddress local{}, remote{};
  wire::Qpn local_qpn{}, remote_qpn{};
  Id remote_id = kNoId;
};

class ConnectionManager {
 public:
  // `random` gives 32 uniformly distributed bits: ids, transaction ids and PSNs cannot be guessed.
  ConnectionManager(const Limits& limits, std::function<uint32_t()> random, Output& output)
      : limits_(limits),
        random_(std::move(random)),
        output_(output),
        listeners_(limits),
        waiting_(limits.waiting_services, limits.waiting_requests),
        proven_(limits.proven),
        ids_(limits.ids),
        to_end_(limits.ended_in_a_turn) {}
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // --- the network ---------------------------------------------------------------------------------------------------
  void on_datagram(const Datagram& datagram, Time now);
  Time deadline() const { return is_ending() ? Time{} : std::min(table_.deadline(), waiting_.deadline()); }
  void on_timer(Time now);

  // --- commands ------------------------------------------------------------------------------------------------------
  // ENOENT: the client has no such id. EINVAL: not in this state, or a value that cannot be sent. EADDRINUSE: somebody
  // listens there. ENFILE: too many ids. ENOSPC: too many listeners for one service, or for several at a time.
  Opened listen(ClientId client, const Listen& listen);
  Opened connect(ClientId client, const Connect& connect, Time now);
  // The application has been told of the request. Until then (or until it is answered) it counts for the backlog, and
  // goes with its listener.
  int take(ClientId client, Id id);
  int accept(ClientId client, Id id, const Accept& accept, Time now);
  int confirm(ClientId client, Id id, const PrivateData& data, Time now);  // RTU
  int reject(ClientId client, Id id, const Reject& reject, Time now);
  // A packet has come to the QP of a connection whose RTU has not: it is established. EISCONN: it was.
  int establish(ClientId client, Id id, Time now);
  // DREQ, or DREP if the other side has asked. 0 also where there is nothing to send.
  int disconnect(ClientId client, Id id, const PrivateData& data, Time now);
  // No events of this id any more. The other side is told.
  int destroy(ClientId client, Id id, Time now);
  // A connection that another connection manager has made, which is gone: established from now on. EEXIST: the id is
  // in use. EINVAL: what no connection is.
  int adopt(ClientId client, const Adopt& adopt);
  // The client has died: all of its ids are destroyed, at once for who asks for them, but no more of all clients than
  // Limits::ended_in_a_turn until the next on_timer(). Until has_ended() of what is returned, nobody else can listen
  // where it did. Another client may have its number at once.
  uint64_t end_client(ClientId client, Time now);
  bool has_ended(uint64_t leaving) const { return ended_ >= leaving; }
  // There are some left, of clients or of listeners.
  bool is_ending() const { return !leaving_.empty(); }

  // --- for who looks on ----------------------------------------------------------------------------------------------
  // The QP attributes agreed on so far. Null: the client has no such id, or it is a listener.
  const QpAttributes* attributes(ClientId client, Id id);
  void list(const std::function<void(const Listing&)>& visit) const;
  // From a place on: 0, or where the last call ended; ids that come or go meanwhile may be missing. `visit` returns
  // whether it has taken the id and wants more; the place is before the one that it has not taken. 0: that was all.
  uint64_t list(uint64_t place, const std::function<bool(const Listing&)>& visit) const;
  const Counters& counters() const { return counters_; }
  // Ids, those included that nobody has any more.
  size_t size() const { return table_.size() + listeners_.size(); }
  size_t ids_of(UserId user) const { return ids_.of(user); }

 private:
  // A datagram as it arrives: all handlers of messages have the same parameters.
  struct In {
    const Datagram& datagram;
    wire::TransactionId transaction;
    uint32_t modifier;
    Time now;
    bool has_waited = false;  // for a listener
  };

  // --- arrivals
  void dispatch(const Datagram& datagram, Time now, bool has_waited);
  bool waits(const WaitingRequests::Service& service, const In& in);
  void on(const wire::Req& req, const In& in);
  void on(const wire::Mra& mra, const In& in);
  void on(const wire::Rej& rej, const In& in);
  void on(const wire::Rep& rep, const In& in);
  void on(const wire::Rtu& rtu, const In& in);
  void on(const wire::Dreq& dreq, const In& in);
  void on(const wire::Drep& drep, const In& in);
  void on(const wire::SidrReq& req, const In& in);
  void on(const wire::SidrRep& rep, const In& in);
  void on(const wire::Lap& lap, const In& in);
  void on(const wire::Apr& apr, const In& in);
  bool answer_known(const wire::Req& req, const In& in);
  struct Found {
    Listener* listener = nullptr;
    std::optional<wire::CmaHeader> names{};
    bool bad_names = false;  // nobody, but only as the CMA header cannot be read
  };
  Found find_listener(wire::ServiceId service, bool datagrams, std::span<const uint8_t> data, const Datagram& datagram);
  bool is_reached(const wire::IpAddress& address, const In& in);
  Endpoint* open_request(Listener& listener, Id remote_id, const In& in);
  void make_room(const Listener& listener, Time now);
  static Event request_event(const Endpoint& endpoint, const std::optional<wire::CmaHeader>& names);
  void respond(Endpoint& endpoint, const wire::Rep& rep, const In& in);
  Endpoint* find_stale(const wire::Req& req, const Datagram& datagram);
  void end_stale(Endpoint& endpoint, Time now);
  Endpoint* match_timeout(const wire::Rej& rej, const Datagram& datagram);
  // Whom a message is for that names ids of both sides. Null, and counted: nobody.
  Endpoint* match(Id ours, Id theirs, const Datagram& datagram);
  // Where the message itself does not matter any more, but for its private data.
  void react(Endpoint& endpoint, Reaction reaction, const PrivateData& data, const In& in);
  void repeat(const Endpoint& endpoint, wire::CmAttribute kind);
  void repeat_reply(Endpoint& endpoint, Time now);
  void refuse(Id ours, Id theirs, wire::CmAnswered message, const In& in);

  // --- sending
  void post(const Path& path, const wire::IpAddress& to, const wire::Mad& mad);
  void answer(const In& in, const wire::CmMessage& message);  // to where it came from
  // Remembered as the last message.
  void send(Endpoint& endpoint, const wire::CmMessage& message, wire::TransactionId transaction, uint32_t modifier = 0);
  void send_again(const Endpoint& endpoint);
  // Waits for the answer to what was sent last, now.
  void await(Endpoint& endpoint, Time now);
  void send_dreq(Endpoint& endpoint, const PrivateData& data, Time now);

  // --- states
  // The one place where the state changes. Once it has ended, `endpoint` may be gone.
  void enter(Endpoint& endpoint, State state, Time now);
  // Of whatever the limits count.
  template <class Change>
  void change(Endpoint& endpoint, Change&& change) {
    count(endpoint, false);
    change(endpoint);
    count(endpoint, true);
  }
  void count(const Endpoint& endpoint, bool counts);
  void mark_taken(Endpoint& endpoint);
  void expire(Endpoint& endpoint, Time now);
  bool may_repeat(Endpoint& endpoint, Time now);
  void give_up(Endpoint& endpoint, Time now);
  void end_memory(Endpoint& endpoint, Time now);
  void forget(Endpoint& endpoint);
  void say_farewell(Endpoint& endpoint, Time now);
  // Of ids that nobody has any more.
  void end(Id id, Time now);
  void end_listener(const Listener& listener, Time now);
  void end_some(Time now);

  static Event event_of(const Endpoint& endpoint, EventKind kind, int32_t status = 0);
  void tell(Endpoint& endpoint, const Event& event);
  void tell(Endpoint& endpoint, EventKind kind, int32_t status = 0, const PrivateData& data = {});

  // --- ids
  // Whether the client can have one more.
  bool room_for(ClientId client, const Account& account) const;
  Id fresh_id();
  Endpoint& open(ClientId client, const Account& account, Id id);
  bool has(ClientId client, Id id) const;
  bool disown(ClientId client, Id id);
  wire::TransactionId fresh_transaction();
  // The client's; null and an errno value: it has no such id, or a listener.
  struct Owned {
    Endpoint* endpoint;
    int error;
  };
  Owned owned(ClientId client, Id id);

  const Limits limits_;
  const std::function<uint32_t()> random_;
  Output& output_;
  Counters counters_;
  Listeners listeners_;
  WaitingRequests waiting_;
  ProvenPeers proven_;
  EndpointTable table_;
  std::map<ClientId, std::set<Id>> clients_;  // and their ids
  std::deque<std::set<Id>> leaving_;          // ids that nobody has any more and that are to be ended
  uint64_t ended_ = 0;                        // of these sets
  Shares ids_;                                // of all users, those included that nobody has any more
  std::map<uint64_t, Id> half_open_;          // the oldest first
  uint64_t last_number_ = 0;
  uint32_t abandoned_ = 0;  // that still send
  uint32_t to_end_;         // until the next on_timer()
};

}  // namespace uroce::cm
