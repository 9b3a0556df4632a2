// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat_figures.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>
#include <pwd.h>
#include <string_view>
#include <utility>

#include "wire/cma_header.h"

namespace uroce::cli {
namespace {

using broker::DeviceStatistics;
using broker::Process;

constexpr std::string_view kDrop = "drop_";

// Nothing that others say is believed: what goes back or is of a moment that was not later has no rate.
double rate(uint64_t before, uint64_t now, double seconds) {
  return seconds > 0 && now >= before ? static_cast<double>(now - before) / seconds : 0;
}
double psn_rate(uint32_t before, uint32_t now, double seconds) {
  constexpr uint32_t kPsns = 1u << 24;
  const uint32_t moved = (now - before) % kPsns;
  return moved < kPsns / 2 ? rate(0, moved, seconds) : 0;
}

Traffic<uint64_t> totals_of(const DeviceStatistics& device) {
  Traffic<uint64_t> totals{.tx_packets = device.counter("tx_packets"),
                           .tx_bytes = device.counter("tx_bytes"),
                           .rx_packets = device.counter("rx_packets"),
                           .rx_bytes = device.counter("rx_bytes"),
                           .retransmissions = device.counter("tx_retransmissions")};
  for (const auto& [name, value] : device.counters) {
    if (name.starts_with(kDrop)) totals.drops += value;
  }
  return totals;
}

Traffic<double> rates_of(const Traffic<uint64_t>& before, const Traffic<uint64_t>& now, double seconds) {
  return {.tx_packets = rate(before.tx_packets, now.tx_packets, seconds),
          .tx_bytes = rate(before.tx_bytes, now.tx_bytes, seconds),
          .rx_packets = rate(before.rx_packets, now.rx_packets, seconds),
          .rx_bytes = rate(before.rx_bytes, now.rx_bytes, seconds),
          .retransmissions = rate(before.retransmissions, now.retransmissions, seconds),
          .drops = rate(before.drops, now.drops, seconds)};
}

std::vector<QpFigures> qps_of(std::vector<broker::QpStatistics> now, const DeviceStatistics& before, double seconds) {
  std::map<uint32_t, const broker::QpStatistics*> earlier;
  for (const broker::QpStatistics& qp : before.qps) earlier.emplace(qp.qpn, &qp);
  std::vector<QpFigures> qps;
  for (broker::QpStatistics& qp : now) {
    QpFigures& figures = qps.emplace_back();
    if (const auto then = earlier.find(qp.qpn); then != earlier.end()) {
      figures.sent = psn_rate(then->second->sent, qp.sent, seconds);
      figures.received = psn_rate(then->second->received, qp.received, seconds);
    }
    figures.now = std::move(qp);
  }
  std::stable_sort(qps.begin(), qps.end(),
                   [](const QpFigures& a, const QpFigures& b) { return a.sent + a.received > b.sent + b.received; });
  return qps;
}

DeviceFigures device_figures(DeviceStatistics now, const DeviceStatistics& before, double seconds) {
  DeviceFigures figures;
  figures.totals = totals_of(now);
  figures.rates = rates_of(totals_of(before), figures.totals, seconds);
  for (const auto& [name, value] : now.counters) {
    if (name.starts_with(kDrop)) {
      figures.drops[name.substr(kDrop.size())] = {value, rate(before.counter(name), value, seconds)};
    }
  }
  for (const auto& [kind, count] : now.qp_counts) figures.qp_count += count;
  figures.qps = qps_of(std::exchange(now.qps, {}), before, seconds);
  figures.now = std::move(now);
  return figures;
}

const DeviceStatistics* find_device(const Process* process, const std::string& name) {
  if (process == nullptr) return nullptr;
  const auto& devices = process->statistics.devices;
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const auto& each) { return each.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

ProcessFigures process_figures(Process now, const Process* before) {
  ProcessFigures figures;
  const bool earlier = before != nullptr && before->statistics.time < now.statistics.time;
  figures.has_rates = earlier && before->answer == Process::Answer::kWhole && now.answer == Process::Answer::kWhole;
  const double seconds =
      figures.has_rates ? static_cast<double>(now.statistics.time - before->statistics.time) / 1e9 : 0;
  for (DeviceStatistics& device : now.statistics.devices) {
    const DeviceStatistics* const then = find_device(before, device.name);
    const DeviceStatistics nothing;
    figures.devices.push_back(
        device_figures(std::move(device), then != nullptr ? *then : nothing, then != nullptr ? seconds : 0));
  }
  now.statistics.devices.clear();
  figures.user = user_name(now.uid);
  figures.process = std::move(now);
  return figures;
}

double busyness(const ProcessFigures& process) {
  return std::accumulate(
      process.devices.begin(), process.devices.end(), 0.0,
      [](double sum, const DeviceFigures& device) { return sum + device.rates.tx_bytes + device.rates.rx_bytes; });
}

}  // namespace

std::vector<ProcessFigures> figures_of(std::vector<Process> now, const std::vector<Process>& before) {
  std::map<uint64_t, const Process*> earlier;
  for (const Process& process : before) earlier.emplace(process.client, &process);
  std::vector<ProcessFigures> processes;
  for (Process& process : now) {
    const auto then = earlier.find(process.client);
    processes.push_back(process_figures(std::move(process), then == earlier.end() ? nullptr : then->second));
  }
  std::stable_sort(processes.begin(), processes.end(),
                   [](const ProcessFigures& a, const ProcessFigures& b) { return busyness(a) > busyness(b); });
  return processes;
}

std::string user_name(uid_t uid) {
  static std::map<uid_t, std::string> known;  // looked up once: it may take a network
  const auto [entry, is_new] = known.emplace(uid, "");
  if (is_new) {
    std::array<char, 4096> buffer;
    passwd user{};
    passwd* found = nullptr;
    const bool has_name = getpwuid_r(uid, &user, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
    entry->second = has_name ? printable(found->pw_name) : std::to_string(uid);
  }
  return entry->second;
}

const char* cm_port_space(uint64_t service) {
  switch (service >> 16) {
    case static_cast<uint64_t>(wire::PortSpace::kTcp):
      return "tcp";
    case static_cast<uint64_t>(wire::PortSpace::kUdp):
      return "udp";
    case static_cast<uint64_t>(wire::PortSpace::kIb):
      return "ib";
    case static_cast<uint64_t>(wire::PortSpace::kIpoib):
      return "ipoib";
    default:
      return nullptr;
  }
}

}  // namespace uroce::cli
