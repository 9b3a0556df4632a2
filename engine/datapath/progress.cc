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
#include "base/signals.h"
#include "base/spare_cpu.h"
#include "base/thread.h"
#include "engine/datapath/spin_habit.h"

namespace uroce::engine {

namespace {

// How long it waits between two looks at the ring while a stream comes in (about a microsecond).
constexpr int kStreamPauses = 60;
// How long a process that ends waits for a lock: about as long as leaving the netdev itself takes.
constexpr Duration kLockHeld = std::chrono::milliseconds(10);
// How soon the network is looked at again after there was no memory for its news, or so many that it was ignored.
constexpr Duration kNetworkInterval = std::chrono::milliseconds(10);
// Where there is no memory for the list of descriptors.
constexpr Duration kNoMemory = std::chrono::milliseconds(1);

// While threads wait for events in this place of the background thread: after so long without one it is off.
constexpr Duration kOff = std::chrono::milliseconds(100);

// When a stream has paused for so long it is over. The program has other things to do as well.
constexpr Duration kStreamPause = std::chrono::microseconds(30), kLongestService = std::chrono::microseconds(500);
// How often a program that is about to wait tries to leave nothing behind.
constexpr int kMostLooks = 4;

// The watch is not offered to more, since that wakes all of them.
constexpr int kMostCandidates = 8;

void add_to(int eventfd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(eventfd, &one, sizeof(one));
}

// False: there was nothing in it.
bool take_from(int eventfd) {
  uint64_t count;
  return read(eventfd, &count, sizeof(count)) == static_cast<ssize_t>(sizeof(count));
}

timespec as_timespec(Duration time) {
  return {time.count() / 1'000'000'000, time.count() % 1'000'000'000};
}

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

// --- a thread that waits for an event -------------------------------------------------------------------------------

// Of this thread.
[[gnu::tls_model("initial-exec")]] thread_local SpinHabit spin_habit;

// Also where the thread is cancelled.
class Progress::Watching {
 public:
  explicit Watching(Progress& progress) : progress_(progress) {}
  ~Watching() {
    const CallerState kept;
    progress_.leave_watch();
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  Progress& progress_;
};

bool Progress::has_waiters() const {
  const Time now = monotonic_now();
  return now - left_at_.load(std::memory_order_relaxed) < kOff || attendance_.lasts(now);
}

// Who waits while another one watches.
class Progress::Candidate {
 public:
  explicit Candidate(Progress& progress) : progress_(progress) {
    progress_.candidates_.fetch_add(1, std::memory_order_seq_cst);
    here = &progress_;
  }
  ~Candidate() {
    here = nullptr;
    progress_.candidates_.fetch_sub(1, std::memory_order_seq_cst);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;

  [[gnu::tls_model("initial-exec")]] static inline thread_local const Progress* here = nullptr;  // this thread is one

 private:
  Progress& progress_;
};

// A signal handler has left the thread's last wait by siglongjmp(): nothing has been unwound.
void Progress::forget_jump() {
  if (std::exchange(Candidate::here, nullptr) == this) candidates_.fetch_sub(1, std::memory_order_seq_cst);
  if (watcher_.load(std::memory_order_relaxed) == Watcher::kApplication &&
      watching_thread_.load(std::memory_order_relaxed) == this_thread()) {
    leave_watch();
  }
}

Waited Progress::wait_for_event(const LookForEvent& look, int fd) {
  if (!started_) return wait_without_packets(fd);
  forget_jump();
  while (true) {
    Watcher watcher = Watcher::kNobody;
    if (watcher_.compare_exchange_strong(watcher, Watcher::kApplication, std::memory_order_seq_cst)) {
      return watch(look, fd);
    }
    const Candidate candidate(*this);
    if (watcher == Watcher::kBackground) {
      offered_.store(false);  // somebody is there to take it
      wake();
    }
    std::array<pollfd, 2> descriptors{{{fd, POLLIN, 0}, {offer_descriptor_, POLLIN, 0}}};
    const int ready = ppoll(descriptors.data(), descriptors.size(), nullptr, nullptr);
    if (ready < 0) return errno == EINTR && calls_go_on_after_signals() ? Waited::kLook : Waited::kInterrupted;
    if (descriptors[1].revents != 0) take_from(offer_descriptor_);
    if (descriptors[0].revents != 0 || look([] {})) return Waited::kLook;
  }
}

Waited Progress::wait_without_packets(int fd) {
  pollfd descriptor{fd, POLLIN, 0};
  if (ppoll(&descriptor, 1, nullptr, nullptr) >= 0 || (errno == EINTR && calls_go_on_after_signals()))
    return Waited::kLook;
  return Waited::kInterrupted;
}

Waited Progress::watch(const LookForEvent& look, int fd) {
  const Watching watching(*this);
  watching_thread_.store(this_thread(), std::memory_order_relaxed);
  offered_.store(false);
  for_each_shard([](Shard& shard) { shard.awake(); });
  watcher_kicked_.store(false, std::memory_order_seq_cst);
  const Time began = monotonic_now();
  Duration awake = has_spare_cpu(began) ? spin_habit.begin(began) : Duration{};
  while (true) {
    if (look([this] { for_each_shard([](Shard& shard) { shard.serve(); }); })) {
      end_wait();
      return Waited::kLook;
    }
    if (awake > Duration{}) {
      pause(1);
      if (monotonic_now() - began < awake) continue;
      awake = {};
    }
    std::optional<Duration> time;
    try {
      watched_.assign({{watcher_descriptor_, POLLIN, 0}, {fd, POLLIN, 0}});
      time = prepare_to_sleep();
    } catch (const std::bad_alloc&) {
      time = kNoMemory;
      watched_.clear();
    }
    int ready = 0;
    if (time) {
      const timespec limit = as_timespec(*time);
      ready = ppoll(watched_.data(), watched_.size(), *time == Duration::max() ? nullptr : &limit, nullptr);
    }
    const int error = errno;
    for_each_shard([](Shard& shard) { shard.awake(); });
    if (ready < 0) return error == EINTR && calls_go_on_after_signals() ? Waited::kLook : Waited::kInterrupted;
    if (ready > 0 && watched_[0].revents != 0) {
      watcher_kicked_.store(false, std::memory_order_seq_cst);  // before the next look
      take_from(watcher_descriptor_);
    }
    if (ready > 0 && watched_[1].revents != 0) {
      end_wait();
      return Waited::kLook;
    }
  }
}

// Nothing: do not sleep. Packets that other threads poll for wake nobody, as where the background thread defers.
std::optional<Duration> Progress::prepare_to_sleep() {
  const CallerState kept;
  const Time now = monotonic_now();
  Duration time = Duration::max();
  bool go_on = false;
  for_each_shard([&](Shard& shard) {
    const std::optional<Duration> sleep = !shard.attended_by_others(now) ? shard.sleep(watched_)
                                          : shard.doze()                 ? std::optional(kDefer)
                                                                         : std::nullopt;
    go_on |= !sleep;
    time = std::min(time, sleep.value_or(Duration{}));
  });
  if (go_on) return std::nullopt;
  return time;
}

// --- a program that polls the descriptor of a channel ---------------------------------------------------------------

// Several shards exchange by memory, which no descriptor tells of.
bool Progress::claim(const std::shared_ptr<PollSet>& set) {
  const CallerState kept;
  if (!started_ || shard_count() != 1) return false;
  return attendance_.claim(set, monotonic_now());
}

void Progress::release(const PollSet& set) {
  const CallerState kept;
  attendance_.release(set);
}

// Who receives a long message is not to be woken for every few packets of it.
bool Progress::serve_stream(const LookForEvent& look, bool woken) {
  const CallerState kept;
  const Time began = monotonic_now();
  Time now = began, came_at{};
  bool found = false, any = false, again = false;
  int busy = 0;
  do {
    std::optional<Datapath::Moved> moved;
    found = look([this, &moved] { moved = shards_[0]->serve_inline(); });
    now = monotonic_now();
    if (found) break;
    if (!moved) {  // another thread moves them
      if (++busy > kMostLooks) break;
      pause(kStreamPauses);
    }
    again = !moved || moved->received > 0;
    any |= moved && moved->received > 0;
    if (moved && (moved->more_to_come || moved->pressed || moved->sent > 0)) came_at = now;
  } while ((again || now - came_at < kStreamPause) && now - began < kLongestService);
  attendance_.note(found || any, woken, now);
  return found;
}

bool Progress::linger(const LookForEvent& look) {
  const CallerState kept;
  const Time began = monotonic_now();
  const Duration awake = has_spare_cpu(began) ? spin_habit.begin(began) : Duration{};
  for (Time now = began; now - began < awake; now = monotonic_now()) {
    pause(1);
    if (!look([this] { shards_[0]->serve_inline(); })) continue;
    end_wait();
    return true;
  }
  return false;
}

void Progress::end_wait() {
  spin_habit.end(monotonic_now());
}

void Progress::leave() {
  const CallerState kept;
  attendance_.leave(true);
  bool left = false;
  try {
    left = leave_nothing();
  } catch (const std::bad_alloc&) {  // for the list of descriptors
  }
  if (!left) for_each_shard([](Shard& shard) { shard.hand_over_to_sleep(); });
}

// False: there is more to do than one call should, or another thread is at it.
bool Progress::leave_nothing() {
  std::vector<pollfd> descriptors;
  std::optional<uint32_t> setups;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    switch (shards_[0]->leave(descriptors, setups)) {
      case Shard::Left::kDone:
        return !setups || attendance_.put(descriptors, *setups);
      case Shard::Left::kBusy:
        pause(kStreamPauses);
        break;
      case Shard::Left::kMore:
        shards_[0]->serve_inline();
    }
  }
  return false;
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
