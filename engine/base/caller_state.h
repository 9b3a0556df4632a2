// Keeps system calls that the engine makes in an application's thread out of the application's sight: errno stays as
// it is, and pthread_cancel() does not act inside. Posting and polling are no cancellation points on hardware, and a
// thread that is unwound while it holds a lock of the engine would leave it locked for ever.
#pragma once

#include <cerrno>
#include <pthread.h>

namespace uroce {

class CallerState {
 public:
  CallerState() : errno_(errno) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_); }
  ~CallerState() {
    pthread_setcancelstate(cancel_state_, nullptr);
    errno = errno_;
  }
  CallerState(const CallerState&) = delete;
  CallerState& operator=(const CallerState&) = delete;

 private:
  const int errno_;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace uroce
