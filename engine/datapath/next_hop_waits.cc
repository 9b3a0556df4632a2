// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/next_hop_waits.h"

#include <algorithm>
#include <utility>

namespace uroce::engine {
namespace {

// While packets wait for a next hop: how often the kernel is asked for it.
constexpr Duration kAskAgain = std::chrono::milliseconds(100);

}  // namespace

NextHopWaits::~NextHopWaits() {
  while (!waited_for_.empty()) stop_waiting_for(waited_for_.front());
}

void NextHopWaits::attach(bool kernel_routes, std::function<void()> ask) {
  kernel_routes_ = kernel_routes;
  ask_ = std::move(ask);
}

// Without a MAC address connected QPs wait as long as the kernel looks for one (three probes of a second), and then
// send as if the packets were lost on the wire: the retry budget decides. Datagrams of one QP go to many, so they wait
// only as long as an answer usually takes. Once the kernel has given up nobody waits until the next hop is found after
// all.
NextHopWaits::Reach NextHopWaits::reach(Path& path, const Qp& qp, Time now) {
  constexpr Duration kPatience = std::chrono::seconds(4);
  constexpr Duration kDatagramPatience = std::chrono::milliseconds(20);
  if (path.to == nullptr) return Reach::kNow;
  Destination& to = *path.to;
  wire::Envelope& e = path.envelope;
  e.source_mac = to.route.source_mac;
  e.hop_limit = path.hop_limit != 0 ? path.hop_limit : to.route.hop_limit;
  if (to.route.next_hop == nullptr || kernel_routes_) {
    e.destination_mac = to.route.mac;
    return Reach::kNow;
  }
  net::NextHop& hop = *to.route.next_hop;
  net::Neighbour neighbour = hop.neighbour();
  if (neighbour.state != net::NeighbourState::kUsable) {
    want(to.route.next_hop, now);
    if (!neighbour.has_mac()) hop.await();
    neighbour = hop.neighbour();
  }
  if (neighbour.has_mac()) {
    e.destination_mac = neighbour.mac;
    to.waits_since = kNever;
    return Reach::kNow;
  }
  if (neighbour.state == net::NeighbourState::kFailed) return Reach::kNot;
  if (to.waits_since == kNever || now - to.waits_since > 2 * kPatience) to.waits_since = now;
  const Time end = to.waits_since + (qp.is_ud() ? kDatagramPatience : kPatience);
  if (now >= end) return Reach::kNot;
  to.gives_up_at = std::min(to.gives_up_at, end);
  return Reach::kLater;
}

void NextHopWaits::want(const std::shared_ptr<net::NextHop>& hop, Time now) {
  if (wanted_.size() == kMostWanted || !hop->ask_now(now)) return;
  wanted_.push_back(hop);
  if (!wants_some_.exchange(true, std::memory_order_relaxed) && ask_) ask_();
}

void NextHopWaits::wait(Qp& qp, Destination& to, Time now) {
  qp.stop_waiting();
  to.waiters.push_back(qp);
  if (!to.hook.is_linked()) {
    to.while_waited_for = to.shared_from_this();
    waited_for_.push_back(to);
    has_waiters_.store(true, std::memory_order_relaxed);
  }
  deadline_ = std::min({deadline_, to.gives_up_at, now + kAskAgain});
}

void NextHopWaits::stop_waiting_for(Destination& to) {
  waited_for_.erase(waited_for_.iterator_to(to));
  to.gives_up_at = kNever;
  to.while_waited_for.reset();  // it may be gone now
}

// Those whose next hop has been found, or has not in time, and those that another route has set free.
void NextHopWaits::look_after(Time now, Schedule& schedule) {
  const bool news = changed_.load(std::memory_order_relaxed) && changed_.exchange(false);
  if (!news && now < deadline_) return;
  deadline_ = kNever;
  for (auto it = waited_for_.begin(); it != waited_for_.end();) {
    Destination& to = *it++;
    const net::NextHop* const hop = to.route.next_hop.get();
    const net::NeighbourState state = hop == nullptr ? net::NeighbourState::kUsable : hop->neighbour().state;
    const bool open = state == net::NeighbourState::kUnknown || state == net::NeighbourState::kResolving;
    if (open && now < to.gives_up_at && !to.waiters.empty()) {
      want(to.route.next_hop, now);  // what the last question brought may have been deleted meanwhile
      deadline_ = std::min({deadline_, to.gives_up_at, now + kAskAgain});
      continue;
    }
    NextHopWaiters woken;
    woken.splice(woken.end(), to.waiters);
    stop_waiting_for(to);
    while (!woken.empty()) {
      auto& qp = static_cast<Qp&>(woken.front());
      qp.stop_waiting();
      schedule.reschedule(qp, now);
    }
  }
  has_waiters_.store(!waited_for_.empty(), std::memory_order_relaxed);
}

}  // namespace uroce::engine
