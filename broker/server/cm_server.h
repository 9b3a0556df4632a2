// SPDX-License-Identifier: BSD-2-Clause
// The broker's connection manager (cm/service.h) and those who use it: a connection for each client over which it asks
// and is told of events (cm/codec.h), and QP1 (gsi_socket.h). Used by the broker's only thread, which never waits here.
//
// Clients may be hostile. kRequestsInATurn requests of each are answered in a turn, and none while it has not read what
// it was told; so what waits for it are the events of the ids that it has, which are bounded (cm::Limits), and
// kMostUnread of them. What ends with a client is ended in slices. Whoever lets more wait, or says what is no request,
// loses the connection and its ids, and nobody else does. What a client may do with addresses, ports and QP numbers is
// checked by the service.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <span>
#include <vector>

#include "broker/protocol/connections.h"
#include "broker/server/client_socket.h"
#include "broker/server/gsi_socket.h"
#include "cm/codec.h"
#include "cm/service.h"
#include "engine/net/host_net.h"
#include "engine/net/netdev_settings.h"

namespace uroce::broker {

class CmServer final : private cm::Surroundings, private cm::Output {
 public:
  static constexpr size_t kRequestsInATurn = 16;
  static constexpr size_t kMostUnread = 16384;
  static constexpr Duration kPortsStay = std::chrono::seconds(1);  // until the range for port 0 is read again
  using PortsOf = std::function<net::LocalPorts()>;

  // What it is to know of the broker's clients.
  class Clients {
   public:
    virtual bool is_others_qpn(cm::ClientId client, wire::Qpn qpn) = 0;
    // Asked once, when a client comes.
    virtual bool is_root(cm::ClientId client) = 0;
    virtual cm::Account account_of(cm::ClientId client) = 0;
    // Whether the broker has time for the user now (TimeBudget).
    virtual bool has_time_for(const cm::Account& account) = 0;
    // What it has taken since spent() was `since`, except for what others have been charged with meanwhile.
    virtual Duration spent() const = 0;
    virtual void charge(const cm::Account& account, Duration since) = 0;
    // A connection that is over, which may be slow to close.
    virtual void close_later(ClientSocket socket, const cm::Account& account) = 0;

   protected:
    ~Clients() = default;
  };
  CmServer(std::unique_ptr<net::NetView> view, const std::optional<io::FaultSpec>& faults, const cm::Limits& limits,
           Clients& clients, size_t most_unread = kMostUnread, PortsOf ports_of = net::local_ports);
  // What its clients have is left to close_later().
  ~CmServer();

  // The client's end of a new connection, in place of the one that it had. Empty: no more descriptors.
  UniqueFd open(cm::ClientId client, Time now);
  // The client is gone: its ids end and its ports are free, over as many turns as it takes (cm::Limits).
  void close(cm::ClientId client, Time now);
  // All that is left of clients that are gone, at once. Before the broker ends, as the other sides are to be told.
  void end_rest();

  // QP1: the sockets to send from, and what comes to them.
  void use(int v4, int v6) { gsi_.use(v4, v6); }
  uint32_t receive(int socket, Time now) { return gsi_.receive(socket, now); }

  // What a turn waits for, and then does.
  void add_waits(std::vector<pollfd>& waits);
  void work(std::span<const pollfd> waits, Time now);
  Time deadline() const;

  // What it is about (connections.h), as far as the user may see it (nobody named: all), in pages: at least one line,
  // of kMostSeen ids, and lines of up to `room` bytes. From place 0 on; `next` is 0 behind the last one.
  struct Page {
    std::string lines;
    uint64_t next = 0;
  };
  static constexpr size_t kMostSeen = 64;
  Page page(uint64_t place, const std::optional<cm::UserId>& viewer, size_t room) const;
  const cm::Service& service() const { return service_; }
  const GsiCounters& counters() const { return gsi_.counters(); }

 private:
  struct Client {
    ClientSocket socket;
    bool is_root;
    cm::Account account;
    std::deque<cm::Encoded> unread;
  };

  std::vector<std::string> head(const std::optional<cm::UserId>& viewer) const;
  static std::optional<std::string> line_of(const cm::Listing& listing, const std::optional<cm::UserId>& viewer);
  void answer_requests(cm::ClientId id, Client& client, Time now);
  bool answer_request(cm::ClientId id, Client& client, Time now);
  void tell(cm::ClientId id, Client& client, const cm::Encoded& message);
  void write_unread(cm::ClientId id, Client& client);
  void end_lost(Time now);

  // cm::Surroundings
  bool has_address(uint32_t netdev, const wire::IpAddress& address) override {
    return host_.has_address(netdev, address);
  }
  bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) override {
    return host_.reaches(netdev, local, remote);
  }
  wire::Guid guid(uint32_t netdev) override { return host_.guid(netdev); }
  bool is_others_qpn(cm::ClientId client, wire::Qpn qpn) override { return others_.is_others_qpn(client, qpn); }
  bool is_privileged(cm::ClientId client) override { return clients_.at(client).is_root; }
  cm::Account account_of(cm::ClientId client) override { return clients_.at(client).account; }
  cm::PortRange port_range() override;
  // cm::Output
  void send(const cm::Datagram& datagram) override { gsi_.send(datagram, now_); }
  void on_event(const cm::Event& event) override;

  Clients& others_;
  const size_t most_unread_;
  const PortsOf ports_of_;
  cm::PortRange ports_;
  Time ports_stay_until_{};
  const std::unique_ptr<net::NetView> view_;
  net::HostNet host_;
  GsiCapture capture_;
  GsiSocket gsi_;
  Time now_{};  // of the call that the service is in
  cm::Service service_;
  std::map<cm::ClientId, Client> clients_;
  std::vector<cm::ClientId> waiting_;  // whose sockets are waited for in this turn
  std::set<cm::ClientId> lost_;        // whose connections are of no use any more
};

}  // namespace uroce::broker
