// SPDX-License-Identifier: BSD-2-Clause
#include "cli/start_broker.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/unique_fd.h"
#include "broker/client/link.h"
#include "broker/client/observer.h"
#include "cli/library.h"

namespace uroce::cli {
namespace {

// Seconds that it stays for the next program. Without privileges it starts quickly, and is in the way of other users.
constexpr const char *kLinger = "5", *kLingerOfUser = "1";
constexpr std::chrono::milliseconds kLongestLinger{6000};
constexpr int kPatience = 5000;  // ms
constexpr int kReady = 3;        // descriptor in uroced

// In a process of its own session, which belongs to nobody's terminal and holds nobody's files. Does not return.
[[noreturn]] void become_broker(const std::string& path, const BrokerOptions& options, int ready) {
  setsid();
  if (fork() != 0) _exit(0);
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  dup2(ready, kReady);
  closefrom(kReady + 1);
  if (chdir("/") != 0) _exit(1);
  std::vector<const char*> arguments{path.c_str(), "--linger", geteuid() == 0 ? kLinger : kLingerOfUser, "--ready",
                                     "3"};
  if (!options.user.empty()) arguments.insert(arguments.end(), {"--user", options.user.c_str()});
  if (!options.faults.empty()) arguments.insert(arguments.end(), {"--faults", options.faults.c_str()});
  arguments.push_back(nullptr);
  const std::array<char*, 1> nothing{nullptr};
  execve(path.c_str(), const_cast<char**>(arguments.data()), nothing.data());
  const std::string text = fmt::format("{}: {}\n", path, std::strerror(errno));
  [[maybe_unused]] const ssize_t written = write(kReady, text.data(), text.size());
  _exit(1);
}

// The line that uroced writes when it serves, or when it gives up.
std::string answer_of(int ready) {
  std::string answer;
  std::array<char, 512> piece;
  while (!answer.ends_with('\n')) {
    pollfd wait{ready, POLLIN, 0};
    if (poll(&wait, 1, kPatience) <= 0) return "it does not begin to serve";
    const ssize_t size = read(ready, piece.data(), piece.size());
    if (size <= 0) return "it ended without a word";
    answer.append(piece.data(), static_cast<size_t>(size));
  }
  answer.pop_back();
  return answer;
}

// It stays while the program does, and those that it starts: they may need it late.
bool is_there() {
  const auto opened = broker::Link::open("", nullptr);
  if (std::holds_alternative<io::IoError>(opened)) return true;  // the program says what is wrong
  const auto& link = std::get<std::shared_ptr<broker::Link>>(opened);
  if (link) link->keep_for_programs();
  return link != nullptr;
}

}  // namespace

std::optional<std::string> start_broker(const BrokerOptions& options) {
  if (is_there()) return std::nullopt;
  const std::optional<std::string> path = find_broker_program();
  if (!path) return "uroced is missing; it belongs beside uroce";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
  const UniqueFd ready(ends[0]);
  UniqueFd low(ends[1]), told(fcntl(ends[1], F_DUPFD_CLOEXEC, kReady + 1));  // 0 to 2 may be free here
  const pid_t child = fork();
  if (child < 0) return std::strerror(errno);
  if (child == 0) become_broker(*path, options, told.get());
  low.reset();
  told.reset();
  waitpid(child, nullptr, 0);
  const std::string answer = answer_of(ready.get());
  if (is_there()) return std::nullopt;  // this one or another one that was faster
  return answer.empty() ? "it has gone again" : answer;
}

void let_broker_end(const std::function<void(const std::string& broker)>& say) {
  using std::chrono::milliseconds;
  const auto end = std::chrono::steady_clock::now() + kLongestLinger;
  for (bool said = false; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(milliseconds(20))) {
    auto opened = broker::Observer::open("");
    auto* const observer = std::get_if<broker::Observer>(&opened);
    if (observer == nullptr) return;
    const auto seen = observer->look(0);
    const auto* const programs = std::get_if<std::vector<broker::Process>>(&seen);
    if (programs == nullptr || !programs->empty()) return;
    if (!said) say(observer->broker());
    said = true;
  }
}

}  // namespace uroce::cli
