// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/report.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <map>

namespace uroce::oracle {
namespace {

std::string endpoint(const wire::IpAddress& address, const std::optional<wire::Qpn>& qpn) {
  char text[32] = " qp ?";
  if (qpn) std::snprintf(text, sizeof text, " qp 0x%" PRIx32, qpn->value());
  return address.text() + text;
}

// 1234567 -> "1.2 MB"
std::string byte_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

// "12/3": what the host did, what its peer did.
std::string both(uint64_t out, uint64_t in) {
  return std::to_string(out) + "/" + std::to_string(in);
}

// Columns as wide as what is in them. The first row is the head.
template <size_t columns>
std::string table(std::vector<std::array<std::string, columns>>& rows) {
  std::array<size_t, columns> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (auto& row : rows) {
    for (size_t i = 0; i + 1 < columns; ++i) text += row[i].append(widths[i] + 2 - row[i].size(), ' ');
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace

std::string ConnectionName::text() const {
  return endpoint(local, local_qpn) + " -> " + endpoint(remote, remote_qpn);
}

Counts& Counts::operator+=(const Counts& other) {
  static constexpr uint64_t Counts::*kAll[] = {
      &Counts::packets_out,        &Counts::packets_in,     &Counts::messages_out,
      &Counts::messages_in,        &Counts::goodput_out,    &Counts::goodput_in,
      &Counts::reads_out,          &Counts::reads_in,       &Counts::retransmissions_out,
      &Counts::retransmissions_in, &Counts::atomics_out,    &Counts::atomics_in,
      &Counts::naks_out,           &Counts::naks_in,        &Counts::rnr_naks_out,
      &Counts::rnr_naks_in,        &Counts::fatal_naks_out, &Counts::fatal_naks_in,
      &Counts::not_received};
  for (const auto member : kAll) this->*member += other.*member;
  return *this;
}

const char* severity_text(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kQuirk:
      return "quirk";
    case Severity::kNote:
      return "note";
  }
  return "?";
}

std::string format_violation(const Violation& violation, Time start) {
  const RuleInfo& rule = rule_info(violation.rule);
  char where[64];
  const std::chrono::duration<double> seconds = violation.time - start;
  std::snprintf(where, sizeof where, "packet %" PRIu64 " %.6f s  ", violation.packet, seconds.count());
  std::string text = where + violation.connection.text() + ": " + rule.id;
  if (rule.severity != Severity::kError) text += std::string(" [") + severity_text(rule.severity) + "]";
  return text + ": " + violation.text + " (IBTA " + rule.clause + ")";
}

std::string format_summary(const std::vector<ConnectionSummary>& connections) {
  using Row = std::array<std::string, 10>;
  std::vector<Row> rows = {
      {"CONNECTION (OUT/IN)", "PACKETS", "MESSAGES", "GOODPUT", "RESENT", "NAKS", "RNR", "FATAL", "READS", "ATOMICS"}};
  std::map<std::string, size_t> not_judged;
  for (const ConnectionSummary& connection : connections) {
    const Counts& c = connection.counts;
    rows.push_back({connection.name.text(), both(c.packets_out, c.packets_in), both(c.messages_out, c.messages_in),
                    byte_text(c.goodput_out) + "/" + byte_text(c.goodput_in),
                    both(c.retransmissions_out, c.retransmissions_in), both(c.naks_out, c.naks_in),
                    both(c.rnr_naks_out, c.rnr_naks_in), both(c.fatal_naks_out, c.fatal_naks_in),
                    both(c.reads_out, c.reads_in), both(c.atomics_out, c.atomics_in)});
    for (const std::string& what : connection.not_judged) ++not_judged[what];
  }
  std::string text = table(rows);
  for (const auto& [what, count] : not_judged) {
    text += "not judged: " + what;
    if (connections.size() > 1)
      text += " (" + std::to_string(count) + " of " + std::to_string(connections.size()) + ")";
    text += "\n";
  }
  return text;
}

std::string format_cm_summary(const std::vector<CmSummary>& exchanges) {
  if (exchanges.empty()) return {};
  std::vector<std::array<std::string, 5>> rows = {{"CM EXCHANGE (OUT/IN)", "SERVICE", "TYPE", "MESSAGES", "OUTCOME"}};
  for (const CmSummary& e : exchanges) {
    rows.push_back({endpoint(e.local, e.local_qpn) + (e.active ? " -> " : " <- ") + endpoint(e.remote, e.remote_qpn),
                    e.service.empty() ? "?" : e.service, e.transport.empty() ? "?" : e.transport,
                    both(e.packets_out, e.packets_in), e.outcome});
  }
  return table(rows);
}

}  // namespace uroce::oracle
