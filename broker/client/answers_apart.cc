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
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/close_all.h"
#include "base/unique_fd.h"

namespace uroce::broker {
namespace {

// How each text begins on its way.
struct Head {
  uint64_t process;
  uint64_t size;  // kTooLong: no text
};
constexpr uint64_t kTooLong = UINT64_MAX;

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

// In a process that keeps nothing else: it may be there for long.
[[noreturn]] void pass_on(const std::vector<WrittenAnswer>& answers, size_t most, int pipe) {
  std::vector<int> kept{pipe};
  for (const WrittenAnswer& answer : answers) kept.push_back(answer.file);
  close_all_but(kept);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);  // whoever reads what is printed does not wait for it
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, standard);
  for (const WrittenAnswer& answer : answers) {
    const std::optional<std::string> text = read_answer(answer.file, most);
    const Head head{answer.process, text ? text->size() : kTooLong};
    if (!write_all(pipe, &head, sizeof head) || (text && !write_all(pipe, text->data(), text->size()))) break;
  }
  _exit(0);
}

// SIGPIPE ends it if nobody listens any more. -1: there is none.
pid_t start_reading(const std::vector<WrittenAnswer>& answers, size_t most, UniqueFd& comes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  comes.reset(ends[0]);
  const UniqueFd goes(ends[1]);
  const pid_t child = fork();
  if (child == 0) pass_on(answers, most, goes.get());
  return child;
}

// What has come from one of them so far.
class Texts {
 public:
  Texts(UniqueFd pipe, const std::vector<WrittenAnswer>& of, size_t most)
      : pipe_(std::move(pipe)), of_(of), most_(most) {}

  int descriptor() const { return pipe_.get(); }
  // Calls `take` for those that are whole. Returns how many bytes it has read; none: the last.
  template <class Take>
  size_t read(Take&& take) {
    std::array<char, 65536> bytes;
    const ssize_t size = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) return 1;
    if (size > 0) text_.append(bytes.data(), static_cast<size_t>(size));
    while (text_.size() >= sizeof(Head)) {
      Head head;
      std::memcpy(&head, text_.data(), sizeof head);
      const bool is_one = next_ < of_.size() && head.process == of_[next_].process;
      if (!is_one || (head.size != kTooLong && head.size > most_)) {
        pipe_.reset();
        return 0;
      }
      const size_t length = head.size == kTooLong ? 0 : static_cast<size_t>(head.size);
      if (text_.size() - sizeof head < length) break;
      take(static_cast<size_t>(head.process),
           head.size == kTooLong ? std::nullopt : std::optional(text_.substr(sizeof head, length)));
      text_.erase(0, sizeof head + length);
      ++next_;
    }
    if (size <= 0) pipe_.reset();
    return static_cast<size_t>(std::max<ssize_t>(size, 0));
  }

 private:
  UniqueFd pipe_;
  const std::vector<WrittenAnswer>& of_;
  const size_t most_;
  size_t next_ = 0;
  std::string text_;
};

}  // namespace

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

int AnswersApart::read(const AnswersOfUsers& answers, size_t most, size_t in_all, Time end, int stop,
                       const Take& take) {
  end_readers();
  std::vector<Texts> texts;
  for (const auto& [user, of_user] : answers) {
    if (readers_.contains(user) || readers_.size() >= kMostReaders) continue;
    UniqueFd comes;
    const pid_t reader = start_reading(of_user, most, comes);
    if (reader < 0) continue;
    readers_[user] = reader;
    texts.emplace_back(std::move(comes), of_user, most);
  }
  size_t bytes = 0;
  int error = 0;
  while (bytes <= in_all) {
    std::vector<pollfd> waits{{stop, POLLIN, 0}};
    for (const Texts& each : texts) waits.push_back({each.descriptor(), POLLIN, 0});
    const bool any = std::any_of(waits.begin() + 1, waits.end(), [](const pollfd& wait) { return wait.fd >= 0; });
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(end - monotonic_now()).count();
    if (!any || time <= 0) break;
    if (poll(waits.data(), waits.size(), static_cast<int>(time)) < 0) continue;
    if (waits[0].revents != 0) error = EINTR;
    if (error != 0) break;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (waits[i + 1].revents != 0) bytes += texts[i].read(take);
    }
  }
  end_readers();
  return error;
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
