// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/memory_access.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>
#include <new>

#include "base/fork.h"
#include "base/spinlock.h"
#include "engine/memory/ordered_copy.h"

namespace uroce::memory {
namespace {

constexpr std::array<int, 2> kSignals = {SIGSEGV, SIGBUS};

struct Recovery {
  sigjmp_buf point;
  const GuardedAccess* access;
};

// Initial-exec: the handler must be able to look at it without allocating.
__attribute__((tls_model("initial-exec"))) thread_local Recovery* recovery = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local Time unblocked_at = Time::min();

using Actions = std::array<struct sigaction, kSignals.size()>;
// The actions that ours took the place of the first time. Each is written before our handler is in its place.
Actions original;
// ... and the last time. Other threads may be in the handler when they change, so each set stays as it is.
struct Replaced {
  Actions actions;
  const Replaced* before;
};
std::atomic<const Replaced*> previous{nullptr};

// The fault that is being handed on. Whoever came after us may chain back to us.
__attribute__((tls_model("initial-exec"))) thread_local const void* handed_on = nullptr;

void hand_on(int signal, siginfo_t* info, void* context, const Actions& actions) {
  const struct sigaction& action = actions[signal == SIGSEGV ? 0 : 1];
  if (action.sa_flags & SA_SIGINFO) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    // Returning repeats the faulting instruction, this time with the default outcome. What kill() sent does not repeat.
    sigaction(signal, &action, nullptr);
    if (info->si_code <= 0) raise(signal);
  } else {
    action.sa_handler(signal);
  }
}

// Whether the fault is of memory that the access in progress may touch.
bool of_access(const siginfo_t& info, const GuardedAccess& access) {
  constexpr uintptr_t kUserEnd = uintptr_t{1} << 47;
  if (info.si_code <= 0) return false;  // from kill() and the like
  // Addresses that no memory can have raise a general protection fault, which does not say where.
  if (info.si_code == SI_KERNEL) return access.covers(access.argument, kUserEnd, UINTPTR_MAX);
  auto from = reinterpret_cast<uintptr_t>(info.si_addr);
  uintptr_t size = 1;
  if (info.si_signo == SIGBUS && info.si_code == BUS_MCEERR_AR) {  // broken memory: the page, however large
    size <<= info.si_addr_lsb & 63;
    from &= ~(size - 1);
  }
  return access.covers(access.argument, from, from + size);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (recovery != nullptr && of_access(*info, *recovery->access)) siglongjmp(recovery->point, 1);
  const bool came_back = handed_on == context;
  handed_on = context;
  hand_on(signal, info, context, came_back ? original : previous.load(std::memory_order_acquire)->actions);
  handed_on = nullptr;
}

// A fault that is blocked kills the process, whatever the handler.
void unblock_faults() {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int signal : kSignals) sigaddset(&faults, signal);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

// Of the mask the kernel knows a part; what sigaction() says behind that was not set by anybody.
bool same(const struct sigaction& a, const struct sigaction& b) {
  constexpr size_t kMaskBytes = (NSIG - 1) / 8;
  return a.sa_sigaction == b.sa_sigaction && a.sa_flags == b.sa_flags &&
         std::memcmp(&a.sa_mask, &b.sa_mask, kMaskBytes) == 0;
}

// The set in which action `i` of `last` is replaced by `action`: one that there was already, or a new one. Null: there
// is no memory.
const Replaced* with(const Replaced* last, size_t i, const struct sigaction& action) {
  static const Replaced* all = nullptr;
  Actions actions = last != nullptr ? last->actions : Actions{};
  actions[i] = action;
  for (const Replaced* known = all; known != nullptr; known = known->before) {
    if (std::equal(actions.begin(), actions.end(), known->actions.begin(), same)) return known;
  }
  const auto* const made = new (std::nothrow) Replaced{actions, all};
  if (made != nullptr) all = made;
  return made;
}

}  // namespace

int install_fault_handler() {
  static ForkProofLock lock;
  static std::array<bool, kSignals.size()> installed{};
  const std::lock_guard guard(lock);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction current {};
    if (sigaction(kSignals[i], nullptr, &current) != 0) return errno;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault) continue;
    const Replaced* const replaced = with(previous.load(std::memory_order_relaxed), i, current);
    if (replaced == nullptr) return ENOMEM;
    if (!installed[i]) original[i] = current;
    installed[i] = true;
    previous.store(replaced, std::memory_order_release);
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    // SA_NODEFER: we leave by siglongjmp, which does not give back the signal mask.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | (current.sa_flags & SA_ONSTACK);
    sigemptyset(&ours.sa_mask);
    if (sigaction(kSignals[i], &ours, nullptr) != 0) return errno;
  }
  return 0;
}

void keep_faults_unblocked(Time now) {
  if (unblocked_at != Time::min() && now - unblocked_at < std::chrono::milliseconds(1)) return;
  unblocked_at = now;
  unblock_faults();
}

bool run_guarded(const GuardedAccess& access) {
  if (unblocked_at == Time::min()) keep_faults_unblocked(Time{});
  Recovery here;
  here.access = &access;
  Recovery* const outer = recovery;  // of an access that a signal handler interrupted
  if (sigsetjmp(here.point, 0) != 0) {
    recovery = outer;
    return false;
  }
  recovery = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  access.run(access.argument);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  recovery = outer;
  return true;
}

// The lock is taken outside of the guarded access, which may be abandoned anywhere.
bool atomic_unaligned(uint8_t* address, const AtomicOperation& operation, uint64_t& found) {
  static SpinLock lock;
  const std::lock_guard exclusive(lock);
  return guarded(address, sizeof(uint64_t), [&] {
    std::memcpy(&found, address, sizeof(found));
    if (!operation.add && found != operation.compare) return;
    const uint64_t result = operation.add ? found + operation.operand : operation.operand;
    std::memcpy(address, &result, sizeof(result));
  });
}

bool copy(void* to, const void* from, size_t size) {
  return guarded(
      [=] { copy_in_order(to, from, size); },
      [=](uintptr_t begin, uintptr_t end) { return overlap(from, size, begin, end) || overlap(to, size, begin, end); });
}

bool copy_pieces(uint8_t* to, std::span<const uint8_t* const> from, size_t size) {
  return guarded(
      [=] {
        for (size_t i = 0; i < from.size(); ++i) copy_in_order(to + i * size, from[i], size);
      },
      [=](uintptr_t begin, uintptr_t end) {
        const auto touched = [=](const uint8_t* piece) { return overlap(piece, size, begin, end); };
        return overlap(to, from.size() * size, begin, end) || std::any_of(from.begin(), from.end(), touched);
      });
}

}  // namespace uroce::memory
