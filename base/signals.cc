// SPDX-License-Identifier: BSD-2-Clause
#include "base/signals.h"

#include <algorithm>
#include <array>
#include <csignal>

namespace uroce {

bool calls_go_on_after_signals() {
  constexpr std::array kFaults{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  for (int signal = 1; signal < NSIG; ++signal) {
    if (std::find(kFaults.begin(), kFaults.end(), signal) != kFaults.end()) continue;
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;  // glibc's own
    const bool handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

}  // namespace uroce
