// SPDX-License-Identifier: BSD-2-Clause
#include "process/broker_link.h"

#include <mutex>

#include "base/fork.h"
#include "process/process_statistics.h"

namespace uroce::engine {

std::variant<std::shared_ptr<broker::Link>, io::IoError> broker_link(const Options& options) {
  struct Known {
    std::mutex lock;
    std::shared_ptr<broker::Link> link;
  };
  Known& known = per_process<Known>();
  const std::lock_guard guard(known.lock);
  if (known.link) return known.link;
  auto opened = broker::Link::open(options.broker, process_statistics);
  if (auto* const link = std::get_if<std::shared_ptr<broker::Link>>(&opened)) known.link = *link;
  return opened;
}

}  // namespace uroce::engine
