// SPDX-License-Identifier: BSD-2-Clause
#include "broker/protocol/statistics.h"

#include <algorithm>
#include <utility>

#include "base/concat.h"
#include "broker/protocol/words.h"

namespace uroce::broker {

namespace {

constexpr std::string_view kFirstLine = "uroce-statistics 1";
constexpr std::string_view kLastLine = "end";
constexpr std::string_view kNobody = "-";
constexpr size_t kMostDevices = 64;
constexpr size_t kMostCounters = 256;  // of a device
constexpr size_t kMostQpCounts = 64;   // of a device

std::string qp_line(const QpStatistics& qp) {
  return concat("qp ", qp.qpn, " ", qp.type, " ", qp.state, " ", qp.peer_qpn, " ", qp.peer.empty() ? kNobody : qp.peer,
                " ", qp.sent, " ", qp.received, " ", qp.posted_sends, " ", qp.posted_receives, "\n");
}

QpStatistics parse_qp(Words& words) {
  QpStatistics qp;
  qp.qpn = words.number<uint32_t>();
  qp.type = words.name();
  qp.state = words.name();
  qp.peer_qpn = words.number<uint32_t>();
  const std::string_view peer = words.word();
  if (peer != kNobody) qp.peer = printable(peer);
  for (uint32_t* const value : {&qp.sent, &qp.received, &qp.posted_sends, &qp.posted_receives}) {
    *value = words.number<uint32_t>();
  }
  return qp;
}

// A line about a device. False: it breaks a rule.
bool parse_line(std::string_view kind, Words& words, DeviceStatistics& device, size_t& qps) {
  if (kind == "counter") {
    const std::string name = words.name();
    const bool is_new = device.counters.emplace(name, words.number<uint64_t>()).second;
    return is_new && device.counters.size() <= kMostCounters;
  }
  if (kind == "qps") {
    std::string type = words.name(), state = words.name();
    const bool is_new = device.qp_counts.emplace(std::pair(type, state), words.number<uint64_t>()).second;
    return is_new && device.qp_counts.size() <= kMostQpCounts;
  }
  if (kind == "qp") {
    device.qps.push_back(parse_qp(words));
    return ++qps <= kMostQps;
  }
  return true;
}

bool add_device(Words& words, std::vector<DeviceStatistics>& devices) {
  DeviceStatistics device;
  device.name = printable(words.word());
  device.netdev = printable(words.word());
  device.packet_io = words.rest();
  const bool is_new = std::none_of(devices.begin(), devices.end(),
                                   [&](const DeviceStatistics& other) { return other.name == device.name; });
  devices.push_back(std::move(device));
  return is_new && devices.size() <= kMostDevices;
}

}  // namespace

std::string format_statistics(const ProcessStatistics& statistics) {
  std::string text = concat(kFirstLine, "\ntime ", statistics.time, "\n");
  for (const DeviceStatistics& device : statistics.devices) {
    text += concat("device ", device.name, " ", device.netdev, " ", device.packet_io, "\n");
    for (const auto& [name, value] : device.counters) {
      if (value != 0) text += concat("counter ", name, " ", value, "\n");
    }
    for (const auto& [kind, count] : device.qp_counts) {
      text += concat("qps ", kind.first, " ", kind.second, " ", count, "\n");
    }
    for (const QpStatistics& qp : device.qps) text += qp_line(qp);
  }
  return text + concat(kLastLine, "\n");
}

std::optional<ProcessStatistics> parse_statistics(std::string_view text) {
  if (text.size() > longest_report(kMostQps) || !text.ends_with(concat("\n", kLastLine, "\n"))) return std::nullopt;
  if (take_until(text, '\n') != kFirstLine) return std::nullopt;
  ProcessStatistics statistics;
  size_t qps = 0;
  while (!text.empty()) {
    Words words(take_until(text, '\n'));
    const std::string_view kind = words.word();
    if (kind == kLastLine) break;
    bool good = true;
    if (kind == "time") {
      statistics.time = words.number<uint64_t>();
    } else if (kind == "device") {
      good = add_device(words, statistics.devices);
    } else if (!statistics.devices.empty()) {
      good = parse_line(kind, words, statistics.devices.back(), qps);
    }
    if (!good || !words.good()) return std::nullopt;
  }
  return statistics;
}

}  // namespace uroce::broker
