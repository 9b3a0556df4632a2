// SPDX-License-Identifier: BSD-2-Clause
// Where `uroce stat --serve` listens. tests/e2e/stat.py has what it answers.
#include "cli/stat_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <string>

namespace uroce::cli {
namespace {

// As it would be given, with the port behind a space; "-": it is no address.
std::string parsed(std::string_view text) {
  const auto listen = parse_listen_address(text);
  if (!listen) return "-";
  char host[INET6_ADDRSTRLEN];
  if (listen->address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(listen->address);
    EXPECT_EQ(listen->size, sizeof(v6));
    return std::string(inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host)) + " " +
           std::to_string(ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(listen->address);
  EXPECT_EQ(listen->size, sizeof(v4));
  return std::string(inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host)) + " " + std::to_string(ntohs(v4.sin_port));
}

TEST(ListenAddress, WhatIsOne) {
  EXPECT_EQ(parsed("9791"), "127.0.0.1 9791");
  EXPECT_EQ(parsed("192.0.2.1:65535"), "192.0.2.1 65535");
  EXPECT_EQ(parsed("[::1]:1"), "::1 1");
  EXPECT_EQ(parsed(":9791"), ":: 9791");
}

TEST(ListenAddress, WhatIsNone) {
  for (const char* text :
       {"", ":", "0", "65536", "-1", "9791x", " 9791", "host:9791", "192.0.2.1", "192.0.2.1:", "::1:9791", "[::1]",
        "[::1:9791", "[]:9791", "[192.0.2.1]:9791", "192.0.2.1:9791:1", "[:1"}) {
    EXPECT_EQ(parsed(text), "-") << text;
  }
}

}  // namespace
}  // namespace uroce::cli
