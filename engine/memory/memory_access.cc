#include "engine/memory/memory_access.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

#include "engine/base/fork.h"

namespace uroce::memory {
namespace {

constexpr std::array<int, 2> kSignals = {SIGSEGV, SIGBUS};

// Initial-exec: the handler must be able to look at it without allocating.
__attribute__((tls_model("initial-exec"))) thread_local sigjmp_buf* recovery_point = nullptr;

// Written before our handler is in place: the actions that ours took the place of, the first time and the last time.
using Actions = std::array<struct sigaction, kSignals.size()>;
Actions original, previous;

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

void on_fault(int signal, siginfo_t* info, void* context) {
  if (recovery_point != nullptr && info->si_code > 0) siglongjmp(*recovery_point, 1);
  const bool came_back = handed_on == context;
  handed_on = context;
  hand_on(signal, info, context, came_back ? original : previous);
  handed_on = nullptr;
}

// A fault that is blocked kills the process, whatever the handler.
void unblock_faults() {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int signal : kSignals) sigaddset(&faults, signal);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

struct Copy {
  void* to;
  const void* from;
  size_t size;
};

}  // namespace

int install_fault_handler() {
  static ForkProofLock lock;
  static std::array<bool, kSignals.size()> installed{};
  const std::lock_guard guard(lock);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction current {};
    if (sigaction(kSignals[i], nullptr, &current) != 0) return errno;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault) continue;
    if (!installed[i]) original[i] = current;
    installed[i] = true;
    previous[i] = current;
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    // SA_NODEFER: we leave by siglongjmp, which does not give back the signal mask.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | (current.sa_flags & SA_ONSTACK);
    sigemptyset(&ours.sa_mask);
    if (sigaction(kSignals[i], &ours, nullptr) != 0) return errno;
  }
  return 0;
}

bool run_guarded(void (*function)(void*), void* argument) {
  thread_local bool prepared = false;
  if (!prepared) unblock_faults();
  prepared = true;
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    recovery_point = nullptr;
    return false;
  }
  recovery_point = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  function(argument);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  recovery_point = nullptr;
  return true;
}

bool copy(void* to, const void* from, size_t size) {
  Copy c{to, from, size};
  return run_guarded(
      [](void* argument) {
        const auto& what = *static_cast<const Copy*>(argument);
        std::memcpy(what.to, what.from, what.size);
      },
      &c);
}

}  // namespace uroce::memory
