// What is behind cm/connection_manager.h. Commands and timers: manager.cc; what arrives: arrivals.cc.
#pragma once

#include <set>

#include "cm/connection_manager.h"
#include "cm/endpoint_table.h"
#include "cm/listeners.h"
#include "cm/messages.h"

namespace uroce::cm {

class ConnectionManager::Impl {
 public:
  Impl(const Limits& limits, std::function<uint32_t()> random, Output& output)
      : limits_(limits), random_(std::move(random)), output_(output) {}

  void on_datagram(const Datagram& datagram, Time now);
  Time deadline() const { return table_.deadline(); }
  void on_timer(Time now);

  Opened listen(ClientId client, const Listen& listen);
  Opened connect(ClientId client, const Connect& connect, Time now);
  int take(ClientId client, Id id);
  int accept(ClientId client, Id id, const Accept& accept, Time now);
  int confirm(ClientId client, Id id, const PrivateData& data, Time now);
  int reject(ClientId client, Id id, const Reject& reject, Time now);
  int establish(ClientId client, Id id, Time now);
  int disconnect(ClientId client, Id id, const PrivateData& data, Time now);
  int destroy(ClientId client, Id id, Time now);
  void end_client(ClientId client, Time now);

  const QpAttributes* attributes(ClientId client, Id id);
  void list(const std::function<void(const Listing&)>& visit) const;
  const Counters& counters() const { return counters_; }
  size_t size() const { return table_.size() + listeners_.size(); }

 private:
  // A datagram as it arrives: all handlers of messages have the same parameters.
  struct In {
    const Datagram& datagram;
    wire::TransactionId transaction;
    uint32_t modifier;
    Time now;
  };

  // --- arrivals
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
  Endpoint* open_request(Listener& listener, Id remote_id, const In& in);
  static Event request_event(const Endpoint& endpoint, const std::optional<wire::CmaHeader>& names);
  void respond(Endpoint& endpoint, const wire::Rep& rep, const In& in);
  void end_stale(Endpoint& endpoint, Time now);
  Endpoint* match_timeout(const wire::Rej& rej, const Datagram& datagram);
  // Whom a message is for that names ids of both sides. Null, and counted: nobody.
  Endpoint* match(Id ours, Id theirs, const Datagram& datagram);
  // Where the message itself does not matter any more, but for its private data.
  void react(Endpoint& endpoint, Reaction reaction, const PrivateData& data, const In& in);
  void repeat(const Endpoint& endpoint, wire::CmAttribute kind);
  void refuse(Id ours, Id theirs, wire::CmAnswered message, const In& in);

  // --- sending
  void post(const Path& path, const wire::IpAddress& to, const wire::Mad& mad);
  void answer(const In& in, const wire::CmMessage& message);  // to where it came from
  // Remembered as the last message.
  void send(Endpoint& endpoint, const wire::CmMessage& message, wire::TransactionId transaction, uint32_t modifier = 0);
  void send_again(const Endpoint& endpoint);
  // Waits for the answer to what was sent last.
  void await(Endpoint& endpoint, Time now);
  void send_dreq(Endpoint& endpoint, const PrivateData& data, Time now);

  // --- states
  // The one place where the state changes. Once it has ended, `endpoint` may be gone.
  void enter(Endpoint& endpoint, State state, Time now);
  // Of whatever the limits count.
  template <class Change>
  void change(Endpoint& endpoint, Change&& change) {
    count(endpoint, -1);
    change(endpoint);
    count(endpoint, +1);
  }
  void count(const Endpoint& endpoint, int sign);
  void mark_taken(Endpoint& endpoint);
  void expire(Endpoint& endpoint, Time now);
  void give_up(Endpoint& endpoint, Time now);
  void end_memory(Endpoint& endpoint, Time now);
  void abandon(Endpoint& endpoint);
  void forget(Endpoint& endpoint);
  void say_farewell(Endpoint& endpoint, Time now);
  void end_listener(const Listener& listener, Time now);

  static Event event_of(const Endpoint& endpoint, EventKind kind, int32_t status = 0);
  void tell(Endpoint& endpoint, const Event& event);
  void tell(Endpoint& endpoint, EventKind kind, int32_t status = 0, const PrivateData& data = {});

  // --- ids
  bool room_for(ClientId client) const;
  Id fresh_id();
  Endpoint& open(ClientId client);
  void disown(ClientId client, Id id);
  wire::TransactionId fresh_transaction() { return wire::TransactionId{uint64_t{random_()} << 32 | random_()}; }
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
  EndpointTable table_;
  std::map<ClientId, std::set<Id>> clients_;  // and their ids
  uint32_t half_open_ = 0;
  uint32_t abandoned_ = 0;  // that still send
};

}  // namespace uroce::cm
