// SPDX-License-Identifier: BSD-2-Clause
// Looks at the processes that use a broker, for `uroce stat`: who they are, as the broker says, and what they say of
// themselves (broker/protocol/statistics.h). Processes that do not answer delay nobody for longer than kPatience, and
// what those of other users have answered is read for as long at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "broker/client/answers_apart.h"
#include "broker/protocol/connections.h"
#include "broker/protocol/statistics.h"

namespace uroce::broker {

struct Process {
  uint64_t client = 0;  // its number at this broker
  pid_t pid = 0;        // 0: not visible to the broker
  uid_t uid = 0;
  std::string program;
  enum class Answer { kWhole, kNone, kBroken } answer = Answer::kNone;
  ProcessStatistics statistics{};  // with a whole answer
};

class Observer {
 public:
  // ms, for all processes together, and once more. Where this process may not open two files for each of them: for as
  // many at a time as it may.
  static constexpr int kPatience = 1000;

  // `address` as for Link::open(), without "none". ENOENT: there is no broker.
  static std::variant<Observer, io::IoError> open(const std::string& address);

  // All processes of whom the broker tells; QPs of each one by one up to `most_qps` (kMostQps at most). EINTR: `stop`
  // has become readable before all had answered; -1: nothing does. EBUSY: what other users have passed on in earlier
  // looks takes too long to close; this one may look again later. Clients of a user of whom that is true are not asked
  // again: they are shown as they were seen before, without an answer.
  std::variant<std::vector<Process>, io::IoError> look(uint32_t most_qps, int stop = -1);

  // What its connection manager is about, of clients of whom it tells. Nothing: it has none, or says nothing that can
  // be used.
  std::variant<std::optional<ConnectionsStatistics>, io::IoError> connections();

  // "uroced 0.1.0, process 123"
  const std::string& broker() const { return broker_; }

 private:
  Observer(UniqueFd socket, std::string broker) : socket_(std::move(socket)), broker_(std::move(broker)) {}

  UniqueFd socket_;
  std::string broker_;
  AnswersApart apart_;
  std::vector<Process> known_;  // by the last look, without what they say
};

}  // namespace uroce::broker
