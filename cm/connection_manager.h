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
// id until it calls destroy(), whatever happens to the connection. What it may do with an id and what each message does
// to it are tables: cm/connection_states.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cm/counters.h"
#include "cm/types.h"
#include "engine/base/time.h"

namespace uroce::cm {

class Output {
 public:
  virtual void send(const Datagram& datagram) = 0;
  // In the order in which things happened. `event` ends with the call.
  virtual void on_event(const Event& event) = 0;

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
  ConnectionManager(const Limits& limits, std::function<uint32_t()> random, Output& output);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // --- the network
  // ----------------------------------------------------------------------------------------------------
  void on_datagram(const Datagram& datagram, Time now);
  Time deadline() const;
  void on_timer(Time now);

  // --- commands. ENOENT: the client has no such id. EINVAL: not in this state, or a value that cannot be sent.
  // --------- EADDRINUSE: somebody listens there. ENFILE: too many ids.
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
  // The client has died: all of its ids are destroyed.
  void end_client(ClientId client, Time now);

  // --- for who looks on
  // ----------------------------------------------------------------------------------------------- The QP attributes
  // agreed on so far. Null: the client has no such id, or it is a listener.
  const QpAttributes* attributes(ClientId client, Id id);
  void list(const std::function<void(const Listing&)>& visit) const;
  const Counters& counters() const;
  size_t size() const;  // ids, those of nobody included

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::cm
