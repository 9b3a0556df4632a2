// SPDX-License-Identifier: BSD-2-Clause
// Reads what processes have written about themselves, for an observer (observer.h). Who reads a file of another user's
// may wait for the kernel for as long as he likes, and no signal ends it: he may have it moved, or made shorter, while
// a million mappings of it have to be looked through. So what a user's processes have written is read by a process of
// its own, which is left behind when it takes too long.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace uroce::broker {

struct WrittenAnswer {
  size_t process;  // whose, as the caller counts them
  int file;
};
using AnswersOfUsers = std::map<uid_t, std::vector<WrittenAnswer>>;

// What is in it. Nothing: more than `most`.
std::optional<std::string> read_answer(int file, size_t most);

// Calls `take` for those that are read within Observer::kPatience, each of `most` bytes at most; all together of
// `in_all`. 0, or EINTR when `stop` (-1: none) is readable.
int read_answers_apart(const AnswersOfUsers& answers, size_t most, size_t in_all, int stop,
                       const std::function<void(size_t process, const std::optional<std::string>& text)>& take);

}  // namespace uroce::broker
