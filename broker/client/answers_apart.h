// SPDX-License-Identifier: BSD-2-Clause
// Takes the answers of other users' processes, for an observer (observer.h). Whatever is done with a file or a bell of
// another user's may take as long as he likes, and no signal ends it. Who reads the file waits for the kernel while a
// million mappings of it have to be looked through; whose copy of a file or a bell is the last one to be closed frees
// all of its memory, or wakes millions who wait at the other end. So for each user a process of its own waits for his
// bells and reads his files. It has copies of all of them before this process closes its own, and ends later. It is
// left behind when it takes too long; until it has ended, that user has no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <poll.h>
#include <set>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/time.h"
#include "base/unique_fd.h"

namespace uroce::broker {

// A process that is to answer: it writes into the file and then closes its end of the bell. It may be hostile.
struct Asked {
  size_t process;  // which, as the caller counts them
  UniqueFd file, bell;
};
using AskedOfUsers = std::map<uid_t, std::vector<Asked>>;

// What is in it. Nothing: more than `most`.
std::optional<std::string> read_answer(int file, size_t most);

class AnswersApart {
 public:
  static constexpr size_t kMostReaders = 64;  // that are there at a time
  static constexpr size_t kMostKept = 128;    // that this process keeps

  AnswersApart();
  ~AnswersApart();
  AnswersApart(AnswersApart&& other) noexcept;
  AnswersApart& operator=(AnswersApart&&) = delete;

  // Beside `begin` users who get one as well. No: a reader of this user's has not ended, or too many others have not.
  bool can_read(uid_t user, size_t begin = 0) const;
  // Of such a user's process that has been asked: one more process has what none reads, and this one what has come
  // since that one began.
  void keep(Asked asked) { kept_.push_back(std::move(asked)); }
  // Nobody may be asked until a reader has ended.
  bool keeps_too_many() const { return kept_.size() >= kMostKept; }

  // Reads answers, of `most` bytes at most, of those who end their bells before `until`. This process has no
  // descriptors any more when it returns but what it keeps; no close of it was a last one.
  void start(AskedOfUsers&& asked, size_t most, Time until);
  // What is to be waited for until there is something to take.
  std::vector<pollfd> waits() const;
  // Without waiting. Returns how many bytes have come.
  using Take = std::function<void(size_t process, const std::optional<std::string>& text)>;
  size_t take(const Take& take);
  // More may come.
  bool is_reading() const;
  // What has not come does not come any more.
  void finish();
  // Those that have not ended.
  size_t readers() const { return readers_.size(); }
  std::vector<uid_t> users_of_readers() const;

 private:
  class Reading;

  bool hand_over(int64_t user, std::vector<Asked>& asked, size_t most, Time until, std::vector<Asked>& handed_over);
  void end_readers();

  std::map<int64_t, pid_t> readers_;  // by user
  std::set<int64_t> begun_;           // since the last finish()
  std::vector<Reading> readings_;
  std::vector<Asked> kept_;
};

}  // namespace uroce::broker
