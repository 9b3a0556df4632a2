// SPDX-License-Identifier: BSD-2-Clause
#include "broker/observer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "broker/address.h"
#include "broker/protocol.h"
#include "engine/base/clock.h"
#include "engine/base/concat.h"

namespace uroce::broker {

namespace {

constexpr int kBrokerPatience = 2000;     // ms
constexpr size_t kMostProcesses = 4096;   // a broker has 1024 clients at most
constexpr size_t kMostBytes = 256 << 20;  // of all answers together

std::string text_of_error(int error) {
  return std::generic_category().message(error);
}

// A process that is to answer, and what it has said so far.
struct Asked {
  size_t process;
  UniqueFd stream;
  std::string text;
};

// Reads what is there. True: there will be no more.
bool read_some(Asked& asked, size_t most) {
  std::array<char, 65536> piece;
  const ssize_t size = recv(asked.stream.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (size < 0) return errno != EAGAIN && errno != EINTR;
  asked.text.append(piece.data(), static_cast<size_t>(size));
  return size == 0 || asked.text.size() > most;
}

// Fills in the answers of those who give one in time. 0, or EINTR as Observer::look() has it.
int take_answers(std::vector<Process>& processes, std::vector<Asked> asked, uint32_t most_qps, int stop) {
  const Time end = monotonic_now() + std::chrono::milliseconds(Observer::kPatience);
  size_t bytes = 0;
  std::vector<pollfd> waits;
  while (!asked.empty() && bytes <= kMostBytes) {
    waits.assign(1, {stop, POLLIN, 0});
    for (const Asked& each : asked) waits.push_back({each.stream.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - monotonic_now()).count();
    if (left <= 0) break;
    const int ready = poll(waits.data(), waits.size(), static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    if (waits[0].revents != 0) return EINTR;
    for (size_t i = asked.size(); i-- > 0;) {
      if (waits[i + 1].revents == 0) continue;
      const size_t before = asked[i].text.size();
      const bool done = read_some(asked[i], longest_report(most_qps));
      bytes += asked[i].text.size() - before;
      if (!done) continue;
      Process& process = processes[asked[i].process];
      auto statistics = parse_statistics(asked[i].text);
      if (!asked[i].text.empty()) process.answer = statistics ? Process::Answer::kWhole : Process::Answer::kBroken;
      if (statistics) process.statistics = std::move(*statistics);
      asked.erase(asked.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return 0;
}

std::variant<UniqueFd, io::IoError> reach(const std::string& address) {
  UniqueFd socket;
  const int error = find_broker(address, socket);
  if (error == 0) return socket;
  const bool nobody = address.empty() || error == ENOENT || error == ECONNREFUSED;
  return io::IoError{nobody ? ENOENT : error,
                     address.empty() ? "no broker runs" : concat("no broker at ", address, ": ", text_of_error(error)),
                     "uroce run starts one with the first program; programs with --alone are not seen"};
}

io::IoError no_answer(int error) {
  return {error,
          error == ECONNRESET ? "the broker has ended, or does not know this question"
                              : concat("the broker does not answer: ", text_of_error(error)),
          "see that uroced runs and is as new as this program"};
}

}  // namespace

std::variant<Observer, io::IoError> Observer::open(const std::string& address) {
  auto reached = reach(address);
  if (auto* const error = std::get_if<io::IoError>(&reached)) return std::move(*error);
  UniqueFd& socket = std::get<UniqueFd>(reached);
  Message answer;
  Descriptors none;
  int error = send(socket.get(), make_message(Kind::kLook));
  if (error == 0) error = receive(socket.get(), answer, none, kBrokerPatience);
  if (error == ENOTSUP || (error == 0 && answer.kind == Kind::kRefused)) {
    return io::IoError{error != 0 ? error : answer.error, concat("the broker refuses: ", printable(text_of(answer))),
                       "root can look at every broker"};
  }
  if (error == 0 && answer.kind != Kind::kWelcome) error = EPROTO;
  if (error != 0) return no_answer(error);
  return Observer(std::move(socket), printable(text_of(answer)));
}

std::variant<std::vector<Process>, io::IoError> Observer::look(uint32_t most_qps, int stop) {
  most_qps = std::min(most_qps, kMostQps);
  std::vector<Process> processes;
  std::vector<Asked> asked;
  Message request = make_message(Kind::kNext);
  request.most_qps = most_qps;
  while (processes.size() < kMostProcesses) {
    Message answer;
    Descriptors came;
    int error = send(socket_.get(), request);
    if (error == 0) error = receive(socket_.get(), answer, came, kBrokerPatience);
    if (error == 0 && answer.kind == Kind::kNoMore) break;
    if (error == 0 && (answer.kind != Kind::kProcess || answer.client <= request.client)) error = EPROTO;
    if (error != 0) return no_answer(error);
    request.client = answer.client;
    if (came.front()) asked.push_back({processes.size(), std::move(came.front()), {}});
    processes.push_back({.client = answer.client,
                         .pid = answer.pid,
                         .uid = answer.uid,
                         .program = printable(text_of(answer)),
                         .answer = Process::Answer::kNone,
                         .statistics = {}});
  }
  if (take_answers(processes, std::move(asked), most_qps, stop) != 0) return io::IoError{EINTR, "interrupted", ""};
  return processes;
}

std::variant<std::optional<ConnectionsStatistics>, io::IoError> Observer::connections() {
  Message answer;
  Descriptors came;
  int error = send(socket_.get(), make_message(Kind::kIds));
  if (error == 0) error = receive(socket_.get(), answer, came, kBrokerPatience);
  if (error == 0 && answer.kind != Kind::kGranted) error = EPROTO;
  if (error != 0) return no_answer(error);
  struct stat status {};
  const int file = came.front().get();
  const bool usable = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                      static_cast<size_t>(status.st_size) <= kLongestConnections;
  if (!usable) return std::nullopt;
  std::string text(static_cast<size_t>(status.st_size), 0);
  if (pread(file, text.data(), text.size(), 0) != status.st_size) return std::nullopt;
  return parse_connections(text);
}

}  // namespace uroce::broker
