#include "engine/datapath/progress.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/fork.h"
#include "engine/base/thread.h"
#include "engine/memory/memory_access.h"

namespace uroce::engine {

namespace {

// What a thread does in a row while others keep ringing.
constexpr int kRoundsInARow = 4;
// While applications poll: how soon the background thread notices that they stopped.
constexpr Duration kDefer = std::chrono::microseconds(500);
// When the background thread takes what it receives for a stream, and how long it then waits between two looks (about a
// microsecond).
constexpr uint32_t kStreamRounds = 4;
constexpr int kStreamPauses = 60;
// Between two attempts to send what the packet I/O has no room for (a netdev that is down, say) or what the kernel put
// off; grows as long as they fail.
constexpr Duration kMinPressure = std::chrono::microseconds(50);
constexpr Duration kMaxPressure = std::chrono::milliseconds(1);
// How long it keeps away from a core whose application thread holds the lock.
constexpr Duration kBrief = std::chrono::microseconds(50);
// How long a process that ends waits for the lock: about as long as leaving the netdev itself takes.
constexpr Duration kLockHeld = std::chrono::milliseconds(10);
// How soon the network is looked at again after there was no memory for its news, or so many that it was ignored.
constexpr Duration kNetworkInterval = std::chrono::milliseconds(10);
// How exactly it is known when one polled: not every poll writes to memory that all threads share.
constexpr Duration kPollNoted = std::chrono::microseconds(20);

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

Progress::Progress(Datapath& datapath, int network_descriptor, std::function<Time(bool)> look_at_network)
    : datapath_(datapath), network_descriptor_(network_descriptor), look_at_network_(std::move(look_at_network)) {}

Progress::~Progress() {
  stop();
  ForkGuard().close(kick_descriptor_);
}

void Progress::stop() {
  stop_.store(true);
  if (!thread_.joinable()) return;
  kick();
  thread_.join();
}

bool Progress::lock_comes_free() {
  const Time limit = monotonic_now() + kLockHeld;
  while (monotonic_now() < limit) {
    if (const std::unique_lock holding(lock_, std::try_to_lock); holding) return true;
    std::this_thread::sleep_for(kBrief);
  }
  return false;
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
  return 0;
}

void Progress::rounds(Caller caller) {
  Datapath::Moved moved;
  int rounds = 0;
  do {
    if (rounds == kRoundsInARow) {
      hand_over();
      break;
    }
    // The holder looks for doorbells when it is done.
    if (round(caller, moved) == Round::kBusy) {
      if (rounds == 0 && caller == Caller::kPolling) note_poll(monotonic_now());
      break;
    }
    ++rounds;
  } while (datapath_.rung());
}

// Every round is told the time anew, and reads the clock when it has the lock: time never goes backwards, nor stands
// still while others keep ringing.
Progress::Round Progress::round(Caller caller, Datapath::Moved& moved) {
  // In this order: whoever it was that waited looks for doorbells after that.
  if (waiting_.load(std::memory_order_seq_cst) > 0) {
    made_way_.store(true, std::memory_order_relaxed);
    return Round::kBusy;
  }
  const CallerState kept;
  const std::unique_lock holding(lock_, std::try_to_lock);
  if (!holding) return Round::kBusy;
  if (datapath_.wire() == nullptr) return Round::kIdle;  // before the first QP
  const Time now = monotonic_now();
  if (caller == Caller::kPolling) note_poll(now);
  if (caller != Caller::kBackground) memory::keep_faults_unblocked(now);
  Datapath::Moved here;
  iterate(caller, now, here);
  // That took long, and the thread was here all the while.
  if (caller != Caller::kBackground && here.many()) note_poll(monotonic_now());
  moved += here;
  return here ? Round::kMoved : Round::kIdle;
}

// With the lock held. Out of memory: what this round left undone is left to later ones, or lost as on a wire.
void Progress::iterate(Caller caller, Time now, Datapath::Moved& moved) {
  try {
    moved += datapath_.iterate(caller, now);
  } catch (const std::bad_alloc&) {
  }
  if (caller != Caller::kBackground) wake_if_needed();
}

// This thread has done its share. The background thread clears the flag before it looks for doorbells.
void Progress::hand_over() {
  if (handed_over_.exchange(true, std::memory_order_seq_cst)) return;
  if (background_.load(std::memory_order_seq_cst) != Background::kRunning) kick();
}

void Progress::expect_sleep() {
  if (sleep_expected_.exchange(true, std::memory_order_seq_cst)) return;
  if (background_.load(std::memory_order_seq_cst) == Background::kDeferring) kick();
}

// Called with the lock held. A deferring thread looks by itself soon, and polling goes on meanwhile.
void Progress::wake_if_needed() {
  if (background_.load(std::memory_order_seq_cst) != Background::kAsleep || datapath_.wire() == nullptr) return;
  const int64_t deadline = datapath_.next_deadline().time_since_epoch().count();
  if (datapath_.unfinished() || deadline < wakes_at_.load(std::memory_order_relaxed)) {
    background_.store(Background::kRunning, std::memory_order_seq_cst);  // one kick is enough
    kick();
  }
}

void Progress::kick() {
  const CallerState kept;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(kick_descriptor_, &one, sizeof(one));
}

Progress::Guard::Guard(Progress& progress) : progress_(progress) {
  progress_.waiting_.fetch_add(1, std::memory_order_seq_cst);
  progress_.lock_.lock();
  progress_.waiting_.fetch_sub(1, std::memory_order_seq_cst);
  try {
    progress_.datapath_.flush();
  } catch (const std::bad_alloc&) {  // what could not leave goes on waiting
  }
}

Progress::Guard::~Guard() {
  progress_.datapath_.completions().publish();
  if (progress_.started_) {
    if (progress_.made_way_.exchange(false, std::memory_order_relaxed) && progress_.datapath_.wire() != nullptr) {
      Datapath::Moved moved;
      progress_.iterate(Caller::kPolling, monotonic_now(), moved);
    } else {
      progress_.wake_if_needed();
    }
  }
  progress_.lock_.unlock();
  if (progress_.started_ && progress_.datapath_.rung()) progress_.after_post();
}

void Progress::note_poll(Time now) {
  if (now - polled_at() >= kPollNoted) {
    polled_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
}

Progress::Round Progress::iterate_in_background() {
  if (handed_over_.load(std::memory_order_relaxed)) handed_over_.store(false, std::memory_order_seq_cst);
  Datapath::Moved moved;
  int rounds = 0;
  do {
    if (rounds++ == kRoundsInARow) {
      handed_over_.store(true, std::memory_order_relaxed);  // to the next turn, which comes without a wait
      break;
    }
    if (round(Caller::kBackground, moved) == Round::kBusy) return moved ? Round::kMoved : Round::kBusy;
  } while (datapath_.rung());
  // Only runs of rounds that receive and send nothing count: a stream of WRITEs, say.
  if (moved) receive_only_rounds_ = moved.sent == 0 ? receive_only_rounds_ + 1 : 0;
  return moved ? Round::kMoved : Round::kIdle;
}

// Between two looks at the ring. Looking at it slows down who fills it, because the cache lines go back and forth;
// where nobody waits for an answer, looking less often is faster (ib_write_bw gains a third).
void Progress::pause() const {
  const int pauses = receive_only_rounds_ >= kStreamRounds ? kStreamPauses : 1;
  for (int i = 0; i < pauses; ++i) __builtin_ia32_pause();
}

void Progress::run() {
  ask_for_short_slices();
  WaitPolicy policy(monotonic_now());
  while (!stop_.load(std::memory_order_relaxed)) {
    try {
      turn(policy);
    } catch (const std::bad_alloc&) {  // for the list of descriptors
      std::this_thread::sleep_for(kMaxPressure);
    }
  }
}

void Progress::turn(WaitPolicy& policy) {
  WaitPolicy::Turn turn;
  turn.began = monotonic_now();
  turn.polled_before = polled_at();
  turn.round = iterate_in_background();
  turn.ended = monotonic_now();
  turn.polled = polled_at();
  turn.looked = waited_at_;
  turn.sleep_expected = sleep_expected_.load(std::memory_order_relaxed) && sleep_expected_.exchange(false);
  switch (policy.after(turn)) {
    case WaitPolicy::Wait::kSpin:
      return pause();
    case WaitPolicy::Wait::kSleep:
      return sleep();
    case WaitPolicy::Wait::kDefer:
      return doze(kDefer);
    case WaitPolicy::Wait::kMakeWay:
      return doze(kBrief);
    case WaitPolicy::Wait::kLook:
      return doze(Duration{});
  }
}

// On a timer, without listening for packets: an application thread takes them.
void Progress::doze(Duration time) {
  background_.store(Background::kDeferring, std::memory_order_seq_cst);
  if (sleep_expected_.load(std::memory_order_seq_cst) || handed_over_.load(std::memory_order_seq_cst)) {
    time = Duration{};
  }
  descriptors_.assign({{kick_descriptor_, POLLIN, 0}, network()});
  wait(time);
}

// Until packets come, a timer expires, or somebody needs us.
void Progress::sleep() {
  std::unique_lock holding(lock_, std::try_to_lock);
  if (!holding) return doze(kBrief);
  io::PacketIo* const wire = datapath_.wire();  // null before the first QP
  // What waits for the packet I/O is tried again soon, and keeps nobody awake meanwhile.
  const bool pressed = wire != nullptr && datapath_.backpressured();
  const bool idle = wire == nullptr || ((pressed || !datapath_.unfinished()) && wire->prepare_to_wait());
  const Time deadline = datapath_.next_deadline();
  if (idle) {
    descriptors_.assign({{kick_descriptor_, POLLIN, 0}, network()});
    if (wire != nullptr) {
      const auto io = wire->wait_descriptors();
      descriptors_.insert(descriptors_.end(), io.begin(), io.end());
      if (!pressed) std::for_each(descriptors_.begin(), descriptors_.end(), [](pollfd& d) { d.events = POLLIN; });
    }
    wakes_at_.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
    background_.store(pressed ? Background::kDeferring : Background::kAsleep, std::memory_order_seq_cst);
  }
  holding.unlock();
  pressure_ = pressed ? std::clamp(2 * pressure_, kMinPressure, kMaxPressure) : Duration{};
  if (!idle || datapath_.rung()) {
    background_.store(Background::kRunning, std::memory_order_seq_cst);
    return;
  }
  Duration time = deadline == kNever ? Duration::max() : std::max(Duration{}, deadline - monotonic_now());
  if (pressed) time = std::min(time, pressure_);
  if (look_again_) time = std::min(time, kNetworkInterval);
  wait(time);
}

// News of the network is read ten times in 100 ms at most, however much of it there is, unless packets wait for some.
pollfd Progress::network() const {
  const bool deaf = monotonic_now() < deaf_until_ && !datapath_.next_hops().has_waiters();
  return {deaf ? -1 : network_descriptor_, POLLIN, 0};
}

void Progress::wait(Duration time) {
  Time look_at = look_again_at_;
  if (descriptors_[1].fd < 0 && network_descriptor_ >= 0) look_at = std::min(look_at, deaf_until_);
  if (look_at != kNever) time = std::min(time, std::max(Duration{}, look_at - monotonic_now()));
  const timespec limit{time.count() / 1000000000, time.count() % 1000000000};
  const int ready =
      ppoll(descriptors_.data(), descriptors_.size(), time == Duration::max() ? nullptr : &limit, nullptr);
  background_.store(Background::kRunning, std::memory_order_seq_cst);
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
