// SPDX-License-Identifier: BSD-2-Clause
// Who gets the packets of UDP port 4791 among the processes of a network namespace. The broker makes all sockets on the
// port, one SO_REUSEPORT group for each IP version that is bound to no netdev, and the kernel picks the member by the
// packet's QPN. Two kinds: MapSteering (map.h, with privileges) and SlotSteering (slots.h, without).
// Used by the broker's only thread. The caller sees to it that this network namespace has no other broker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/time.h"
#include "broker/protocol/lease_range.h"
#include "broker/protocol/port_sockets.h"
#include "broker/steering/staging.h"

namespace uroce::broker {

class Steering {
 public:
  // The best kind that is to be had. Errors say who has the port; EAGAIN: perhaps a broker, which may end soon.
  static io::IoResult<Steering> open();
  virtual ~Steering() = default;
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;

  // Clients of other users can be served: no client takes another's packets, stops them or changes the steering.
  bool isolates() const { return isolation_obstacle().empty(); }
  // Why not, for people.
  virtual const std::string& isolation_obstacle() const = 0;
  // Ranges 1 to this can be leased.
  virtual uint32_t last_number() const = 0;

  // Clients of an earlier broker live, and their packets are steered as that one has left it. Until start() they are
  // readmitted and nobody is admitted. Otherwise start() is called at once.
  virtual bool inherits() const = 0;
  // From now on packets are steered by this broker. An error: nobody has brought what is needed (`kept`).
  virtual std::optional<io::IoError> start() = 0;

  // Sockets for a new client: they get the range's packets from now on. The range is_free(); the caller keeps it free
  // for as long as packets of an earlier client can be under way. The caller passes the descriptors on and closes them.
  // `without_copies`: as in LeaseId, where that can be had.
  virtual std::variant<PortSockets, io::IoError> admit(LeaseRange range, bool without_copies) = 0;
  // Sockets that a client of an earlier broker brings, also after start(): whose range is found by looking at them.
  // Nothing that the client says is believed. If somebody has the range by an earlier lease, whose sockets it had only
  // kept, that one has lost it. Waits for whoever has one of these sockets locked.
  virtual std::variant<LeaseRange, io::IoError> readmit(PortSockets sockets) = 0;
  // How that is done without waiting. Null: it serves its owner only, for whom it may wait.
  virtual Staging* staging() { return nullptr; }
  // The client is gone or has given the range back: its packets are counted as nobody's from now on.
  virtual void dismiss(LeaseRange range) = 0;
  // Of a range that nobody leases: it may be admitted. Not while somebody has sockets of an earlier lease.
  virtual bool is_free(LeaseRange range, Time now) const = 0;

  // The broker's own sockets, to which packets come that are for no lease: those for QP1 (broker/server/gsi_socket.h),
  // and those that are for nobody. -1: there is none, or not before start().
  virtual int own_socket(int family) const = 0;
  // Takes what waits at one of them, a bounded number of messages, and says how many packets were for nobody. Without
  // one all are.
  using ReadOwn = std::function<uint32_t(int socket)>;
  void read_own_with(ReadOwn read) { read_own_ = std::move(read); }

  // Readable when work() has something to do.
  virtual int descriptor() const = 0;
  // Makes sockets in advance, and reads packets that are for no lease, a bounded number. Worth a call as well when
  // requests have been answered and there is time: the next lease is quicker.
  virtual void work() = 0;
  // A process that it has begun may still have copies of all that is open in the broker: what is closed here now it may
  // be the last to close.
  virtual bool has_starting_child() const { return false; }
  // Packets (runs counted as one) that were for nobody. Tests see by it where such packets go.
  uint64_t unclaimed() const { return unclaimed_; }

 protected:
  static constexpr uint32_t kOwn = 0;  // the broker's own sockets are where a range of this number would have its

  Steering() = default;
  uint64_t unclaimed_ = 0;
  ReadOwn read_own_ = discard_packets;
};

}  // namespace uroce::broker
