// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat_formats.h"

#include <fmt/format.h>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/json.h"

namespace uroce::cli {
namespace {

using broker::Process;

const char* answer_name(Process::Answer answer) {
  switch (answer) {
    case Process::Answer::kWhole:
      return "whole";
    case Process::Answer::kNone:
      return "none";
    default:
      return "broken";
  }
}

// --- JSON -----------------------------------------------------------------------------------------------------------

template <class T>
std::string traffic_json(const Traffic<T>& traffic) {
  JsonList members;
  traffic.for_each([&](const char* name, T value) { members.add(name, fmt::format("{}", value)); });
  return members.object();
}

std::string qp_json(const QpFigures& figures, bool has_rates) {
  const broker::QpStatistics& qp = figures.now;
  JsonList members;
  members.add("qpn", fmt::to_string(qp.qpn));
  members.add("type", json_string(qp.type));
  members.add("state", json_string(qp.state));
  members.add("peer_qpn", qp.peer.empty() ? "null" : fmt::to_string(qp.peer_qpn));
  members.add("peer", qp.peer.empty() ? "null" : json_string(qp.peer));
  members.add("sent_psn", fmt::to_string(qp.sent));
  members.add("received_psn", fmt::to_string(qp.received));
  members.add("posted_sends", fmt::to_string(qp.posted_sends));
  members.add("posted_receives", fmt::to_string(qp.posted_receives));
  members.add("rates",
              has_rates ? fmt::format(R"({{"sent": {}, "received": {}}})", figures.sent, figures.received) : "null");
  return members.object();
}

std::string device_json(const DeviceFigures& device, bool has_rates) {
  JsonList members, drops, counters, counts, qps;
  for (const auto& [reason, drop] : device.drops) drops.add(reason, fmt::to_string(drop.total));
  for (const auto& [name, value] : device.now.counters) counters.add(name, fmt::to_string(value));
  for (const auto& [kind, count] : device.now.qp_counts) {
    counts.add(fmt::format(R"({{"type": {}, "state": {}, "count": {}}})", json_string(kind.first),
                           json_string(kind.second), count));
  }
  for (const QpFigures& qp : device.qps) qps.add(qp_json(qp, has_rates));
  members.add("device", json_string(device.now.name));
  members.add("netdev", json_string(device.now.netdev));
  members.add("packet_io", json_string(device.now.packet_io));
  members.add("totals", traffic_json(device.totals));
  members.add("rates", has_rates ? traffic_json(device.rates) : "null");
  members.add("drops", drops.object());
  members.add("counters", counters.object());
  members.add("qp_count", fmt::to_string(device.qp_count));
  members.add("qp_counts", counts.array());
  members.add("qps", qps.array());
  return members.object();
}

std::string process_json(const ProcessFigures& figures) {
  const Process& process = figures.process;
  JsonList members, devices;
  for (const DeviceFigures& device : figures.devices) devices.add(device_json(device, figures.has_rates));
  members.add("client", fmt::to_string(process.client));
  members.add("pid", process.pid > 0 ? fmt::to_string(process.pid) : "null");
  members.add("uid", fmt::to_string(process.uid));
  members.add("user", json_string(figures.user));
  members.add("program", json_string(process.program));
  members.add("answer", json_string(answer_name(process.answer)));
  members.add("devices", devices.array());
  return members.object();
}

std::string id_json(const broker::ConnectionStatistics& id) {
  JsonList members;
  members.add("client", id.client != 0 ? fmt::to_string(id.client) : "null");
  members.add("id", fmt::to_string(id.id));
  members.add("state", json_string(id.state));
  members.add("transport", json_string(id.transport));
  members.add("service", fmt::to_string(id.service));
  members.add("local", id.local.empty() ? "null" : json_string(id.local));
  members.add("remote", id.remote.empty() ? "null" : json_string(id.remote));
  members.add("qpn", fmt::to_string(id.local_qpn));
  members.add("peer_qpn", fmt::to_string(id.remote_qpn));
  members.add("peer_id", fmt::to_string(id.remote_id));
  return members.object();
}

std::string connections_json(const std::optional<broker::ConnectionsStatistics>& connections) {
  if (!connections) return "null";
  JsonList members, counters, ids;
  for (const auto& [name, value] : connections->counters) counters.add(name, fmt::to_string(value));
  for (const broker::ConnectionStatistics& id : connections->connections) ids.add(id_json(id));
  members.add("id_count", fmt::to_string(connections->ids));
  members.add("counters", counters.object());
  members.add("ids", ids.array());
  return members.object();
}

// --- Prometheus -----------------------------------------------------------------------------------------------------

std::string label(std::string_view name, std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return fmt::format("{}=\"{}\"", name, escaped);
}

std::string labels_of(const ProcessFigures& figures) {
  const Process& process = figures.process;
  return fmt::format("{},{},{},{}", label("client", fmt::to_string(process.client)),
                     label("pid", fmt::to_string(process.pid)), label("user", figures.user),
                     label("program", process.program));
}

std::string labels_of(const ProcessFigures& process, const DeviceFigures& device) {
  return fmt::format("{},{}", labels_of(process), label("device", device.now.name));
}

// The samples of one metric, which stand together behind its HELP and TYPE.
class Metric {
 public:
  Metric(std::string_view name, std::string_view type, std::string_view help)
      : name_(name), text_(fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type)) {}

