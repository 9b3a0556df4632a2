// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/progress.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/fork.h"
#include "base/thread.h"
#include "engine/datapath/descriptors.h"

namespace uroce::engine {

namespace {

// How long a process that ends waits for a lock: about as long as leaving the netdev itself takes.
constexpr Duration kLockHeld = std::chrono::milliseconds(10);
// How soon the network is looked at again after there was no memory for its news, or so many that it was ignored.
constexpr Duration kNetworkInterval = std::chrono::milliseconds(10);
// The watch is not offered to more, since that wakes all of them.
constexpr int kMostCandidates = 8;

// Asks for short time slices (Linux 6.12), so that the calling thread runs soon after it woke even where every core is
// taken by a program that spins: ib_write_lat watches memory and leaves the packets to us. Harmless where refused.
void ask_for_short_slices() {
  struct {  // struct sched_attr, which glibc 2.36 does not declare
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  attributes.size = sizeof(attributes);
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = Duration(std::chrono::microseconds(100)).count();
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

Progress::Progress(std::unique_ptr<Datapath> datapath, int network_descriptor,
                   std::function<Time(bool)> look_at_network)
    : network_descriptor_(network_descriptor), look_at_network_(std::move(look_at_network)) {
  add(std::move(datapath));
}

Progress::~Progress() {
  stop();
  for (const int fd : {kick_descriptor_, watcher_descriptor_, offer_descriptor_}) ForkGuard().close(fd);
}

void Progress::add(std::unique_ptr<Datapath> datapath) {
  const uint32_t i = shard_count();
  shards_.at(i) = std::make_unique<Shard>(*this, std::move(datapath));
  if (i > 0) shards_[i]->lock();  // a Guard holds all of them
  count_.store(i + 1, std::memory_order_release);
}

void Progress::stop() {
  stop_.store(true);
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

bool Progress::lock_soon(Shard& shard, Time limit) {
  while (!shard.try_lock()) {
    if (monotonic_now() >= limit) return false;
    std::this_thread::sleep_for(kBrief);
  }
  return true;
}

bool Progress::locks_come_free() {
  const Time limit = monotonic_now() + kLockHeld;
  for (uint32_t i = 0; i < shard_count(); ++i) {
    if (!lock_soon(*shards_[i], limit)) return false;
    shards_[i]->unlock();
  }
  return true;
}

void Progress::settle_acks() {
  const Time limit = monotonic_now() + kLockHeld;
  for_each_shard([limit](Shard& shard) {
    if (!lock_soon(shard, limit)) return;
    const std::unique_lock holding(shard, std::adopt_lock);
    if (shard.datapath().wire() != nullptr) shard.datapath().settle_acks(monotonic_now());
  });
}

int Progress::start() {
  if (started_) {
    wake();
    return 0;
  }
  for (int* const fd : {&kick_descriptor_, &watcher_descriptor_, &offer_descriptor_}) {
    if (*fd >= 0) continue;
    ForkGuard guard;
    *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*fd < 0) return errno;
    guard.close_in_children(*fd);
  }
  try {
    thread_ = start_thread("uroce", [this] { run(); });
  } catch (const std::system_error& e) {
    return e.code().value();
  }
  started_ = true;
  wake();  // for what came before: it woke nobody
  return 0;
}

void Progress::wake() {
  if (!started_) return;
  const CallerState kept;
  add_to(kick_descriptor_);
  kick_application();
}

void Progress::kick() {
  const CallerState kept;
  if (!kick_application()) add_to(kick_descriptor_);
}

// False: no application thread watches. One that leaves meanwhile looks for kicks after it has, or that is seen here.
bool Progress::kick_application() {
  if (watcher_.load(std::memory_order_seq_cst) != Watcher::kApplication) return false;
  watcher_kicked_.store(true, std::memory_order_seq_cst);
  add_to(watcher_descriptor_);
  return watcher_.load(std::memory_order_seq_cst) == Watcher::kApplication;
}

void Progress::wake_others(const Shard& from) {
  for_each_shard([&](Shard& shard) {
    if (&shard != &from) shard.wake_if_asleep();
  });
}

Progress::Guard::Guard(Progress& progress) : progress_(progress) {
  progress_.waiting_.fetch_add(1, std::memory_order_seq_cst);
  // More may have come until the first is locked; from then on none comes.
  progress_.shard(0).lock();
  for (uint32_t i = 1; i < progress_.shard_count(); ++i) progress_.shard(i).lock();
  progress_.waiting_.fetch_sub(1, std::memory_order_seq_cst);
  progress_.for_each_shard([](Shard& shard) { shard.begin_setup(); });
}

Progress::Guard::~Guard() {
  progress_.for_each_shard([](Shard& shard) { shard.end_setup(); });
  if (!keeps_descriptors_) progress_.attendance_.note_setup();
  for (uint32_t i = progress_.shard_count(); i-- > 0;) progress_.shard(i).unlock();
  if (!progress_.started_) return;
  progress_.for_each_shard([](Shard& shard) {
    if (shard.datapath().rung()) shard.after_post();
  });
}

// --- the background thread ------------------------------------------------------------------------------------------

void Progress::run() {
  ask_for_short_slices();
  while (!stop_.load(std::memory_order_relaxed)) {
    try {
      takes_watch() ? turn() : stand_by();
    } catch (const std::bad_alloc&) {  // for the list of descriptors
      std::this_thread::sleep_for(kNoMemory);
    }
  }
}

// Threads that wait for an event are offered the watch. Who has just left it, or was offered it, has some time to come,
// unless somebody needs the thread.
bool Progress::takes_watch() {
  if (watcher_.load(std::memory_order_relaxed) != Watcher::kBackground) {
    if (!kicked_ && monotonic_now() - left_at_.load(std::memory_order_relaxed) < kDefer) return false;
    Watcher nobody = Watcher::kNobody;
    if (!watcher_.compare_exchange_strong(nobody, Watcher::kBackground, std::memory_order_seq_cst)) return false;
    if (kicked_) return true;
  }
  const int candidates = candidates_.load(std::memory_order_seq_cst);
  const bool in_vain = offered_.exchange(false);
  if (candidates == 0 || candidates > kMostCandidates || in_vain) return true;
  leave_watch();
  offered_.store(true);
  add_to(offer_descriptor_);
  return false;
}

// From now on nobody watches, until somebody comes or the background thread looks.
void Progress::leave_watch() {
  bool needed = false;
  watching_thread_.store(nullptr, std::memory_order_relaxed);
  for_each_shard([&needed](Shard& shard) { needed |= !shard.doze(); });
  left_at_.store(monotonic_now(), std::memory_order_relaxed);
  watcher_.store(Watcher::kNobody, std::memory_order_seq_cst);
  const bool kicked = watcher_kicked_.load(std::memory_order_seq_cst);
  if (kicked || needed || off_.load(std::memory_order_seq_cst)) add_to(kick_descriptor_);
}

// An application thread watches, or does so soon again. While none has left for long, the background thread is off.
void Progress::stand_by() {
  descriptors_.assign({{kick_descriptor_, POLLIN, 0}, network()});
  if (monotonic_now() - left_at_.load(std::memory_order_relaxed) >= kOff) off_.store(true, std::memory_order_seq_cst);
  const bool watched = watcher_.load(std::memory_order_seq_cst) == Watcher::kApplication;
  wait(watched && off_.load(std::memory_order_relaxed) ? Duration::max() : kDefer);
  off_.store(false, std::memory_order_seq_cst);
  if (kicked_) kick_application();
}

// Looks after every shard, and waits as the one that can wait for the shortest time allows.
void Progress::turn() {
  using Wait = WaitPolicy::Wait;
  const bool needed = std::exchange(kicked_, false);
  std::array<Wait, io::kMaxShards> waits;
  bool spin = false, streams = true;
  const uint32_t shards = shard_count();
  for (uint32_t i = 0; i < shards; ++i) {
    waits[i] = shards_[i]->turn(waited_at_, needed);
    if (waits[i] != Wait::kSpin) continue;
    spin = true;
    streams &= shards_[i]->streaming();
  }
  if (spin) return pause(streams ? kStreamPauses : 1);
  descriptors_.assign({{kick_descriptor_, POLLIN, 0}, network()});
  Duration time = look_again_ ? kNetworkInterval : Duration::max();
  bool go_on = false;
  for (uint32_t i = 0; i < shards; ++i) {
    Shard& shard = *shards_[i];
    if (waits[i] == Wait::kSleep) {
      const std::optional<Duration> sleep = shard.sleep(descriptors_);
      go_on |= !sleep;
      time = std::min(time, sleep.value_or(Duration{}));
    } else {
      const Duration most = waits[i] == Wait::kDefer ? kDefer : waits[i] == Wait::kMakeWay ? kBrief : Duration{};
      time = std::min(time, shard.doze() ? most : Duration{});
    }
  }
  if (go_on) return for_each_shard([](Shard& shard) { shard.awake(); });
  wait(time);
}

// Between two looks at the ring. Looking at it slows down who fills it, because the cache lines go back and forth;
// where nobody waits for an answer, looking less often is faster (ib_write_bw gains a third).
void Progress::pause(int pauses) {
  for (int i = 0; i < pauses; ++i) __builtin_ia32_pause();
}

// News of the network is read ten times in 100 ms at most, however much of it there is, unless packets wait for some.
pollfd Progress::network() {
  bool waited_for = false;
  for_each_shard([&](Shard& shard) { waited_for |= shard.datapath().next_hops().has_waiters(); });
  const bool deaf = monotonic_now() < deaf_until_ && !waited_for;
  return {deaf ? -1 : network_descriptor_, POLLIN, 0};
}

void Progress::wait(Duration time) {
  Time look_at = look_again_at_;
  if (descriptors_[1].fd < 0 && network_descriptor_ >= 0) look_at = std::min(look_at, deaf_until_);
  if (look_at != kNever) time = std::min(time, std::max(Duration{}, look_at - monotonic_now()));
  const timespec limit = as_timespec(time);
  const int ready =
      ppoll(descriptors_.data(), descriptors_.size(), time == Duration::max() ? nullptr : &limit, nullptr);
  if (watcher_.load(std::memory_order_relaxed) == Watcher::kBackground) {
    for_each_shard([](Shard& shard) { shard.awake(); });
  }
  waited_at_ = monotonic_now();
  kicked_ = ready > 0 && descriptors_[0].revents != 0 && take_from(kick_descriptor_);
  const bool news = ready > 0 && descriptors_[1].revents != 0;
  try {
    look_again_at_ = look_at_network_(news || look_again_);
    look_again_ = false;
  } catch (const std::bad_alloc&) {
    look_again_ = true;
  }
  if (news) deaf_until_ = waited_at_ + kNetworkInterval;
}

}  // namespace uroce::engine
