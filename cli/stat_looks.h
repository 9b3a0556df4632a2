// SPDX-License-Identifier: BSD-2-Clause
// What `uroce stat` sees when it looks at the broker of this host, once or again and again.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "broker/client/observer.h"
#include "cli/stat.h"
#include "cli/stat_figures.h"

namespace uroce::cli {

// At the broker that is there then.
class Looks {
 public:
  explicit Looks(const StatOptions& options) : options_(options) {}

  // The complaint, if there was nothing to see. `stop` as for Observer::look().
  std::optional<io::IoError> look(int stop = -1);
  Figures figures(double interval) const;

 private:
  const StatOptions& options_;
  std::optional<broker::Observer> observer_;
  std::vector<broker::Process> now_, before_;
  std::optional<broker::ConnectionsStatistics> connections_;
};

// Addresses of brokers that listen here, in the text of /proc/net/unix: ten of them, as anybody can take such names.
// Empty: there is none.
std::string brokers_in(std::istream& proc_net_unix);

// Says what look() has complained about. Returns the exit code.
int complain_about(const io::IoError& error, const StatOptions& options);

}  // namespace uroce::cli
