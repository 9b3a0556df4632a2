// SPDX-License-Identifier: BSD-2-Clause
// Requests that wait for a listener: for a service that had one a moment ago, or whose port somebody has. Programs that
// end their listener and listen anew at once (perftest with -R does, for its control connection and then for its QPs)
// race with their peers; whoever comes between the two finds nobody, and is told so for good. So such a request is not
// refused at once (cm.md "Ports"). Likewise programs that tell their peers the port before they listen (qperf 0.4.11).
// Part of ConnectionManager.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/time.h"
#include "cm/types.h"

namespace uroce::cm {

class WaitingRequests {
 public:
  // How long after the end of a service's listener requests for it wait, and for how long each. Services that are ports
  // count as one whatever their port space: perftest's QPs of datagrams come after a control connection of RDMA_PS_TCP.
  static constexpr Duration kMemory = std::chrono::seconds(2);
  static constexpr Duration kPatience = std::chrono::seconds(2);

  // More services are forgotten, the oldest first; more requests are refused at once.
  WaitingRequests(uint32_t most_services, uint32_t most_requests)
      : most_services_(most_services), most_requests_(most_requests) {}

  struct Service {
    wire::ServiceId id{};
    bool datagrams = false;
    auto operator<=>(const Service&) const = default;
  };

  // A listener has ended.
  void ended(wire::ServiceId service, Time now);
  // A listener is there.
  void begun() { look_ = !requests_.empty(); }
  // Nobody listens for what `request` asks. `bound`: somebody has its port. True: it is remembered, or was already, and
  // is not to be answered now.
  bool keep(const Service& service, const Datagram& request, bool bound, Time now);

  // When take() has something to do.
  Time deadline() const;
  // Those to be handed in again: whose time is over, or of whose service `listens` says that somebody listens.
  std::vector<Datagram> take(const std::function<bool(const Service&)>& listens, Time now);

 private:
  struct Request {
    Service service;
    Datagram datagram;
    Time until;
  };

  void forget_oldest();

  const uint32_t most_services_, most_requests_;
  // Until when requests wait: by port, or by service id where it is none. And in the order of these times, each of
  // which a later one may have replaced.
  std::map<uint64_t, Time> services_;
  std::deque<std::pair<uint64_t, Time>> order_;
  std::deque<Request> requests_;  // in the order of their ends
  bool look_ = false;
};

}  // namespace uroce::cm
