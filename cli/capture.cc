// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/nameless_socket.h"
#include "capture/output.h"
#include "capture/protocol.h"
#include "capture/settings.h"
#include "cli/capture_targets.h"
#include "cli/complaint.h"
#include "cli/exit_codes.h"

namespace uroce::cli {
namespace protocol = io::capture_protocol;

namespace {

using Clock = std::chrono::steady_clock;
using protocol::Kind;
using protocol::Message;

// What the process may take to write what it has, once it has been asked to stop.
constexpr std::chrono::seconds kFarewell{5};

// The connection to the process, and the files that it is handed.
class Session {
 public:
  explicit Session(const CaptureOptions& options)
      : options_(options), files_(options.file, options.files, options.size * io::kMegabyte) {}
  ~Session() {
    if (connection_ >= 0) close(connection_);
    if (signals_ >= 0) close(signals_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // nullopt: it has begun.
  std::optional<std::string> begin(const CaptureTarget& target, const std::string& device);
  // Until the capture is over; the exit code.
  int run(const CaptureTarget& target);

 private:
  int open_output();
  void hand_next_file();
  bool wait_for_news();
  void ask_to_stop();
  int report(int error) const;

  const CaptureOptions& options_;
  io::CaptureFiles files_;
  int connection_ = -1;
  int signals_ = -1;
  Clock::time_point stop_at_ = Clock::time_point::max();  // the duration is over, or the patience
  bool stopping_ = false;
  Message news_;
  int news_error_ = 0;
};

int Session::open_output() {
  return options_.file == "-" ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : files_.open_next();
}

std::optional<std::string> Session::begin(const CaptureTarget& target, const std::string& device) {
  // From here on Ctrl-C ends the capture, not this program.
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, number);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  signals_ = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);

  Message request;
  request.kind = Kind::kStart;
  request.snap = options_.snap;
  request.max_packets = options_.count;
  request.file_size = options_.size * io::kMegabyte;
  protocol::put_text(request.device, device);
  for (const std::string& text : options_.qpns) {
    for (const uint32_t qpn : io::parse_capture_qpns(text).value_or(std::vector<uint32_t>{})) {
      if (request.qpn_count == protocol::kMaxQpns) return "--qpn: more than 16 QPNs";
      request.qpns[request.qpn_count++] = qpn;
    }
  }
  uid_t user = 0;
  connection_ = io::connect_to_nameless_socket(target.pid, &user);
  if (connection_ >= 0 && user != target.user) return fmt::format("process {}: it has ended", target.pid);
  if (connection_ < 0) return fmt::format("process {}: {}", target.pid, std::strerror(-connection_));
  const int file = open_output();
  if (file < 0) return fmt::format("cannot write {}: {}", options_.file, io::capture_error_text(-file));
  int error = protocol::send(connection_, request, file);
  close(file);
  if (error == 0) error = protocol::receive(connection_, news_, nullptr, static_cast<int>(kFarewell.count() * 1000));
  if (error == 0 && news_.kind == Kind::kRefused) error = news_.error;
  if (error == EBUSY) return fmt::format("process {}: too many captures at a time", target.pid);
  if (error != 0) return fmt::format("process {}: {}", target.pid, std::strerror(error));
  if (options_.duration > 0) {
    stop_at_ = Clock::now() + std::chrono::microseconds(std::llround(options_.duration * 1e6));
  }
  return std::nullopt;
}

void Session::ask_to_stop() {
  Message message;
  message.kind = Kind::kStop;
  protocol::send(connection_, message);
  stopping_ = true;
  stop_at_ = Clock::now() + kFarewell;
}

void Session::hand_next_file() {
  Message message;
  message.kind = Kind::kFile;
  const int file = open_output();
  message.error = file < 0 ? -file : 0;
  protocol::send(connection_, message, file);
  if (file >= 0) close(file);
}

// True: the process has said something (news_), or is gone (news_error_).
bool Session::wait_for_news() {
  pollfd descriptors[2] = {{connection_, POLLIN, 0}, {signals_, POLLIN, 0}};
  int timeout = -1;
  if (stop_at_ != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(stop_at_ - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }
  const int ready = poll(descriptors, 2, timeout);
  if (descriptors[0].revents != 0) {
    news_error_ = protocol::receive(connection_, news_, nullptr, 0);
    return true;
  }
  if (ready > 0 && descriptors[1].revents != 0) {
    signalfd_siginfo info{};
    [[maybe_unused]] const ssize_t n = read(signals_, &info, sizeof(info));
    if (stopping_) stop_at_ = Clock::now();  // asked for twice: at once
    if (!stopping_) ask_to_stop();
  } else if (ready == 0) {
    if (!stopping_) {
      ask_to_stop();
    } else {
      news_error_ = ETIMEDOUT;
      return true;
    }
  }
  return false;
}

int Session::report(int error) const {
  if (!options_.quiet || news_.dropped > 0) {
    std::string text = fmt::format("{} packets captured", news_.captured);
    text += news_.dropped == 0 ? ", none missing"
                               : fmt::format(", {} missing: the disk or the reader was too slow", news_.dropped);
    complain(kExitOk, text);
  }
  // A reader that has seen enough is no failure.
  if (error == 0 || error == EPIPE) return kExitOk;
  return complain(kExitFailed, fmt::format("{}: {}", options_.file == "-" ? "standard output" : options_.file,
                                           io::capture_error_text(error)));
}

int Session::run(const CaptureTarget& target) {
  while (true) {
    if (!wait_for_news()) continue;
    if (news_error_ == ETIMEDOUT)
      return complain(kExitFailed, "the process does not finish the capture; the file may be cut short");
    if (news_error_ != 0)
      return complain(kExitFailed, fmt::format("process {} was killed; the file may be cut short", target.pid));
    if (news_.kind == Kind::kNextFile) hand_next_file();
    if (news_.kind == Kind::kEnded) return report(news_.error);
  }
}

std::optional<std::string> check(const CaptureOptions& options) {
  if (options.file.empty()) return "-w: a file is missing; for example: uroce capture -w trace.pcapng";
  if (options.file == "-" && isatty(STDOUT_FILENO) != 0) {
    return "-w -: standard output is a terminal; use -w FILE, or a pipe: uroce capture -w - | wireshark -k -i -";
  }
  if ((options.files == 0) != (options.size == 0)) return "--files, --size: only together; they make a ring of files";
  if (options.files != 0 && options.file == "-") return "--files, --size: not with -w -; a ring of files needs a name";
  for (const std::string& text : options.qpns) {
    if (!io::parse_capture_qpns(text)) return fmt::format("--qpn '{}': no list of QPNs; for example: 0x11,18", text);
  }
  return std::nullopt;
}

}  // namespace

int capture(const CaptureOptions& options) {
  if (!options.list) {
    if (const auto problem = check(options)) return complain(kExitUsage, *problem);
  }
  const std::vector<CaptureTarget> targets = find_capture_targets(options.target);
  if (options.list) {
    fmt::print("{}", format_capture_targets(targets));
    return kExitOk;
  }
  const ChosenTarget chosen = choose_capture_target(targets, options.target);
  if (!chosen.target) return complain(kExitFailed, chosen.problem);
  Session session(options);
  if (const auto problem = session.begin(*chosen.target, chosen.device)) return complain(kExitFailed, *problem);
  if (!options.quiet) {
    complain(kExitOk,
             fmt::format("capturing process {} ({}); Ctrl-C ends it", chosen.target->pid, chosen.target->program));
  }
  return session.run(*chosen.target);
}

}  // namespace uroce::cli
