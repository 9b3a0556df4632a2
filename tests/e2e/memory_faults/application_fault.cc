// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/memory_faults/application_fault.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/memory_faults/failure.h"

namespace uroce::memory_faults {
namespace {

struct Counts {  // shared with the child
  std::atomic<int> own{0}, foreign{0};
};

Counts* counts = nullptr;
void* volatile own_page = nullptr;  // null: no fault of our own is due
sigjmp_buf after_own_fault;
std::array<struct sigaction, 2> before;  // SIGSEGV, SIGBUS

void on_fault(int signal, siginfo_t* info, void* context) {
  if (own_page != nullptr && info->si_addr == own_page) {
    ++counts->own;
    siglongjmp(after_own_fault, 1);
  }
  if (++counts->foreign > 100) _exit(99);  // it comes back again and again
  const struct sigaction& action = before[signal == SIGSEGV ? 0 : 1];
  if (action.sa_flags & SA_SIGINFO) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    sigaction(signal, &action, nullptr);  // the instruction repeats
  } else {
    action.sa_handler(signal);
  }
}

Counts& shared_counts() {
  if (counts == nullptr) {
    void* const map = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) fail_call("mmap", errno);
    counts = new (map) Counts;
  }
  return *counts;
}

}  // namespace

void install_application_handler() {
  shared_counts();
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGSEGV, &action, &before[0]) != 0 || sigaction(SIGBUS, &action, &before[1]) != 0) {
    fail_call("sigaction", errno);
  }
}

void expect_own_fault_handled() {
  void* const page = mmap(nullptr, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) fail_call("mmap", errno);
  const int seen = shared_counts().own;
  own_page = page;
  if (sigsetjmp(after_own_fault, 1) == 0) *static_cast<volatile uint8_t*>(page) = 1;
  own_page = nullptr;
  munmap(page, 1);
  check(shared_counts().own == seen + 1, "the application's own fault did not reach its handler");
}

void expect_unknown_fault_kills(bool handler_installed) {
  shared_counts().foreign = 0;
  const pid_t child = fork();
  if (child < 0) fail_call("fork", errno);
  if (child == 0) {
    uint8_t* volatile nowhere = nullptr;
    *const_cast<volatile uint8_t*>(nowhere) = 1;
    _exit(98);  // survived
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail_call("waitpid", errno);
  const int seen = shared_counts().foreign;
  const std::string what = "a fault that nobody knows: wait status " + std::to_string(status) +
                           ", the handler saw it " + std::to_string(seen) + " times";
  check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, what);
  check(seen == (handler_installed ? 1 : 0), what);
  shared_counts().foreign = 0;
}

void expect_no_foreign_faults() {
  check(shared_counts().foreign == 0, "the application's handler was called for the library's faults");
}

}  // namespace uroce::memory_faults
