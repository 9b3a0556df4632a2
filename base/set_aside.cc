// SPDX-License-Identifier: BSD-2-Clause
#include "base/set_aside.h"

#include <fcntl.h>
#include <mutex>
#include <utility>

#include "base/fork.h"
#include "base/raised_file_limit.h"

namespace uroce {
namespace {

ForkProofLock limit_lock;  // one raises the limit at a time

}  // namespace

UniqueFd set_aside(UniqueFd fd, size_t enough) {
  const std::lock_guard guard(limit_lock);
  const RaisedFileLimit raised;
  if (!fd || raised.soft() >= enough || raised.limit() <= raised.soft()) return fd;
  UniqueFd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, static_cast<int>(raised.soft())));
  return moved ? std::move(moved) : std::move(fd);
}

}  // namespace uroce
