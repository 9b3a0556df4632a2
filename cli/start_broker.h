// SPDX-License-Identifier: BSD-2-Clause
// `uroce run` sees to it that a broker runs (broker/server/uroced.cc), so that programs share the netdevs of the host.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace uroce::cli {

struct BrokerOptions {
  std::string user;    // whom it is to serve besides root; empty: who calls
  std::string faults;  // as its option has them; one that runs already stays as it is
};

// Starts uroced unless one runs already that this process would use; it ends by itself some seconds after its last
// client. This process, the program that it becomes and those that this one starts count as one, by a connection that
// they inherit. Returns why there is none.
std::optional<std::string> start_broker(const BrokerOptions& options);

// For a program that is to run alone: a broker that nobody uses any more is about to end and to free the port. Returns
// when it has, or after some seconds, as brokers that were not started by start_broker() stay. `say` is told who is
// waited for.
void let_broker_end(const std::function<void(const std::string& broker)>& say);

}  // namespace uroce::cli
