// SPDX-License-Identifier: BSD-2-Clause
// The program that `uroce run` is about to start: where it is, and whether a preloaded library can work in it at all.
// Used by run.cc.
#pragma once

#include <string>

namespace uroce::cli {

enum class TargetKind {
  kUsable,         // dynamically linked for this machine, or a script
  kNotFound,       // exit 127, as shells do
  kNotExecutable,  // exit 126
  kStatic,         // no dynamic loader runs, so nothing can be preloaded
  kForeign,        // other word size or machine than liburoce.so
  kPrivileged,     // set-user-ID, set-group-ID or file capabilities: the loader ignores LD_PRELOAD
  kChangesUser,    // sudo and the like: they start programs, but without LD_PRELOAD
};

struct Target {
  TargetKind kind = TargetKind::kNotFound;
  std::string path;  // what execve() gets; empty when not found
};

// Looks `command` up as execvp() does (in `search_path`, a PATH value, unless it has a slash) and examines it.
Target find_target(const std::string& command, const std::string& search_path);

}  // namespace uroce::cli
