// SPDX-License-Identifier: BSD-2-Clause
// The two sides of cm_exchange.
#pragma once

#include <string>

namespace uroce::cm_exchange {

// Until a client says that it was all. Prints "listening". Throws Wrong.
void serve(const std::string& bind_address, const std::string& port);
// All scenarios. `which`: "rc", "ud" or "all". Prints a line for each.
void call(const std::string& address, const std::string& port, const std::string& which);

}  // namespace uroce::cm_exchange
