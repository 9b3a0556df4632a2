// SPDX-License-Identifier: BSD-2-Clause
// What a broker says of its connection manager to who looks on (protocol.h: kIds): lines of words, some in each answer,
// written by the broker and read by `uroce stat`. Lines that the reader does not know are skipped.
//
//   uroce-connections 1
//   ids COUNT                               of all clients; those that nobody has any more too
//   counter NAME VALUE                      that are not 0
//   id CLIENT ID STATE TRANSPORT SERVICE LOCAL REMOTE LOCAL_QPN REMOTE_QPN REMOTE_ID
//   end
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::broker {

struct ConnectionStatistics {
  uint64_t client = 0;  // its number; 0: it is gone, and the broker still ends the connection
  uint32_t id = 0;
  std::string state{}, transport{};  // "established", "listen"; "rc"
  uint64_t service = 0;
  std::string local{}, remote{};  // addresses; empty: none
  uint32_t local_qpn = 0, remote_qpn = 0;
  uint32_t remote_id = 0;

  bool operator==(const ConnectionStatistics&) const = default;
};

struct ConnectionsStatistics {
  uint64_t ids = 0;  // listed or not
  std::map<std::string, uint64_t> counters{};
  std::vector<ConnectionStatistics> connections{};

  bool operator==(const ConnectionsStatistics&) const = default;
};

inline constexpr size_t kMostIds = 4096;  // that are listed
inline constexpr char kLineEnd = ';';     // in an answer
inline constexpr size_t kLongestConnections = size_t{2} << 20;

// All lines but those of ids, and one of these, without their ends.
std::vector<std::string> format_head(const ConnectionsStatistics& statistics);
std::string format_id(const ConnectionStatistics& id);
std::string format_connections(const ConnectionsStatistics& statistics);
// None: it is not whole, or breaks a rule, as in parse_statistics().
std::optional<ConnectionsStatistics> parse_connections(std::string_view text);

// "drop_malformed" for kDropMalformed.
std::string counter_name(std::string_view enumerator);

}  // namespace uroce::broker
