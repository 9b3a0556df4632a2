// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/close_together.h"

#include <algorithm>
#include <exception>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

#include "base/fork.h"
#include "base/thread.h"

namespace uroce::io {
namespace {

constexpr size_t kMaxThreads = 32;  // for netdevs with more queues than that each closes several

}  // namespace

void CloseTogether::hold(int fd) {
  ForkGuard guard;
  const int held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (held < 0) return;
  try {
    descriptors_.reserve(descriptors_.size() + 1);
    guard.close_in_children(held);
    descriptors_.push_back(held);
  } catch (const std::bad_alloc&) {
    ::close(held);
  }
}

CloseTogether::~CloseTogether() {
  ForkGuard guard;  // from when they are forgotten until they are closed
  for (const int fd : descriptors_) guard.forget(fd);
  const size_t shares = std::min(descriptors_.size(), kMaxThreads);
  const auto close_share = [this, shares](size_t first) {
    for (size_t i = first; i < descriptors_.size(); i += shares) ::close(descriptors_[i]);
  };
  std::vector<std::thread> threads;
  try {
    threads.reserve(shares);
    while (threads.size() + 1 < shares) {
      threads.push_back(start_thread("uroce close", [close_share, share = threads.size()] { close_share(share); }));
    }
  } catch (const std::exception&) {  // no memory, or no more threads allowed: the rest is closed here
  }
  for (size_t share = threads.size(); share < shares; ++share) close_share(share);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace uroce::io
