// SPDX-License-Identifier: BSD-2-Clause
#include "broker/client/observer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sys/epoll.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/bell.h"
#include "base/clock.h"
#include "base/concat.h"
#include "base/raised_file_limit.h"
#include "broker/protocol/address.h"
#include "broker/protocol/protocol.h"
#include "broker/protocol/words.h"

namespace uroce::broker {

namespace {

constexpr int kBrokerPatience = 2000;  // ms
constexpr Duration kConnectTime = std::chrono::seconds(1);
constexpr size_t kMostProcesses = 4096;   // a broker has 1024 clients at most
constexpr size_t kMostBytes = 256 << 20;  // of all answers together
constexpr size_t kSpareFiles = 96;        // for what is opened to take answers

std::string text_of_error(int error) {
  return std::generic_category().message(error);
}

// A process that is to answer: it writes into the file and then closes its end of the bell. It may be hostile.
struct Asked {
  size_t process;
  UniqueFd file, bell;
};

void fill_in(Process& process, const std::optional<std::string>& text) {
  auto statistics = text ? parse_statistics(*text) : std::nullopt;
  if (!text || !text->empty()) process.answer = statistics ? Process::Answer::kWhole : Process::Answer::kBroken;
  if (statistics) process.statistics = std::move(*statistics);
}

// Fills in the answers of those who give one in time. 0, or EINTR as Observer::look() has it. `bytes`: of all answers.
int take_answers(std::vector<Process>& processes, std::vector<Asked> asked, AnswersApart& apart, uint32_t most_qps,
                 int stop, size_t& bytes) {
  const Time end = monotonic_now() + std::chrono::milliseconds(Observer::kPatience);
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event stopped{.events = EPOLLIN, .data = {}};
  if (stop >= 0) epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop, &stopped);
  for (Asked& each : asked) wait_for_bell(epoll.get(), each.bell.get(), &each);
  AnswersOfUsers of_others;
  size_t left = asked.size();
  while (left > 0 && bytes <= kMostBytes) {
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(end - monotonic_now()).count();
    if (time <= 0) break;
    epoll_event event{};
    const int ready = epoll_wait(epoll.get(), &event, 1, static_cast<int>(time));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    auto* const each = static_cast<Asked*>(event.data.ptr);
    if (each == nullptr) return EINTR;
    if (!bell_has_ended(each->bell.get())) continue;
    each->bell.reset();  // out of the epoll set
    --left;
    const uid_t user = processes[each->process].uid;
    if (user != geteuid()) {
      of_others[user].push_back({each->process, each->file.get()});
      continue;
    }
    const std::optional<std::string> text = read_answer(each->file.get(), longest_report(most_qps));
    bytes += text ? text->size() : 0;
    fill_in(processes[each->process], text);
  }
  return apart.read(of_others, longest_report(most_qps), kMostBytes - std::min(bytes, kMostBytes),
                    monotonic_now() + std::chrono::milliseconds(Observer::kPatience), stop,
                    [&](size_t process, const auto& text) {
                      bytes += text ? text->size() : 0;
                      fill_in(processes[process], text);
                    });
}

std::variant<UniqueFd, io::IoError> reach(const std::string& address) {
  UniqueFd socket;
  int error = find_broker(address, socket);
  for (const Time end = monotonic_now() + kConnectTime; error == EAGAIN && monotonic_now() < end;) {  // many do
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    error = find_broker(address, socket);
  }
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

// Who is there, and to whom a question has gone.
struct Round {
  std::vector<Process>& processes;
  uint64_t last = 0;  // client
  bool is_over = false;
  std::vector<Asked> asked{};
};

// Asks one client after the other until there are no more of them, or no more files than are kept for what else is
// opened. Numbers of descriptors are the lowest that are free. Who cannot be asked since this process may open no more,
// counts as one that does not answer.
std::optional<io::IoError> ask(int socket, uint32_t most_qps, size_t most_files, Round& round) {
  const size_t most = most_files - std::min(kSpareFiles, most_files / 2);
  Message request = make_message(Kind::kNext);
  request.most_qps = most_qps;
  for (bool is_full = false; !is_full && !round.is_over;) {
    Message answer;
    Descriptors came;
    request.client = round.last;
    int error = send(socket, request);
    if (error == 0) error = receive(socket, answer, came, kBrokerPatience);
    if (error == EMFILE) error = 0;
    round.is_over = error == 0 && answer.kind == Kind::kNoMore;
    if (round.is_over) break;
    if (error == 0 && (answer.kind != Kind::kProcess || answer.client <= request.client)) error = EPROTO;
    if (error != 0) return no_answer(error);
    round.last = answer.client;
    is_full = came[1] && static_cast<size_t>(came[1].get()) >= most;
    if (came[1]) round.asked.push_back({round.processes.size(), std::move(came[0]), std::move(came[1])});
    round.processes.push_back({.client = answer.client,
                               .pid = answer.pid,
                               .uid = answer.uid,
                               .program = printable(text_of(answer)),
                               .answer = Process::Answer::kNone,
                               .statistics = {}});
    round.is_over = round.processes.size() >= kMostProcesses;
  }
  return std::nullopt;
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
  const RaisedFileLimit raised;
  most_qps = std::min(most_qps, kMostQps);
  std::vector<Process> processes;
  size_t bytes = 0;
  for (Round round{.processes = processes}; !round.is_over;) {
    if (auto error = ask(socket_.get(), most_qps, raised.limit(), round)) return std::move(*error);
    if (take_answers(processes, std::exchange(round.asked, {}), apart_, most_qps, stop, bytes) != 0)
      return io::IoError{EINTR, "interrupted", ""};
  }
  return processes;
}

// A broker that goes on for ever is not listened to for as long.
std::variant<std::optional<ConnectionsStatistics>, io::IoError> Observer::connections() {
  constexpr int kMostPages = 65536;
  std::string text;
  size_t ids = 0;
  Message request = make_message(Kind::kIds);
  for (int pages = 0; pages < kMostPages && ids < kMostIds; ++pages) {
    Message answer;
    Descriptors none;
    int error = send(socket_.get(), request);
    if (error == 0) error = receive(socket_.get(), answer, none, kBrokerPatience);
    if (error == 0 && answer.kind != Kind::kGranted) error = EPROTO;
    if (error != 0) return no_answer(error);
    std::string lines = text_of(answer);
    if (pages == 0 && lines.empty()) return std::nullopt;
    std::replace(lines.begin(), lines.end(), kLineEnd, '\n');
    for (std::string_view rest = lines; !rest.empty() && ids <= kMostIds;) {
      const std::string_view line = take_until(rest, '\n');
      ids += line.starts_with("id ") ? 1 : 0;
      if (ids <= kMostIds) text += concat(line, "\n");
    }
    request.client = answer.client;
    if (request.client == 0) break;
  }
  return parse_connections(text + "end\n");
}

}  // namespace uroce::broker
