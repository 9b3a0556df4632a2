// SPDX-License-Identifier: BSD-2-Clause
// Keeps system calls that the engine makes in an application's thread out of the application's sight: errno stays as
// it is, and pthread_cancel() does not act inside. Posting and polling are no cancellation points on hardware, and a
// thread that is unwound while it holds a lock of the engine would leave it locked for ever.
#pragma once

#include <cerrno>
#include <pthread.h>

namespace uroce {

class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

class CallerState {
 public:
  CallerState() : errno_(errno) {}
  ~CallerState() { errno = errno_; }
  CallerState(const CallerState&) = delete;
  CallerState& operator=(const CallerState&) = delete;

 private:
  const int errno_;
  const NoCancellation no_cancellation_;
};

}  // namespace uroce
