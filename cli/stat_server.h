// SPDX-License-Identifier: BSD-2-Clause
// `uroce stat --serve`: the text format of Prometheus by HTTP, for who asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <sys/socket.h>

#include "cli/stat.h"

namespace uroce::cli {

struct ListenAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
};

// "9791" (of 127.0.0.1), "192.0.2.1:9791", "[::1]:9791", ":9791" (of all addresses of this host). nullopt: it is none
// of these.
std::optional<ListenAddress> parse_listen_address(std::string_view text);

// Until a signal ends it. Returns the exit code; says on stderr what goes wrong.
int serve_stat(const StatOptions& options);

}  // namespace uroce::cli
