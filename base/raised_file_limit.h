// SPDX-License-Identifier: BSD-2-Clause
// As many descriptors as the process may have, as long as this is there. What is open then stays open. Programs that
// are started meanwhile would have that limit, too, and those that use select() may not have more than 1024.
#pragma once

#include <cstddef>
#include <sys/resource.h>

namespace uroce {

class RaisedFileLimit {
 public:
  RaisedFileLimit() {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
    rlimit limit = before_;
    limit.rlim_cur = limit.rlim_max;
    is_raised_ = limit.rlim_cur != before_.rlim_cur && setrlimit(RLIMIT_NOFILE, &limit) == 0;
  }
  // Not over what somebody else has set meanwhile.
  ~RaisedFileLimit() {
    rlimit now{};
    if (!is_raised_ || getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur != before_.rlim_max) return;
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

  // Numbers of descriptors are below it.
  size_t limit() const { return is_raised_ ? before_.rlim_max : before_.rlim_cur; }
  // What it was before.
  size_t soft() const { return before_.rlim_cur; }

 private:
  rlimit before_{};
  bool is_raised_ = false;
};

}  // namespace uroce
