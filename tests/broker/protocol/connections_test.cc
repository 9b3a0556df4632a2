// SPDX-License-Identifier: BSD-2-Clause
// The listing of the connection manager as text: it comes back as it was, and what breaks a rule is refused.
#include "broker/protocol/connections.h"

#include <gtest/gtest.h>

namespace uroce::broker {
namespace {

ConnectionsStatistics some_connections() {
  return {.ids = 7,
          .counters = {{"requests", 12}, {"gsi_drop_icrc", 1}},
          .connections = {{.client = 3,
                           .id = 0xfedcba98,
                           .state = "established",
                           .transport = "xrc",
                           .service = 0x01061d2f,
                           .local = "192.0.2.1",
                           .remote = "2001:db8::2",
                           .local_qpn = 0xfffffe,
                           .remote_qpn = 5,
                           .remote_id = 6},
                          {.id = 1, .state = "listen", .transport = "rc", .service = UINT64_MAX}}};
}

TEST(Connections, ComeBackAsTheyWere) {
  EXPECT_EQ(parse_connections(format_connections(some_connections())), some_connections());
  EXPECT_EQ(parse_connections(format_connections({})), ConnectionsStatistics{});
}

TEST(Connections, PartsAreNothing) {
  const std::string whole = format_connections(some_connections());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse_connections(whole.substr(0, size))) << size;
}

TEST(Connections, WhatBreaksARuleIsRefused) {
  const auto refused = [](const std::string& line) {
    return !parse_connections("uroce-connections 1\n" + line + "\nend\n").has_value();
  };
  EXPECT_FALSE(refused("something else"));
  EXPECT_TRUE(refused("ids many"));
  EXPECT_TRUE(refused("counter Name 1"));
  EXPECT_TRUE(refused("counter a 1\ncounter a 2"));
  EXPECT_TRUE(refused("id 1 2 established"));
  EXPECT_TRUE(refused("id 1 2 ESTABLISHED rc 3 - - 4 5 6"));
  EXPECT_TRUE(refused("id 1 4294967296 established rc 3 - - 4 5 6"));
  EXPECT_FALSE(parse_connections("uroce-connections 2\nend\n"));
  ConnectionsStatistics many;
  many.connections.assign(kMostIds, some_connections().connections.front());
  EXPECT_TRUE(parse_connections(format_connections(many)));
  many.connections.push_back(many.connections.front());
  EXPECT_FALSE(parse_connections(format_connections(many)));
}

TEST(Connections, TextIsPrintable) {
  const auto parsed = parse_connections("uroce-connections 1\nid 1 2 listen rc 3 \x1b[2J - 4 5 6\nend\n");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->connections.front().local, "?[2J");
}

TEST(Connections, CountersHaveNamesInOneForm) {
  EXPECT_EQ(counter_name("kDropUnknownId"), "drop_unknown_id");
  EXPECT_EQ(counter_name("kStale"), "stale");
}

}  // namespace
}  // namespace uroce::broker
