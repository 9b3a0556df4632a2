// SPDX-License-Identifier: BSD-2-Clause
#include "cli/screen.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace uroce::cli {
namespace {

constexpr std::string_view kEnter = "\033[?1049h\033[?25l";         // the alternate screen, no cursor
constexpr std::string_view kLeave = "\033[0m\033[?25h\033[?1049l";  // back
constexpr std::string_view kHome = "\033[H", kRestOfLine = "\033[K", kRestOfScreen = "\033[J";
constexpr std::string_view kBold = "\033[1m", kPlain = "\033[0m";
constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

sigset_t set_of(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  return signals;
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

winsize size_of_terminal() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {24, 80, 0, 0};
  return size;
}

// As if nobody had waited for it: whoever started the program sees which signal it was.
void take_by_default(int number) {
  const sigset_t signals = set_of({number});
  std::signal(number, SIG_DFL);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace

bool Screen::is_there() {
  const char* const terminal = secure_getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

Screen::Screen() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : kSignals) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_.reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  attention_.reset(epoll_create1(EPOLL_CLOEXEC));
  has_keys_ = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0;
  for (const int fd : {signals_.get(), STDIN_FILENO}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (fd != STDIN_FILENO || has_keys_) epoll_ctl(attention_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  enter();
}

Screen::~Screen() {
  leave();
}

void Screen::enter() {
  if (has_keys_) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;  // read() does not wait
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
  }
  write_all(kEnter);
}

void Screen::leave() const {
  write_all(kLeave);
  if (has_keys_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

size_t Screen::rows() const {
  return size_of_terminal().ws_row;
}

void Screen::draw(const std::vector<std::string>& lines, bool (*bold)(const std::string&)) const {
  const winsize size = size_of_terminal();
  std::string frame(kHome);
  for (size_t i = 0; i < lines.size() && i < size.ws_row; ++i) {
    if (i > 0) frame += "\r\n";
    const std::string_view line = std::string_view(lines[i]).substr(0, size.ws_col);
    if (bold(lines[i])) {
      frame.append(kBold).append(line).append(kPlain);
    } else {
      frame += line;
    }
    if (line.size() < size.ws_col) frame += kRestOfLine;
  }
  if (lines.size() < size.ws_row) frame.append("\r\n").append(kRestOfScreen);
  write_all(frame);
}

Screen::Event Screen::wait(std::chrono::milliseconds time) {
  epoll_event event{};
  const int count =
      epoll_wait(attention_.get(), &event, 1, static_cast<int>(std::clamp<int64_t>(time.count(), 0, 1 << 30)));
  if (count <= 0) return Event::kNone;
  return event.data.fd == STDIN_FILENO ? on_key() : on_signal();
}

Screen::Event Screen::on_key() const {
  std::array<char, 64> keys;
  const ssize_t count = read(STDIN_FILENO, keys.data(), keys.size());
  if (count <= 0) return count < 0 && (errno == EINTR || errno == EAGAIN) ? Event::kNone : Event::kQuit;
  const std::string_view typed(keys.data(), static_cast<size_t>(count));
  if (typed.find_first_of("qQ") != std::string_view::npos) return Event::kQuit;
  return Event::kDraw;
}

Screen::Event Screen::on_signal() {
  signalfd_siginfo info{};
  if (read(signals_.get(), &info, sizeof(info)) != sizeof(info)) return Event::kNone;
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGINT) return Event::kQuit;
  if (number == SIGWINCH || number == SIGCONT) return Event::kDraw;
  leave();
  if (number == SIGTSTP) {
    raise(SIGSTOP);  // goes on here
  } else {
    take_by_default(number);
  }
  enter();
  return Event::kDraw;
}

}  // namespace uroce::cli
