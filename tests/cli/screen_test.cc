// SPDX-License-Identifier: BSD-2-Clause
// The full-screen view on a pseudo terminal: what ends it, and that the terminal is as it was.
#include "cli/screen.h"

#include <array>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace uroce::cli {
namespace {

constexpr const char* kEnter = "\033[?1049h";
constexpr const char* kLeave = "\033[?1049l";

// A child with a terminal of its own, which draws again and again.
class ScreenTest : public testing::Test {
 protected:
  void SetUp() override {
    winsize size{10, 20, 0, 0};
    before_.c_iflag = ICRNL;
    before_.c_oflag = OPOST | ONLCR;
    before_.c_cflag = CS8 | CREAD | B38400;
    before_.c_lflag = ICANON | ECHO | ISIG;
    before_.c_cc[VINTR] = 3;
    before_.c_cc[VSUSP] = 26;
    child_ = forkpty(&terminal_, nullptr, &before_, &size);
    ASSERT_GE(child_, 0);
    if (child_ == 0) _exit(draw_until_quit());
    ASSERT_TRUE(shows("rows 10"));
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(terminal_);
  }

  static int draw_until_quit() {
    setenv("TERM", "xterm", 1);
    if (!Screen::is_there()) return 99;
    Screen screen;
    while (true) {
      screen.draw({"rows " + std::to_string(screen.rows()), "a line that is longer than the terminal is wide"},
                  [](const std::string& line) { return line.starts_with("rows"); });
      if (screen.wait(std::chrono::seconds(60)) == Screen::Event::kQuit) return 7;
    }
  }

  // Reads until the text comes; what has been read before it is forgotten.
  bool shows(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      pollfd readable{terminal_, POLLIN, 0};
      std::array<char, 1024> piece;
      if (poll(&readable, 1, 20'000) <= 0) return false;
      const ssize_t size = read(terminal_, piece.data(), piece.size());
      if (size <= 0) return false;
      output_.append(piece.data(), static_cast<size_t>(size));
    }
    seen_ += output_;
    output_.erase(0, output_.find(text) + text.size());
    return true;
  }
  bool has_its_keys_back() const {
    termios now{};
    return tcgetattr(terminal_, &now) == 0 && now.c_lflag == before_.c_lflag;
  }
  // The status of the child, which ends or stops.
  int status() {
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, WUNTRACED), child_);
    if (!WIFSTOPPED(status)) child_ = -1;
    return status;
  }

  pid_t child_ = -1;
  int terminal_ = -1;
  termios before_{};
  std::string output_, seen_;
};

// The terminal makes \r\n of \n.
TEST_F(ScreenTest, CutsLinesAndMarksHeadings) {
  EXPECT_TRUE(shows("a line that is longe\r\r\n\033[J"));
  EXPECT_NE(seen_.find("\033[1mrows 10\033[0m\033[K\r\r\n"), std::string::npos) << seen_;
}

TEST_F(ScreenTest, QEndsIt) {
  termios during{};
  ASSERT_EQ(tcgetattr(terminal_, &during), 0);
  EXPECT_EQ(during.c_lflag & (ICANON | ECHO), 0u);
  ASSERT_EQ(write(terminal_, "xq", 2), 2);
  EXPECT_TRUE(shows(kLeave));
  EXPECT_EQ(WEXITSTATUS(status()), 7);
  EXPECT_TRUE(has_its_keys_back());
}

TEST_F(ScreenTest, ControlCEndsIt) {
  ASSERT_EQ(write(terminal_, "\x03", 1), 1);
  EXPECT_TRUE(shows(kLeave));
  EXPECT_EQ(WEXITSTATUS(status()), 7);
}

TEST_F(ScreenTest, SignalsEndItAndTheTerminalIsGivenBack) {
  kill(child_, SIGTERM);
  EXPECT_TRUE(shows(kLeave));
  const int ended = status();
  EXPECT_TRUE(WIFSIGNALED(ended));
  EXPECT_EQ(WTERMSIG(ended), SIGTERM);
  EXPECT_TRUE(has_its_keys_back());
}

TEST_F(ScreenTest, StopsAndGoesOn) {
  ASSERT_EQ(write(terminal_, "\x1a", 1), 1);  // Ctrl-Z
  EXPECT_TRUE(shows(kLeave));
  EXPECT_TRUE(WIFSTOPPED(status()));
  EXPECT_TRUE(has_its_keys_back());
  kill(child_, SIGCONT);
  EXPECT_TRUE(shows(kEnter));
  EXPECT_TRUE(shows("rows 10"));
  ASSERT_EQ(write(terminal_, "q", 1), 1);
  EXPECT_EQ(WEXITSTATUS(status()), 7);
}

TEST_F(ScreenTest, FollowsTheSizeOfTheTerminal) {
  const winsize size{33, 60, 0, 0};
  ASSERT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
  EXPECT_TRUE(shows("rows 33"));
  EXPECT_TRUE(shows("longer than the terminal is wide"));
}

TEST_F(ScreenTest, EndsWithItsTerminal) {
  close(terminal_);
  terminal_ = -1;
  status();
}

}  // namespace
}  // namespace uroce::cli
