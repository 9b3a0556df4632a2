// SPDX-License-Identifier: BSD-2-Clause
#include "broker/client/answers_apart.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/close_all.h"

namespace uroce::broker {
namespace {

// How each text begins on its way.
struct Head {
  uint64_t process;
  uint64_t size;  // kTooLong: no text
};
constexpr uint64_t kTooLong = UINT64_MAX;
constexpr char kHasLetGo = 0;  // before all texts

// In place of a user: this process reads nothing, and has what is of users who cannot have one of their own.
constexpr int64_t kHolder = -1;
constexpr Duration kToBegin = std::chrono::seconds(1);  // of readers, which take a moment
constexpr Duration kToEnd = std::chrono::milliseconds(300);

bool write_all(int pipe, const void* bytes, size_t size) {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(pipe, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// In a process that keeps nothing else, as it may be there for long, and that a terminal does not end: this one would
// be the last to have the descriptors if both end at once.
[[noreturn]] void be_reader(const std::vector<Asked>& asked, size_t most, Time until, int link) {
  setsid();
  std::vector<int> kept{link};
  for (const Asked& each : asked) kept.insert(kept.end(), {each.file.get(), each.bell.get()});
  close_all_but(kept);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);  // whoever reads what is printed does not wait for it
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, standard);
  bool is_heard = write_all(link, &kHasLetGo, sizeof kHasLetGo);
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  for (const Asked& each : asked) wait_for_bell(epoll.get(), each.bell.get(), const_cast<Asked*>(&each));
  for (size_t left = asked.size(); is_heard && left > 0;) {
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(until - monotonic_now()).count();
    if (time <= 0) break;
    epoll_event event{};
    const int ready = epoll_wait(epoll.get(), &event, 1, static_cast<int>(time));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const auto* const each = static_cast<const Asked*>(event.data.ptr);
    if (!bell_has_ended(each->bell.get())) continue;
    epoll_ctl(epoll.get(), EPOLL_CTL_DEL, each->bell.get(), nullptr);
    --left;
    const std::optional<std::string> text = read_answer(each->file.get(), most);
    const Head head{each->process, text ? text->size() : kTooLong};
    is_heard = write_all(link, &head, sizeof head) && (!text || write_all(link, text->data(), text->size()));
  }
  shutdown(link, SHUT_WR);
  char nothing_comes;
  while (read(link, &nothing_comes, 1) < 0 && errno == EINTR) continue;  // until the other side has closed its copies
  _exit(0);
}

// SIGPIPE ends it if nobody listens any more. -1: there is none.
pid_t start_reader(const std::vector<Asked>& asked, size_t most, Time until, UniqueFd& link) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  link.reset(ends[0]);
  const UniqueFd of_reader(ends[1]);
  const pid_t child = fork();
  if (child == 0) be_reader(asked, most, until, of_reader.get());
  return child;
}

}  // namespace

// What has come from one of them so far.
class AnswersApart::Reading {
 public:
  Reading(UniqueFd link, const std::vector<Asked>& asked, size_t most) : link_(std::move(link)), most_(most) {
    for (const Asked& each : asked) left_.insert(each.process);
  }

