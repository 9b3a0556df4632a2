// SPDX-License-Identifier: BSD-2-Clause
// Descriptors whose last close() waits in the kernel, closed at the same time, so that they wait for the same grace
// period of its RCU instead of one after the other (docs/reference/af-xdp.md "Time to open and close"). Used by AfXdp.
#pragma once

#include <vector>

namespace uroce::io {

class CloseTogether {
 public:
  CloseTogether() = default;
  // Waits until everything is closed. Nobody forks meanwhile.
  ~CloseTogether();
  CloseTogether(const CloseTogether&) = delete;
  CloseTogether& operator=(const CloseTogether&) = delete;

  // What `fd` stands for stays open until the destructor, so that whoever closes `fd` itself does not wait. Where there
  // is no memory or no descriptor for that, it ends with `fd`.
  void hold(int fd);

 private:
  std::vector<int> descriptors_;
};

}  // namespace uroce::io
