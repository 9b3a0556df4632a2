// SPDX-License-Identifier: BSD-2-Clause
// A process's connection to the broker of its host, and the leases that it has from it. Used by the engine when it
// opens packet I/O (process/open_io.cc).
//
// Packets do not need the broker: when it dies, everything that is open goes on. A thread waits for the next broker
// then, as long as somebody has the link, and claims the leases from it. It also writes the process's statistics for
// whom the broker brings.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "broker/protocol/lease_range.h"
#include "broker/protocol/port_sockets.h"
#include "broker/protocol/protocol.h"
#include "engine/io/same_host/peer.h"

namespace uroce::broker {

class Link;

// A range of QP numbers on one netdev, and the sockets that get their packets. Ends with the object.
class Lease {
 public:
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const LeaseRange& range() const { return range_; }
  // Descriptors of the sockets, open as long as the lease; -1: there is none.
  int socket_v4() const { return sockets_.v4.get(); }
  int socket_v6() const { return sockets_.v6.get(); }

  // Other processes of this host that QPs of this range exchange packets with are handed to `take` from now on, in a
  // thread of the link. Null: no more.
  // `part` is told there that who has been handed over has his range no longer, or without a range, that no stranger's
  // is known to be his any more: another broker does not know who has met whom. `tend` is called soon after each
  // ask_to_tend().
  using TakePeer = std::function<bool(uint32_t range, io::PeerEnd&& end)>;
  using PartFrom = std::function<void(std::optional<uint32_t> range)>;
  void take_peers(TakePeer take, PartFrom part, std::function<void()> tend);
  // Asks for the process with that range, if there is one. Any thread; takes no lock.
  void meet(uint32_t range);
  void ask_to_tend();

 private:
  friend class Link;
  Lease(std::shared_ptr<Link> link, int ifindex, Plane plane, LeaseRange range, PortSockets sockets);

  const std::shared_ptr<Link> link_;
  const int ifindex_;
  const Plane plane_;
  const LeaseRange range_;
  PortSockets sockets_;
  // Under the link's lock, as are the next three; but `tend_` is called without it.
  TakePeer take_peer_;
  PartFrom part_;
  std::function<void()> tend_;
  std::map<uint32_t, std::unique_ptr<io::PeerMemory>> prepared_;  // by range of whoever is to read it
  std::atomic<bool> to_tend_{false};
  std::array<std::atomic<uint64_t>, LeaseRange::kLastNumber / 64 + 1> wishes_{};  // bits: whom to ask for
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  // `address`: where to look for the broker. Empty: root's, or else the user's own one, if it is there. "none":
  // nowhere. Null: there is no broker, and none is needed.
  // `report`: what the process says of itself (broker/protocol/statistics.h), with QPs one by one up to `most_qps`;
  // called in a thread. Null: the process has nothing to say, is not shown (uroce stat), and does not wait for later
  // brokers.
  using Report = std::function<std::string(uint32_t most_qps)>;
  static std::variant<std::shared_ptr<Link>, io::IoError> open(const std::string& address, Report report);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Waits for the answer, two seconds at most. `netdev`: its name, for error texts.
  std::variant<std::shared_ptr<Lease>, io::IoError> lease(int ifindex, const std::string& netdev, Plane plane);

  // Nobody else of this host has the DPDK port of that name, as long as what is returned is there. Its error names who
  // has it.
  std::variant<std::shared_ptr<const void>, io::IoError> hold(const std::string& port);

  // A new connection to the broker's connection manager (broker_agent.h), closed in children, in place of the one that
  // the process had; finds the next broker if this one has ended.
  std::variant<UniqueFd, io::IoError> open_cm();

  // "uroced 0.1.0, process 123"
  std::string description() const;
  // The connection stays open in programs that this process executes, so that the broker is there when they need it.
  void keep_for_programs();

 private:
  friend class Lease;
  struct Came;
  Link(std::string address, Report report);

  std::variant<std::monostate, io::IoError> connect_patiently();
  std::variant<std::monostate, io::IoError> connect();
  std::variant<std::monostate, io::IoError> greet(int socket);
  std::optional<io::IoError> reconnect();
  void watch();
  void listen_until_end();
  bool listen(uint64_t connection);
  void report(int file, uint32_t most_qps) const;
  Lease* lease_of(uint32_t range) const;
  void tend(uint32_t range);
  void prepare(const Message& message, const UniqueFd& memory);
  void hand_over(const Message& message, Descriptors& came);
  bool take_peer(const Message& message, UniqueFd& memory, io::PeerEnd& end);
  void part(const Message& message);
  void look_after_leases();
  void disconnect();
  bool take_up_again();
  bool claim_leases();
  bool claim_ports();
  void release(const std::string& port);
  void say_once(const std::string& text);
  void end(Lease& lease);
  std::variant<Message, io::IoError> ask(const Message& request, std::span<const int> descriptors, Came& came);

  const std::string address_;  // empty: the usual ones
  const Report report_;
  mutable std::mutex lock_;
  int socket_ = -1;           // closed in children (ForkGuard)
  int reports_ = -1;          // where the broker says what is no answer; likewise
  uint64_t connections_ = 0;  // that there have been
  std::string broker_;
  std::vector<Lease*> leases_;
  std::vector<std::string> ports_;
  std::string said_;  // the last reason for which a later broker does not serve this process

  const UniqueFd event_;  // readable when a lease has something for the watching thread to do
};

}  // namespace uroce::broker
