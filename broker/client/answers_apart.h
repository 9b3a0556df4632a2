// SPDX-License-Identifier: BSD-2-Clause
// Reads what processes have written about themselves, for an observer (observer.h). Who reads a file of another user's
// may wait for the kernel for as long as he likes, and no signal ends it: he may have it moved, or made shorter, while
// a million mappings of it have to be looked through. So what a user's processes have written is read by a process of
// its own, which is left behind when it takes too long; until it has ended, that user has no other.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/time.h"

namespace uroce::broker {

struct WrittenAnswer {
  size_t process;  // whose, as the caller counts them
  int file;
};
using AnswersOfUsers = std::map<uid_t, std::vector<WrittenAnswer>>;

// What is in it. Nothing: more than `most`.
std::optional<std::string> read_answer(int file, size_t most);

class AnswersApart {
 public:
  static constexpr size_t kMostReaders = 64;  // that are there at a time

  AnswersApart() = default;
  ~AnswersApart() { end_readers(); }
  AnswersApart(AnswersApart&&) = default;
  AnswersApart& operator=(AnswersApart&&) = default;

  // Calls `take` for those that are read before `end`, each of `most` bytes at most; all together of `in_all`. 0, or
  // EINTR when `stop` (-1: none) is readable.
  using Take = std::function<void(size_t process, const std::optional<std::string>& text)>;
  int read(const AnswersOfUsers& answers, size_t most, size_t in_all, Time end, int stop, const Take& take);
  // Those that have not ended.
  size_t readers() const { return readers_.size(); }

 private:
  void end_readers();

  std::map<uid_t, pid_t> readers_;
};

}  // namespace uroce::broker
