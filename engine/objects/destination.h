// SPDX-License-Identifier: BSD-2-Clause
// Where packets between two addresses go: what the kernel's routes and its neighbour table say of them. All QPs and
// address handles with the same addresses share one, so that a route which changes is looked up once and applied once.
#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/time.h"
#include "engine/congestion/controller.h"
#include "engine/net/net_view.h"
#include "engine/transport/common/run_trial.h"
#include "engine/transport/reliable/probe_budget.h"
#include "wire/envelope.h"

namespace uroce::engine {

// A QP that has packets for a next hop whose MAC address is being looked for. Nothing is pulled from it meanwhile.
struct NextHopWaiter : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
  bool waits() const { return is_linked(); }
  void stop_waiting() { unlink(); }
};
using NextHopWaiters = boost::intrusive::list<NextHopWaiter, boost::intrusive::constant_time_size<false>>;

class Destination;
using DestinationHook = boost::intrusive::list_member_hook<>;

class Destination : public std::enable_shared_from_this<Destination> {
 public:
  struct Route {
    wire::MacAddress source_mac{};
    uint8_t hop_limit = 64;
    uint32_t mtu = 0;             // bytes the route allows, L3; 0: not known
    bool loopback = false;        // the peer is this very device
    bool local_delivery = false;  // sockets of this host may hear it all the same: a group, another netdev's address
    wire::MacAddress mac{};       // the peer's; where `next_hop` is null
    std::shared_ptr<net::NextHop> next_hop;
  };

  Destination(const wire::IpAddress& its_source, const wire::IpAddress& its_address,
              congestion::Algorithm algorithm = congestion::Algorithm::kAuto)
      : source(its_source), address(its_address), congestion(algorithm) {}

  const wire::IpAddress source;
  const wire::IpAddress address;

  Route route;  // changed under the progress lock

  // Of Device, under its set-up lock: NetView's generation when the route was looked up.
  uint64_t generation = 0;

  // Of Datapath, under the progress lock.
  transport::ProbeBudget probes;  // of the QPs connected to it
  transport::RunTrial runs;
  congestion::Controller congestion;  // of all packets to it
  NextHopWaiters waiters;
  Time waits_since = kNever;                      // since when there have been packets for a next hop without address
  Time gives_up_at = kNever;                      // when the first of the waiters no longer waits
  std::shared_ptr<Destination> while_waited_for;  // itself
  DestinationHook hook;
};

using WaitedFor =
    boost::intrusive::list<Destination, boost::intrusive::member_hook<Destination, DestinationHook, &Destination::hook>,
                           boost::intrusive::constant_time_size<false>>;

// The destinations that somebody holds. Not thread-safe.
class Destinations {
 public:
  explicit Destinations(congestion::Algorithm algorithm = congestion::Algorithm::kAuto) : algorithm_(algorithm) {}

  // The one between two addresses; a new one has no route yet.
  std::shared_ptr<Destination> get(const wire::IpAddress& source, const wire::IpAddress& address) {
    std::weak_ptr<Destination>& known = all_[{source.bytes, address.bytes}];
    std::shared_ptr<Destination> destination = known.lock();
    if (destination) return destination;
    known = destination = std::make_shared<Destination>(source, address, algorithm_);
    if (all_.size() >= sweep_at_) sweep();
    return destination;
  }

  std::vector<std::shared_ptr<Destination>> held() const {
    std::vector<std::shared_ptr<Destination>> held;
    for (const auto& [key, weak] : all_) {
      if (auto destination = weak.lock()) held.push_back(std::move(destination));
    }
    return held;
  }

 private:
  static constexpr size_t kFewest = 64;

  void sweep() {
    std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kFewest, 2 * all_.size());
  }

  std::map<std::pair<std::array<uint8_t, 16>, std::array<uint8_t, 16>>, std::weak_ptr<Destination>> all_;
  size_t sweep_at_ = kFewest;
  const congestion::Algorithm algorithm_;
};

}  // namespace uroce::engine
