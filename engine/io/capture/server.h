// Lets `uroce capture` listen to this process: a thread that sleeps on a UNIX socket named after the process. Started
// when the first packet I/O opens. Whoever may not have a socket goes without: traffic does not depend on it.
#pragma once

#include <string>
#include <thread>

namespace uroce::io {

class CaptureServer {
 public:
  // Of this process; starts it on first use. A child after fork() has none until it opens packet I/O of its own.
  static void start();
  // The process ends: takes the socket away.
  static void finish();

 private:
  friend struct CaptureServerSlot;
  bool listen();
  void run();
  void answer(int connection);

  int socket_ = -1;
  std::string path_;
};

}  // namespace uroce::io
