// SPDX-License-Identifier: BSD-2-Clause
// Lets `uroce capture` listen to this process: a thread that sleeps on a UNIX socket of the process. Started
// when the first packet I/O opens. Whoever may not have a socket goes without: traffic does not depend on it.
#pragma once

#include <thread>

#include "capture/nameless_socket.h"

namespace uroce::io {

class CaptureServer {
 public:
  // Of this process; starts it on first use. A child after fork() has none until it opens packet I/O of its own.
  static void start();
  // The process ends: nobody finds the socket any more.
  static void finish();

 private:
  friend struct CaptureServerSlot;
  void run();
  void answer(int connection);

  NamelessSocket socket_;
};

}  // namespace uroce::io
