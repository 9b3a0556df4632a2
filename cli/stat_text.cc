// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

namespace uroce::cli {
namespace {

using broker::Process;

// Columns as wide as what stands in them; those of `left` begin with their texts, the others end with them.
class Table {
 public:
  Table(std::vector<std::string> heading, std::vector<bool> left) : left_(std::move(left)) {
    rows_.push_back(std::move(heading));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }

  std::vector<std::string> lines() const {
    std::vector<size_t> widths(left_.size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::vector<std::string> lines;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        if (i > 0) line += ' ';
        line += left_[i] ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  const std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

std::string pid_text(const Process& process) {
  return process.pid > 0 ? fmt::to_string(process.pid) : "-";
}

std::string rate_text(const ProcessFigures& process, double rate) {
  return process.has_rates ? short_number(rate) : "-";
}

// What stands in the columns of a device: rates, or totals where nobody asked for rates.
std::vector<std::string> device_row(const ProcessFigures& process, const DeviceFigures& device, bool rates) {
  std::vector<std::string> row{pid_text(process.process), process.user, process.process.program, device.now.netdev,
                               fmt::to_string(device.qp_count)};
  const auto add = [&](auto figure, double factor = 1) {
    const double total = static_cast<double>(device.totals.*figure.second);
    row.push_back(rates ? rate_text(process, device.rates.*figure.first * factor) : short_number(total * factor));
  };
  using Rates = Traffic<double>;
  using Totals = Traffic<uint64_t>;
  add(std::pair(&Rates::tx_bytes, &Totals::tx_bytes), 8);
  add(std::pair(&Rates::tx_packets, &Totals::tx_packets));
  add(std::pair(&Rates::rx_bytes, &Totals::rx_bytes), 8);
  add(std::pair(&Rates::rx_packets, &Totals::rx_packets));
  add(std::pair(&Rates::retransmissions, &Totals::retransmissions));
  add(std::pair(&Rates::drops, &Totals::drops));
  return row;
}

const char* silence(Process::Answer answer) {
  if (answer == Process::Answer::kWhole) return "(no device open)";
  return answer == Process::Answer::kNone ? "(no answer)" : "(wrong answer)";
}

std::vector<std::string> process_lines(const Figures& figures) {
  const bool rates = figures.interval > 0;
  Table table(rates ? std::vector<std::string>{"PID", "USER", "PROGRAM", "NETDEV", "QPS", "TX b/s", "pkt/s", "RX b/s",
                                               "pkt/s", "RETX/s", "DROP/s"}
                    : std::vector<std::string>{"PID", "USER", "PROGRAM", "NETDEV", "QPS", "TX bits", "pkts", "RX bits",
                                               "pkts", "RETX", "DROP"},
              {false, true, true, true, false, false, false, false, false, false, false});
  for (const ProcessFigures& process : figures.processes) {
    for (const DeviceFigures& device : process.devices) table.add(device_row(process, device, rates));
    if (!process.devices.empty()) continue;
    table.add({pid_text(process.process), process.user, process.process.program, silence(process.process.answer)});
  }
  return table.lines();
}

std::vector<std::string> qp_lines(const Figures& figures) {
  struct Row {
    const ProcessFigures* process;
    const DeviceFigures* device;
    const QpFigures* qp;
  };
  std::vector<Row> rows;
  for (const ProcessFigures& process : figures.processes) {
    for (const DeviceFigures& device : process.devices) {
      for (const QpFigures& qp : device.qps) rows.push_back({&process, &device, &qp});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.qp->sent + a.qp->received > b.qp->sent + b.qp->received;
  });
  Table table({"PID", "NETDEV", "QPN", "TYPE", "STATE", "PEER QPN", "PEER", "SENT/s", "RECV/s", "SENDS", "RECVS"},
              {false, true, false, true, true, false, true, false, false, false, false});
  for (const auto& [process, device, figures_of_qp] : rows) {
    const broker::QpStatistics& qp = figures_of_qp->now;
    table.add({pid_text(process->process), device->now.netdev, fmt::format("{:#08x}", qp.qpn), qp.type, qp.state,
               qp.peer.empty() ? "-" : fmt::format("{:#08x}", qp.peer_qpn), qp.peer.empty() ? "-" : qp.peer,
               rate_text(*process, figures_of_qp->sent), rate_text(*process, figures_of_qp->received),
               fmt::to_string(qp.posted_sends), fmt::to_string(qp.posted_receives)});
  }
  return table.empty() ? std::vector<std::string>() : table.lines();
}

// With what to do, where a setting of the host is the cause.
std::string reason_text(const std::string& reason) {
  if (reason != "wrong_netdev") return reason;
  return reason + " (another one in this subnet answers for its addresses: sysctl net.ipv4.conf.all.arp_ignore=1)";
}

std::vector<std::string> drop_lines(const Figures& figures) {
  Table table({"PID", "NETDEV", "DROP/s", "DROPS", "REASON"}, {false, true, false, false, true});
  for (const ProcessFigures& process : figures.processes) {
    for (const DeviceFigures& device : process.devices) {
      for (const auto& [reason, drop] : device.drops) {
        table.add({pid_text(process.process), device.now.netdev, rate_text(process, drop.rate),
                   short_number(static_cast<double>(drop.total)), reason_text(reason)});
      }
    }
  }
  return table.empty() ? std::vector<std::string>() : table.lines();
}

// "tcp:7471", or the number where no port space says what it is.
std::string service_text(uint64_t service) {
  const char* const space = cm_port_space(service);
  return space != nullptr ? fmt::format("{}:{}", space, service & 0xffff) : fmt::format("{:#x}", service);
}

std::vector<std::string> connection_lines(const Figures& figures) {
  if (!figures.connections) return {};
  Table table({"PID", "TRANSPORT", "STATE", "SERVICE", "LOCAL", "REMOTE", "QPN", "PEER QPN"},
              {false, true, true, true, true, true, false, false});
  for (const broker::ConnectionStatistics& id : figures.connections->connections) {
    const auto process =
        std::find_if(figures.processes.begin(), figures.processes.end(),
                     [&id](const ProcessFigures& each) { return each.process.client == id.client && id.client != 0; });
    table.add({process != figures.processes.end() ? pid_text(process->process) : "-", id.transport, id.state,
               service_text(id.service), id.local.empty() ? "*" : id.local, id.remote.empty() ? "-" : id.remote,
               id.local_qpn != 0 ? fmt::format("{:#08x}", id.local_qpn) : "-",
               id.remote_qpn != 0 ? fmt::format("{:#08x}", id.remote_qpn) : "-"});
  }
  return table.empty() ? std::vector<std::string>() : table.lines();
}

std::string plural(uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : one == "process" ? "es" : "s");
}

// A section behind an empty line, in `most` lines; the last one says how many are left out.
void append(std::vector<std::string>& lines, std::vector<std::string> section, size_t most) {
  if (section.empty() || most < 4) return;
  if (section.size() + 1 > most) {
    const size_t kept = most - 2;
    const size_t left_out = section.size() - kept;
    section.resize(kept);
    section.push_back(fmt::format("... {} more", left_out));
  }
  lines.emplace_back();
  lines.insert(lines.end(), section.begin(), section.end());
}

std::string summary(const Figures& figures) {
  uint64_t qps = 0, listed = 0;
  for (const ProcessFigures& process : figures.processes) {
    for (const DeviceFigures& device : process.devices) {
      qps += device.qp_count;
      listed += device.qps.size();
    }
  }
  std::string text =
      fmt::format("{}: {}, {}", figures.broker, plural(figures.processes.size(), "process"), plural(qps, "QP"));
  if (figures.connections && figures.connections->ids > 0) {
    text += fmt::format(", {}", plural(figures.connections->ids, "CM id"));
  }
  return listed > 0 && listed < qps ? fmt::format("{} ({} of them listed)", text, listed) : text;
}

// For lines that come one by one, so that they stand below each other.
std::string fixed_columns(const std::string& time, const std::vector<std::string>& row) {
  std::string line = fmt::format("{:<8} {:>7} {:<8} {:<15} {:<15} {:>5}", time, row[0], row[1], row[2], row[3], row[4]);
  for (size_t i = 5; i < row.size(); ++i) line += fmt::format(" {:>6}", row[i]);
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string short_number(double value) {
  static constexpr std::array kUnits{"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  if (!(value >= 0.05)) return "0";
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  // Three digits with a unit; without one, one behind the point where the number is not whole.
  int decimals = 0;
  if (unit > 0) {
    decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  } else if (value < 99.95 && value != std::floor(value)) {
    decimals = 1;
  }
  return fmt::format("{:.{}f}{}", value, decimals, kUnits[unit]);
}

std::vector<std::string> stat_lines(const Figures& figures, size_t rows) {
  if (rows == 0) rows = SIZE_MAX;
  std::vector<std::string> lines{summary(figures)};
  if (figures.processes.empty()) return lines;
  const auto left = [&] { return rows - std::min(rows, lines.size()); };
  append(lines, process_lines(figures), left() / 2);
  append(lines, drop_lines(figures), left() / 3);
  append(lines, connection_lines(figures), left() / 2);
  append(lines, qp_lines(figures), left());
  return lines;
}

bool is_heading(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin != std::string::npos && line.compare(begin, 4, "PID ") == 0;
}

std::vector<std::string> stat_rows(const Figures& figures, const std::string& time) {
  std::vector<std::string> lines;
  for (const ProcessFigures& process : figures.processes) {
    for (const DeviceFigures& device : process.devices) {
      lines.push_back(fixed_columns(time, device_row(process, device, true)));
    }
    if (process.devices.empty()) {
      lines.push_back(fixed_columns(time, {pid_text(process.process), process.user, process.process.program,
                                           silence(process.process.answer), "", "", "", "", "", "", ""}));
    }
  }
  return lines;
}

std::string stat_rows_heading() {
  return fixed_columns(
      "TIME", {"PID", "USER", "PROGRAM", "NETDEV", "QPS", "TX b/s", "pkt/s", "RX b/s", "pkt/s", "RETX/s", "DROP/s"});
}

}  // namespace uroce::cli
