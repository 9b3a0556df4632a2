// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat_looks.h"

#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <set>
#include <utility>
#include <variant>

#include "cli/complaint.h"
#include "cli/exit_codes.h"

namespace uroce::cli {

using broker::Observer;
using broker::Process;

std::string brokers_in(std::istream& proc_net_unix) {
  constexpr size_t kMostShown = 10, kMostSeen = 1000;
  std::vector<std::string> shown;
  std::set<std::string> seen;
  for (std::string line; seen.size() <= kMostSeen && std::getline(proc_net_unix, line);) {
    const size_t at = line.rfind(" @uroced");
    if (at == std::string::npos) continue;
    std::string address = printable(line.substr(at + 1));
    const bool is_new = seen.insert(address).second;
    if (is_new && shown.size() < kMostShown) shown.push_back(std::move(address));
  }
  const size_t more = seen.size() - shown.size();
  const char* const or_more = seen.size() > kMostSeen ? " or more" : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more == 0 ? "" : fmt::format(" and {}{} others", more, or_more));
}

std::optional<io::IoError> Looks::look(int stop) {
  if (!observer_) {
    auto opened = Observer::open(options_.broker);
    if (auto* const error = std::get_if<io::IoError>(&opened)) return std::move(*error);
    observer_.emplace(std::move(std::get<Observer>(opened)));
    now_.clear();
  }
  auto looked = observer_->look(options_.most_qps, stop);
  if (auto* const error = std::get_if<io::IoError>(&looked)) {
    if (error->code != EINTR && error->code != EBUSY) observer_.reset();
    return std::move(*error);
  }
  auto connections = observer_->connections();
  if (auto* const error = std::get_if<io::IoError>(&connections)) {
    observer_.reset();
    return std::move(*error);
  }
  connections_ = std::move(std::get<std::optional<broker::ConnectionsStatistics>>(connections));
  before_ = std::exchange(now_, std::move(std::get<std::vector<Process>>(looked)));
  return std::nullopt;
}

Figures Looks::figures(double interval) const {
  return {.broker = observer_ ? observer_->broker() : "",
          .interval = interval,
          .processes = figures_of(now_, before_),
          .connections = connections_};
}

int complain_about(const io::IoError& error, const StatOptions& options) {
  const bool nobody = error.code == ENOENT;
  std::ifstream sockets("/proc/net/unix");
  std::string others = nobody && options.broker.empty() ? brokers_in(sockets) : "";
  if (!others.empty()) others = fmt::format("; there is {} (--broker)", others);
  return complain(nobody ? kExitNoBroker : kExitFailed, error.text() + others);
}

}  // namespace uroce::cli
