// SPDX-License-Identifier: BSD-2-Clause
// What the exit codes of uroce mean; the same in docs/uroce.1.
#pragma once

namespace uroce::cli {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoBroker = 3;  // `uroce stat` only
// `uroce run` only: as shells and env(1) do for a command that cannot be started.
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;

}  // namespace uroce::cli
