// SPDX-License-Identifier: BSD-2-Clause
#include "broker/protocol/connections.h"

#include "base/concat.h"
#include "broker/protocol/words.h"

namespace uroce::broker {

namespace {

constexpr std::string_view kConnectionsFirst = "uroce-connections 1";
constexpr std::string_view kConnectionsLast = "end";
constexpr std::string_view kNone = "-";
constexpr size_t kMostCmCounters = 256;

std::string_view or_none(const std::string& text) {
  return text.empty() ? kNone : std::string_view(text);
}

std::string address_from(Words& words) {
  const std::string_view word = words.word();
  return word == kNone ? std::string() : printable(word);
}

ConnectionStatistics parse_id(Words& words) {
  ConnectionStatistics id;
  id.client = words.number<uint64_t>();
  id.id = words.number<uint32_t>();
  id.state = words.name();
  id.transport = words.name();
  id.service = words.number<uint64_t>();
  id.local = address_from(words);
  id.remote = address_from(words);
  for (uint32_t* const value : {&id.local_qpn, &id.remote_qpn, &id.remote_id}) *value = words.number<uint32_t>();
  return id;
}

}  // namespace

std::vector<std::string> format_head(const ConnectionsStatistics& statistics) {
  std::vector<std::string> lines{std::string(kConnectionsFirst), concat("ids ", statistics.ids)};
  for (const auto& [name, value] : statistics.counters) {
    if (value != 0) lines.push_back(concat("counter ", name, " ", value));
  }
  return lines;
}

std::string format_id(const ConnectionStatistics& id) {
  return concat("id ", id.client, " ", id.id, " ", id.state, " ", id.transport, " ", id.service, " ", or_none(id.local),
                " ", or_none(id.remote), " ", id.local_qpn, " ", id.remote_qpn, " ", id.remote_id);
}

std::string format_connections(const ConnectionsStatistics& statistics) {
  std::string text;
  for (const std::string& line : format_head(statistics)) text += line + "\n";
  for (const ConnectionStatistics& id : statistics.connections) text += format_id(id) + "\n";
  return text + concat(kConnectionsLast, "\n");
}

std::optional<ConnectionsStatistics> parse_connections(std::string_view text) {
  if (text.size() > kLongestConnections || !text.ends_with(concat("\n", kConnectionsLast, "\n"))) return std::nullopt;
  if (take_until(text, '\n') != kConnectionsFirst) return std::nullopt;
  ConnectionsStatistics statistics;
  while (!text.empty()) {
    Words words(take_until(text, '\n'));
    const std::string_view kind = words.word();
    if (kind == kConnectionsLast) break;
    bool good = true;
    if (kind == "ids") {
      statistics.ids = words.number<uint64_t>();
    } else if (kind == "counter") {
      const std::string name = words.name();
      good = statistics.counters.emplace(name, words.number<uint64_t>()).second &&
             statistics.counters.size() <= kMostCmCounters;
    } else if (kind == "id") {
      statistics.connections.push_back(parse_id(words));
      good = statistics.connections.size() <= kMostIds;
    }
    if (!good || !words.good()) return std::nullopt;
  }
  return statistics;
}

std::string counter_name(std::string_view enumerator) {
  std::string name;
  for (const char c : enumerator.substr(1)) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !name.empty()) name += '_';
    name += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

}  // namespace uroce::broker