  void add(std::string_view labels, uint64_t value) { text_ += fmt::format("{}{{{}}} {}\n", name_, labels, value); }
  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
};

using AddSamples = std::function<void(Metric&, const std::string& labels, const DeviceFigures&)>;

// `samples` adds those of a device.
std::string device_metric(const Figures& figures, std::string_view name, std::string_view type, std::string_view help,
                          const AddSamples& samples) {
  Metric metric(name, type, help);
  for (const ProcessFigures& process : figures.processes) {
    for (const DeviceFigures& device : process.devices) samples(metric, labels_of(process, device), device);
  }
  return metric.text();
}

std::string total_metric(const Figures& figures, std::string_view name, std::string_view help,
                         uint64_t Traffic<uint64_t>::*total) {
  return device_metric(figures, name, "counter", help,
                       [total](Metric& metric, const std::string& labels, const DeviceFigures& device) {
                         metric.add(labels, device.totals.*total);
                       });
}

// By state and transport, of those that are listed.
std::string cm_ids_metric(const broker::ConnectionsStatistics& connections) {
  std::map<std::pair<std::string, std::string>, uint64_t> counts;
  for (const broker::ConnectionStatistics& id : connections.connections) ++counts[{id.state, id.transport}];
  Metric metric("uroce_cm_ids", "gauge", "Listeners and connections of the connection manager, by state.");
  for (const auto& [kind, count] : counts) {
    metric.add(fmt::format("{},{}", label("state", kind.first), label("transport", kind.second)), count);
  }
  return metric.text();
}

std::string cm_events_metric(const broker::ConnectionsStatistics& connections) {
  Metric metric("uroce_cm_events_total", "counter", "All counters of the connection manager, by name.");
  for (const auto& [name, value] : connections.counters) metric.add(label("event", name), value);
  return metric.text();
}

}  // namespace

std::string stat_json(const Figures& figures) {
  std::string processes;
  for (const ProcessFigures& process : figures.processes) {
    processes += (processes.empty() ? "\n    " : ",\n    ") + process_json(process);
  }
  return fmt::format(
      "{{\n  \"broker\": {},\n  \"interval\": {},\n  \"processes\": [{}\n  ],\n  \"connections\": {}\n}}\n",
      json_string(figures.broker), figures.interval, processes, connections_json(figures.connections));
}

std::string stat_prometheus(const Figures& figures) {
  using Totals = Traffic<uint64_t>;
  Metric answers("uroce_process_answers", "gauge", "Whether the process has said what it counts (1) or not (0).");
  for (const ProcessFigures& process : figures.processes) {
    answers.add(labels_of(process), process.process.answer == Process::Answer::kWhole ? 1 : 0);
  }
  return answers.text() + total_metric(figures, "uroce_transmit_packets_total", "Packets sent.", &Totals::tx_packets) +
         total_metric(figures, "uroce_transmit_bytes_total", "Bytes sent, with UDP headers.", &Totals::tx_bytes) +
         total_metric(figures, "uroce_receive_packets_total", "Packets received.", &Totals::rx_packets) +
         total_metric(figures, "uroce_receive_bytes_total", "Bytes received, with UDP headers.", &Totals::rx_bytes) +
         total_metric(figures, "uroce_retransmissions_total", "Request packets sent again.", &Totals::retransmissions) +
         device_metric(figures, "uroce_drops_total", "counter", "Packets dropped, by reason.",
                       [](Metric& metric, const std::string& labels, const DeviceFigures& device) {
                         for (const auto& [reason, drop] : device.drops) {
                           metric.add(fmt::format("{},{}", labels, label("reason", reason)), drop.total);
                         }
                       }) +
         device_metric(figures, "uroce_events_total", "counter", "All counters of the device, by name.",
                       [](Metric& metric, const std::string& labels, const DeviceFigures& device) {
                         for (const auto& [name, value] : device.now.counters) {
                           metric.add(fmt::format("{},{}", labels, label("event", name)), value);
                         }
                       }) +
         device_metric(figures, "uroce_qps", "gauge", "Queue pairs, by type and state.",
                       [](Metric& metric, const std::string& labels, const DeviceFigures& device) {
                         for (const auto& [kind, count] : device.now.qp_counts) {
                           metric.add(
                               fmt::format("{},{},{}", labels, label("type", kind.first), label("state", kind.second)),
                               count);
                         }
                       }) +
         (figures.connections ? cm_ids_metric(*figures.connections) + cm_events_metric(*figures.connections) : "");
}

}  // namespace uroce::cli
