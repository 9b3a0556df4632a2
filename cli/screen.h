// SPDX-License-Identifier: BSD-2-Clause
// A terminal as a full-screen view that is drawn anew again and again, and given back as it was: at the end, when a
// signal ends the program, and while it is stopped (Ctrl-Z).
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <termios.h>
#include <vector>

#include "base/unique_fd.h"

namespace uroce::cli {

class Screen {
 public:
  // Standard output is a terminal that can do this.
  static bool is_there();

  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  size_t rows() const;
  // From the top; `bold`: which lines are. What is wider than the terminal is cut.
  void draw(const std::vector<std::string>& lines, bool (*bold)(const std::string&)) const;

  enum class Event { kNone, kQuit, kDraw };
  // Until a key or a signal has come that means something, or `time` is over (kNone). kDraw: the terminal is another
  // one than it was. Does not return when a signal other than Ctrl-C ends the program.
  Event wait(std::chrono::milliseconds time);
  // Readable when wait() has something to look at.
  int descriptor() const { return attention_.get(); }

 private:
  void enter();
  void leave() const;
  Event on_signal();
  Event on_key() const;

  termios before_{};
  bool has_keys_ = false;
  UniqueFd signals_, attention_;
};

}  // namespace uroce::cli
