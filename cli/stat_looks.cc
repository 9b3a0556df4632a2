// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat_looks.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <utility>
#include <variant>

#include "cli/complaint.h"
#include "cli/exit_codes.h"

namespace uroce::cli {

using broker::Observer;
using broker::Process;

namespace {

// Brokers that listen here and that nobody would find by himself.
std::string other_brokers() {
  std::ifstream sockets("/proc/net/unix");
  std::vector<std::string> addresses;
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.rfind(" @uroced");
    if (at == std::string::npos) continue;
    std::string address = printable(line.substr(at + 1));
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  if (addresses.empty()) return {};
  return fmt::format("; there is {} (--broker)", fmt::join(addresses, ", "));
}

}  // namespace

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
  const std::string others = nobody && options.broker.empty() ? other_brokers() : "";
  return complain(nobody ? kExitNoBroker : kExitFailed, error.text() + others);
}

}  // namespace uroce::cli