  int descriptor() const { return link_.get(); }
  // It has let go of what is others'.
  void wait_until_begun(Time end) const {
    pollfd wait{link_.get(), POLLIN, 0};
    for (int ready = -1; ready < 0;) {
      const auto time = std::chrono::ceil<std::chrono::milliseconds>(end - monotonic_now()).count();
      if (time <= 0) return;
      ready = poll(&wait, 1, static_cast<int>(time));
    }
  }
  // This process has closed its copies.
  void let_end() const { shutdown(link_.get(), SHUT_WR); }
  // Calls `take` for those that are whole. Returns how many bytes it has read.
  size_t read(const Take& take) {
    std::array<char, 65536> bytes;
    const ssize_t size = recv(link_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (size > 0) text_.append(bytes.data(), static_cast<size_t>(size));
    if (size <= 0 || !take_whole(take)) link_.reset();
    return static_cast<size_t>(std::max<ssize_t>(size, 0));
  }
  bool is_over() const { return !link_; }

 private:
  // False: what has come is nothing that a reader says.
  bool take_whole(const Take& take) {
    if (!has_begun_ && !text_.empty()) {
      has_begun_ = true;
      text_.erase(0, sizeof kHasLetGo);
    }
    while (text_.size() >= sizeof(Head)) {
      Head head;
      std::memcpy(&head, text_.data(), sizeof head);
      const auto process = static_cast<size_t>(head.process);
      if (!left_.contains(process) || (head.size != kTooLong && head.size > most_)) return false;
      const size_t length = head.size == kTooLong ? 0 : static_cast<size_t>(head.size);
      if (text_.size() - sizeof head < length) break;
      left_.erase(process);
      take(process, head.size == kTooLong ? std::nullopt : std::optional(text_.substr(sizeof head, length)));
      text_.erase(0, sizeof head + length);
    }
    return true;
  }

  UniqueFd link_;
  size_t most_;
  std::set<size_t> left_;
  bool has_begun_ = false;
  std::string text_;
};

std::optional<std::string> read_answer(int file, size_t most) {
  struct stat status {};
  if (fstat(file, &status) != 0 || static_cast<size_t>(status.st_size) > most) return std::nullopt;
  std::string text(static_cast<size_t>(status.st_size), 0);
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = pread(file, &text[size], text.size() - size, static_cast<off_t>(size));
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

AnswersApart::AnswersApart() = default;
AnswersApart::AnswersApart(AnswersApart&& other) noexcept = default;

// What is kept outlives this process, too, which would wait for it at its end.
AnswersApart::~AnswersApart() {
  end_readers();
  std::vector<Asked> handed_over;
  if (kept_.empty() || !hand_over(kHolder, kept_, 0, Time(), handed_over)) return;
  readings_.back().wait_until_begun(monotonic_now() + kToBegin);
}

bool AnswersApart::can_read(uid_t user, size_t begin) const {
  const size_t others = readers_.size() - readers_.count(kHolder) + begin;
  return !readers_.contains(user) && others < kMostReaders - 1;  // and one is the holder's
}

// False: there can be no process.
bool AnswersApart::hand_over(int64_t user, std::vector<Asked>& asked, size_t most, Time until,
                             std::vector<Asked>& handed_over) {
  UniqueFd link;
  const pid_t reader = start_reader(asked, most, until, link);
  if (reader < 0) return false;
  readers_[user] = reader;
  begun_.insert(user);
  readings_.emplace_back(std::move(link), asked, most);
  std::move(asked.begin(), asked.end(), std::back_inserter(handed_over));
  asked.clear();
  return true;
}

// A reader begins with copies of what others are to read, and may be the last to close these until it has begun: all
// are closed here when none is.
void AnswersApart::start(AskedOfUsers&& asked, size_t most, Time until) {
  finish();
  std::vector<Asked> handed_over;
  for (auto& [user, of_user] : asked) {
    if (can_read(user) && hand_over(user, of_user, most, until, handed_over)) continue;
    std::for_each(of_user.begin(), of_user.end(), [this](Asked& each) { keep(std::move(each)); });
  }
  if (!kept_.empty() && !readers_.contains(kHolder)) hand_over(kHolder, kept_, 0, Time(), handed_over);
  const Time end = monotonic_now() + kToBegin;
  for (const Reading& reading : readings_) reading.wait_until_begun(end);
  handed_over.clear();
  for (const Reading& reading : readings_) reading.let_end();
}

std::vector<pollfd> AnswersApart::waits() const {
  std::vector<pollfd> waits;
  for (const Reading& reading : readings_) waits.push_back({reading.descriptor(), POLLIN, 0});
  return waits;
}

size_t AnswersApart::take(const Take& take) {
  size_t bytes = 0;
  for (Reading& reading : readings_) bytes += reading.read(take);
  std::erase_if(readings_, std::mem_fn(&Reading::is_over));
  return bytes;
}

bool AnswersApart::is_reading() const {
  return !readings_.empty();
}

// Most readers end at once, and their users may be asked again at once.
void AnswersApart::finish() {
  readings_.clear();
  end_readers();
  const auto is_there = [this](int64_t user) { return readers_.contains(user); };
  for (const Time end = monotonic_now() + kToEnd; monotonic_now() < end;) {
    if (std::none_of(begun_.begin(), begun_.end(), is_there)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end_readers();
  }
  begun_.clear();
}

std::vector<uid_t> AnswersApart::users_of_readers() const {
  std::vector<uid_t> users;
  for (const auto& [user, reader] : readers_) {
    if (user != kHolder) users.push_back(static_cast<uid_t>(user));
  }
  return users;
}

// One that waits in the kernel ends when that is over, and somebody else takes note of it, or the next look.
void AnswersApart::end_readers() {
  const auto has_ended = [](pid_t reader) { return waitpid(reader, nullptr, WNOHANG) != 0; };
  std::erase_if(readers_, [&](const auto& reader) {
    if (has_ended(reader.second)) return true;  // its number may be another's by now
    kill(reader.second, SIGKILL);
    return has_ended(reader.second);
  });
}

}  // namespace uroce::broker
