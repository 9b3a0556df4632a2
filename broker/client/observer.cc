// SPDX-License-Identifier: BSD-2-Clause
#include "broker/client/observer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
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

void fill_in(Process& process, const std::optional<std::string>& text) {
  auto statistics = text ? parse_statistics(*text) : std::nullopt;
  if (!text || !text->empty()) process.answer = statistics ? Process::Answer::kWhole : Process::Answer::kBroken;
  if (statistics) process.statistics = std::move(*statistics);
}

// Of this user's processes, which may be waited for and whose descriptors can be closed.
class OwnAnswers {
 public:
  explicit OwnAnswers(std::vector<Asked> asked) : asked_(std::move(asked)), left_(asked_.size()) {
    for (Asked& each : asked_) wait_for_bell(epoll_.get(), each.bell.get(), &each);
  }
  int descriptor() const { return epoll_.get(); }
  bool are_missing() const { return left_ > 0; }
  // Without waiting. Returns how many bytes have come.
  size_t take(size_t most, const AnswersApart::Take& take) {
    size_t bytes = 0;
    for (epoll_event event{}; epoll_wait(epoll_.get(), &event, 1, 0) == 1;) {
      auto* const each = static_cast<Asked*>(event.data.ptr);
      if (!bell_has_ended(each->bell.get())) continue;
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, each->bell.get(), nullptr);
      --left_;
      const std::optional<std::string> text = read_answer(each->file.get(), most);
      bytes += text ? text->size() : 0;
      take(each->process, text);
    }
    return bytes;
  }

 private:
  const UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Asked> asked_;
  size_t left_;
};

// Who is there, and to whom a question has gone.
struct Round {
  std::vector<Process>& processes;
  uint64_t last = 0;  // client
  bool is_over = false;
  std::vector<Asked> own{};
  AskedOfUsers of_others{};
};

// Fills in the answers of those who give one in time. 0, or EINTR as Observer::look() has it. `bytes`: of all answers.
int take_answers(Round& round, AnswersApart& apart, uint32_t most_qps, int stop, size_t& bytes) {
  const Time end = monotonic_now() + std::chrono::milliseconds(Observer::kPatience);
  const AnswersApart::Take take = [&](size_t process, const auto& text) { fill_in(round.processes[process], text); };
  const size_t most = longest_report(most_qps);
  apart.start(std::exchange(round.of_others, {}), most, end);
  OwnAnswers own(std::exchange(round.own, {}));
  int error = 0;
  while (error == 0 && bytes <= kMostBytes && (own.are_missing() || apart.is_reading())) {
    const Time last = end + std::chrono::milliseconds(apart.is_reading() ? Observer::kPatience : 0);
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(last - monotonic_now()).count();
    if (time <= 0) break;
    std::vector<pollfd> waits = apart.waits();
    waits.push_back({own.descriptor(), POLLIN, 0});
    waits.push_back({stop, POLLIN, 0});
    if (poll(waits.data(), waits.size(), static_cast<int>(time)) < 0) continue;
    if (waits.back().revents != 0) error = EINTR;
    bytes += own.take(most, take) + apart.take(take);
  }
  apart.finish();
  return error;
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

io::IoError too_slow_to_close(const AnswersApart& apart) {
  const std::vector<uid_t> users = apart.users_of_readers();
  return {EBUSY,
          concat("what user ", users.empty() ? "?" : std::to_string(users.front()),
                 " has passed on takes too long to close"),
          "look again later, or end this user's programs"};
}

// The client behind `last` by the look before, if its user's processes are not to be asked now.
const Process* to_skip(const std::vector<Process>& known, uint64_t last, const AnswersApart& apart) {
  const auto next =
      std::find_if(known.begin(), known.end(), [last](const Process& each) { return each.client > last; });
  const bool skips = next != known.end() && next->uid != geteuid() && !apart.can_read(next->uid);
  return skips ? &*next : nullptr;
}

// Asks one client after the other until there are no more of them, or no more files than are kept for what else is
// opened. Numbers of descriptors are the lowest that are free. Who cannot be asked since this process may open no more,
// counts as one that does not answer.
std::optional<io::IoError> ask(int socket, uint32_t most_qps, size_t most_files, const std::vector<Process>& known,
                               AnswersApart& apart, Round& round) {
  const size_t most = most_files - std::min(kSpareFiles, most_files / 2);
  Message request = make_message(Kind::kNext);
  request.most_qps = most_qps;
  if (apart.keeps_too_many()) return too_slow_to_close(apart);
  for (bool is_full = false; !is_full && !round.is_over;) {
    const Process* const skipped = to_skip(known, round.last, apart);
    if (skipped != nullptr) {
      round.processes.push_back(*skipped);
      round.last = skipped->client;
      continue;
    }
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
    Asked asked{round.processes.size(), std::move(came[0]), std::move(came[1])};
    if (!asked.bell || answer.uid == geteuid()) {
      if (asked.bell) round.own.push_back(std::move(asked));
    } else if (round.of_others.contains(answer.uid) || apart.can_read(answer.uid, round.of_others.size())) {
      round.of_others[answer.uid].push_back(std::move(asked));
    } else {
      apart.keep(std::move(asked));
      is_full |= apart.keeps_too_many();
    }
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
  apart_.finish();
  for (Round round{.processes = processes}; !round.is_over;) {
    if (auto error = ask(socket_.get(), most_qps, raised.limit(), known_, apart_, round)) {
      apart_.start(std::move(round.of_others), 0, monotonic_now());  // it does not close what has come
      apart_.finish();
      return std::move(*error);
    }
    if (take_answers(round, apart_, most_qps, stop, bytes) != 0) return io::IoError{EINTR, "interrupted", ""};
  }
  known_.clear();
  for (const Process& process : processes) {
    known_.push_back({process.client, process.pid, process.uid, process.program, Process::Answer::kNone, {}});
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
