// SPDX-License-Identifier: BSD-2-Clause
// The ways in which a program waits for a descriptor to be readable. Errors are thrown.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace uroce::events {

class DescriptorWait {
 public:
  virtual ~DescriptorWait() = default;
  // Until it is readable, or a signal comes.
  virtual void wait() = 0;
};

using MakeWait = std::unique_ptr<DescriptorWait> (*)(int fd);
// By name: "epoll", "edge" (EPOLLET), "oneshot" (EPOLLONESHOT), "exclusive" (EPOLLEXCLUSIVE), "nested" (a set in
// another one, and a duplicate of the descriptor in it), "poll", "select", and "io_uring" where it was built.
const std::map<std::string, MakeWait>& descriptor_waits();

}  // namespace uroce::events
