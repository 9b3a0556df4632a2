// SPDX-License-Identifier: BSD-2-Clause
// Manager's thread: letters of the connection manager, channels that nobody has any more, next hops that are found or
// not, QPs whose first packet stands for the RTU, netdevs that change.
#include "base/thread.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <new>
#include <sys/epoll.h>
#include <system_error>
#include <thread>

#include "abi/rdma_cm_file/manager.h"
#include "base/clock.h"
#include "base/fork.h"

namespace uroce::rdma_cm {
namespace {

constexpr uint64_t kWake = 0, kNetwork = UINT64_MAX;  // what epoll says; all else: inodes of channels
constexpr Duration kLookInterval = std::chrono::milliseconds(100);
constexpr Duration kNeighbourInterval = std::chrono::milliseconds(100);
constexpr Duration kAfterError = std::chrono::milliseconds(20);  // until memory may be there again

// Until `until`, rounded up, so that it is over then.
int milliseconds_until(Time until, Time now) {
  if (until == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(until - now, Duration{})).count();
  return static_cast<int>(std::min<int64_t>(left, INT_MAX));
}

}  // namespace

// The first channel is about to be opened. The lock is held.
void Manager::start() {
  if (thread_.joinable()) return;
  if (epoll_ < 0) {
    ForkGuard guard;
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll");
    guard.close_in_children(epoll_);
  }
  watch(mailbox_->descriptor(), kWake);
  if (environment_.view->descriptor() >= 0) watch(environment_.view->descriptor(), kNetwork);
  thread_ = start_thread("uroce rdma_cm", [this] { run(); });
}

void Manager::watch(int descriptor, uint64_t key) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0 && errno != EEXIST) {
    throw std::system_error(errno, std::generic_category(), "epoll");
  }
}

void Manager::run() {
  std::array<epoll_event, 64> ready{};
  Time next{};
  while (!mailbox_->ended()) {
    bool failed = false;
    const Time due = std::min(next, environment_.view->due());
    const int count =
        epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), milliseconds_until(due, monotonic_now()));
    try {
      // Without the lock, and before anybody looks at what has changed.
      environment_.view->process_changes();
      const auto letters = mailbox_->take();
      const std::lock_guard guard(lock_);
      for (int i = 0; i < count; ++i) on_descriptor(ready[static_cast<size_t>(i)].data.u64);
      work_off(letters);
      if (mailbox_->take_network_change()) follow_network();
      next = on_timers();
    } catch (const std::bad_alloc&) {  // whatever was to be told is lost
      failed = true;
    } catch (const std::system_error&) {
      failed = true;
    }
    // What is due is still due, and what is readable still readable: without a pause this would be a busy loop.
    if (failed) std::this_thread::sleep_for(kAfterError);
  }
}

void Manager::on_descriptor(uint64_t key) {
  if (key == kWake || key == kNetwork) return;
  const auto found = channels_.find(key);
  if (found == channels_.end()) return;
  const ChannelPtr channel = found->second;
  if (channel->discard_arrivals()) {
    std::fputs(
        "uroce: rdma_cm: a command reached the kernel past uroce: the program is linked statically, or loads librdmacm "
        "with RTLD_DEEPBIND or dlmopen(), which uroce cannot serve\n",
        stderr);
  }
  if (channel->hung_up()) release(channel);
}

void Manager::work_off(const std::vector<Mailbox::Letter>& letters) {
  for (const Mailbox::Letter& letter : letters) {
    if (const auto* const event = std::get_if<cm::Event>(&letter)) {
      on_event(*event);
    } else if (std::holds_alternative<Mailbox::Loss>(letter)) {
      on_loss();
    } else {
      on_return();
    }
  }
}

// Of ids that have a device: whether it is still there, and the same.
void Manager::follow_network() {
  const auto devices = environment_.devices();
  ids_.for_each([&](const IdPtr& id) {
    if (id->device.netdev == 0 || id->state == State::kRemoved || id->uid == 0) return;
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const engine::DeviceInfo& device) {
      return static_cast<uint32_t>(device.netdev.index) == id->device.netdev;
    });
    if (found == devices.end()) {
      resolving_.erase(id);
      awaiting_rtu_.erase(id);
      id->state = State::kRemoved;
      queue(id, abi::EventKind::kDeviceRemoval);
    } else if (found->netdev.mac != id->device.mac) {
      id->device.mac = found->netdev.mac;
      queue(id, abi::EventKind::kAddrChange);
    }
  });
}

Time Manager::on_timers() {
  const Time now = monotonic_now();
  return std::min(resolve_on(now), establish_on(now));
}

Time Manager::resolve_on(Time now) {
  Time next = kNever;
  const auto pending = resolving_;
  for (const IdPtr& id : pending) {
    net::NextHop& hop = *id->resolution->next_hop;
    if (!id->resolution->complete() && now < id->resolve_until && now >= id->ask_again) {
      id->ask_again = now + kNeighbourInterval;
      environment_.view->resolve_neighbour(id->resolution->netdev, hop.address);
      hop.await();
    }
    if (id->resolution->complete()) {
      end_resolving(id);
    } else if (now >= id->resolve_until) {
      fail_resolving(id, ETIMEDOUT);
    } else {
      next = std::min({next, id->ask_again, id->resolve_until});
    }
  }
  return next;
}

// The RTU and the first packet have no order: whichever comes first, the connection is established.
Time Manager::establish_on(Time now) {
  if (awaiting_rtu_.empty()) return kNever;
  if (now < next_look_) return next_look_;
  next_look_ = now + kLookInterval;
  for (const IdPtr& id : awaiting_rtu_) {
    if (environment_.has_received(id->device.netdev, id->qpn)) ask(cm::EstablishRequest{id->cm});
  }
  return next_look_;
}

}  // namespace uroce::rdma_cm
