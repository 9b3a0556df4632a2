// SPDX-License-Identifier: BSD-2-Clause
// How rc_transfer ends when something is wrong. Thrown anywhere, caught once per side in session.cc and main.cc.
#pragma once

#include <stdexcept>
#include <string>

namespace uroce::transfer {

enum class ExitCode { kOk = 0, kMismatch = 1, kUsage = 2, kTimeout = 3 };

struct Failure : std::runtime_error {
  Failure(ExitCode exit_code, const std::string& text, bool of_peer = false)
      : std::runtime_error(text), code(exit_code), echo(of_peer) {}
  ExitCode code;
  bool echo;  // of a failure that the other side has told of
};

}  // namespace uroce::transfer
