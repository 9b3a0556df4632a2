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

namespace uroce::engine {

namespace {

// While applications poll: how soon the background thread notices that they stopped.
constexpr Duration kDefer = std::chrono::microseconds(500);
// How long it waits between two looks at the ring while a stream comes in (about a microsecond).
constexpr int kStreamPauses = 60;
// How long a process that ends waits for a lock: about as long as leaving the netdev itself takes.
constexpr Duration kLockHeld = std::chrono::milliseconds(10);
// How soon the network is looked at again after there was no memory for its news, or so many that it was ignored.
constexpr Duration kNetworkInterval = std::chrono::milliseconds(10);
// Where there is no memory for the list of descriptors.
constexpr Duration kNoMemory = std::chrono::milliseconds(1);

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
  ForkGuard().close(kick_descriptor_);
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
  kick();
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
    kick();
    return 0;
  }
  if (kick_descriptor_ < 0) {
    ForkGuard guard;
    kick_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (kick_descriptor_ < 0) return errno;
    guard.close_in_children(kick_descriptor_);
  }
  try {
    thread_ = start_thread("uroce", [this] { run(); });
  } catch (const std::system_error& e) {
    return e.code().value();
  }
  started_ = true;
  kick();  // for what came before: it woke nobody
  return 0;
}

void Progress::kick() {
  const CallerState kept;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(kick_descriptor_, &one, sizeof(one));
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
      turn();
    } catch (const std::bad_alloc&) {  // for the list of descriptors
      std::this_thread::sleep_for(kNoMemory);
    }
  }
}

// Looks after every shard, and waits as the one that can wait for the shortest time allows.
void Progress::turn() {
  using Wait = WaitPolicy::Wait;
  std::array<Wait, io::kMaxShards> waits;
  bool spin = false, streams = true;
  const uint32_t shards = shard_count();
  for (uint32_t i = 0; i < shards; ++i) {
    waits[i] = shards_[i]->turn(waited_at_);
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
  const timespec limit{time.count() / 1000000000, time.count() % 1000000000};
  const int ready =
      ppoll(descriptors_.data(), descriptors_.size(), time == Duration::max() ? nullptr : &limit, nullptr);
  for_each_shard([](Shard& shard) { shard.awake(); });
  waited_at_ = monotonic_now();
  if (ready > 0 && descriptors_[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(kick_descriptor_, &count, sizeof(count));
  }
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
