// SPDX-License-Identifier: BSD-2-Clause
// The captures of this process and the packet I/Os that they listen to: each capture gets the packets of every device
// that is open now or later. One per process; a child after fork() has its own, without the parent's captures.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capture/session.h"

namespace uroce::io {

class CaptureHub {
 public:
  static CaptureHub& instance();

  void add_tap(std::shared_ptr<CaptureTap> tap);
  void remove_tap(const CaptureTap& tap);

  // Begins a capture. 0 or an errno value.
  int start(CaptureSettings settings, std::unique_ptr<CaptureOutput> output, std::unique_ptr<CaptureControl> control);

  // The process ends: what the rings hold is written, unless that takes too long.
  void finish();

  // The same without an exit handler: allocates nothing, and leaves what is in use by an interrupted thread alone.
  void end_now();

  // A line for each packet I/O: "uroce_eth0 (eth0): af_xdp, native".
  std::string description();

  // A line for people on stderr, from a thread of a capture.
  static void say(const std::string& text);

 private:
  static constexpr std::chrono::milliseconds kFarewell{2000};  // what finish() waits for a capture to end

  std::mutex lock_;
  std::vector<std::shared_ptr<CaptureTap>> taps_;
  std::vector<std::unique_ptr<CaptureSession>> sessions_;
};

}  // namespace uroce::io
