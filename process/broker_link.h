// SPDX-License-Identifier: BSD-2-Clause
// The connection of this process to the broker of its host: one, whoever needs it first (open_io.h, the connection
// manager).
#pragma once

#include <memory>
#include <variant>

#include "base/error.h"
#include "broker/client/link.h"
#include "process/options.h"

namespace uroce::engine {

// Null: there is no broker, and none is needed; asked again, it is looked for again. A child process makes its own.
std::variant<std::shared_ptr<broker::Link>, io::IoError> broker_link(const Options& options);

}  // namespace uroce::engine
