// SPDX-License-Identifier: BSD-2-Clause
#include "cli/check_report.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <utility>

#include "cli/json.h"
#include "oracle/report.h"

namespace uroce::cli {
namespace {

std::string violations_text(const CheckFindings& findings, uint64_t limit) {
  std::string text;
  std::map<std::string, uint64_t> not_listed;
  for (size_t i = 0; i < findings.violations.size(); ++i) {
    if (i < limit) {
      text += oracle::format_violation(findings.violations[i], findings.start) + "\n";
    } else {
      ++not_listed[oracle::rule_info(findings.violations[i].rule).id];
    }
  }
  if (not_listed.empty()) return text;
  text += fmt::format("... and {} more:", findings.violations.size() - limit);
  for (const auto& [rule, count] : not_listed) text += fmt::format(" {} {}", count, rule);
  return text + "\n";
}

// --- JSON -----------------------------------------------------------------------------------------------------------

std::string qpn_json(const std::optional<wire::Qpn>& qpn) {
  return qpn ? fmt::to_string(qpn->value()) : "null";
}

// The two ends of a connection, of an exchange, or of what breaks a rule.
template <class T>
JsonList ends_json(const T& ends) {
  JsonList members;
  members.add("local", json_string(ends.local.text()));
  members.add("local_qpn", qpn_json(ends.local_qpn));
  members.add("remote", json_string(ends.remote.text()));
  members.add("remote_qpn", qpn_json(ends.remote_qpn));
  return members;
}

std::string violation_json(const oracle::Violation& violation, Time start) {
  const oracle::RuleInfo& rule = oracle::rule_info(violation.rule);
  const std::chrono::duration<double> seconds = violation.time - start;
  JsonList members = ends_json(violation.connection);
  members.add("packet", fmt::to_string(violation.packet));
  members.add("seconds", fmt::format("{:.9f}", seconds.count()));
  members.add("rule", json_string(rule.id));
  members.add("severity", json_string(oracle::severity_text(rule.severity)));
  members.add("clause", json_string(rule.clause));
  members.add("text", json_string(violation.text));
  return members.object();
}

std::string counts_json(const oracle::Counts& counts) {
  using oracle::Counts;
  static constexpr std::pair<const char*, uint64_t Counts::*> kMembers[] = {
      {"packets_out", &Counts::packets_out},
      {"packets_in", &Counts::packets_in},
      {"messages_out", &Counts::messages_out},
      {"messages_in", &Counts::messages_in},
      {"goodput_bytes_out", &Counts::goodput_out},
      {"goodput_bytes_in", &Counts::goodput_in},
      {"retransmissions_out", &Counts::retransmissions_out},
      {"retransmissions_in", &Counts::retransmissions_in},
      {"reads_out", &Counts::reads_out},
      {"reads_in", &Counts::reads_in},
      {"atomics_out", &Counts::atomics_out},
      {"atomics_in", &Counts::atomics_in},
      {"naks_out", &Counts::naks_out},
      {"naks_in", &Counts::naks_in},
      {"rnr_naks_out", &Counts::rnr_naks_out},
      {"rnr_naks_in", &Counts::rnr_naks_in},
      {"fatal_naks_out", &Counts::fatal_naks_out},
      {"fatal_naks_in", &Counts::fatal_naks_in},
      {"not_received", &Counts::not_received}};
  JsonList members;
  for (const auto& [name, member] : kMembers) members.add(name, fmt::to_string(counts.*member));
  return members.object();
}

std::string connection_json(const oracle::ConnectionSummary& connection) {
  JsonList members = ends_json(connection.name), not_judged;
  for (const std::string& what : connection.not_judged) not_judged.add(json_string(what));
  members.add("counts", counts_json(connection.counts));
  members.add("not_judged", not_judged.array());
  return members.object();
}

std::string exchange_json(const oracle::CmSummary& exchange) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? "null" : json_string(text); };
  JsonList members = ends_json(exchange);
  members.add("active", exchange.active ? "true" : "false");
  members.add("service", text_or_null(exchange.service));
  members.add("transport", text_or_null(exchange.transport));
  members.add("outcome", json_string(exchange.outcome));
  members.add("packets_out", fmt::to_string(exchange.packets_out));
  members.add("packets_in", fmt::to_string(exchange.packets_in));
  return members.object();
}

// An element to a line.
template <class Elements, class Format>
std::string lines_json(const Elements& elements, Format format) {
  std::string text;
  for (const auto& element : elements) text += (text.empty() ? "\n    " : ",\n    ") + format(element);
  return "[" + text + "\n  ]";
}

}  // namespace

std::string check_text(const CheckFindings& findings, uint64_t limit, bool quiet) {
  std::string text = violations_text(findings, limit);
  if (quiet) return text;
  if (!text.empty()) text += "\n";
  const bool connected = !findings.connections.empty(), managed = !findings.exchanges.empty();
  if (connected || !managed) text += oracle::format_summary(findings.connections);
  if (connected && managed) text += "\n";
  text += oracle::format_cm_summary(findings.exchanges);
  const auto plural = [](uint64_t count) { return count == 1 ? "" : "s"; };
  text += fmt::format("\n{} packets of {} judged host{}: {} violation{}", findings.judged_packets,
                      findings.judged_hosts, plural(findings.judged_hosts), findings.errors, plural(findings.errors));
  if (findings.quirks > 0) text += fmt::format(" and {} quirk{}", findings.quirks, plural(findings.quirks));
  if (findings.segment_batches > 0) {
    text += fmt::format("\n{} frame{} had several packets (segmentation offload) and {} taken apart",
                        findings.segment_batches, plural(findings.segment_batches),
                        findings.segment_batches == 1 ? "was" : "were");
  }
  return text + "\n";
}

std::string check_json(const CheckFindings& findings, uint64_t limit) {
  const size_t listed = std::min<uint64_t>(findings.violations.size(), limit);
  const std::vector<oracle::Violation> violations(findings.violations.begin(),
                                                  findings.violations.begin() + static_cast<std::ptrdiff_t>(listed));
  const auto violation = [&](const oracle::Violation& v) { return violation_json(v, findings.start); };
  return fmt::format(
      "{{\n  \"file\": {},\n  \"read_error\": {},\n  \"frames\": {},\n  \"roce_packets\": {},\n  "
      "\"segment_batches\": {},\n  \"judged_hosts\": {},\n"
      "  \"judged_packets\": {},\n  \"hosts_left_out\": {},\n  \"hosts_assumed\": {},\n  \"errors\": {},\n  "
      "\"quirks\": {},\n"
      "  \"violations\": {},\n  \"connections\": {},\n  \"cm_exchanges\": {}\n}}\n",
      json_string(findings.file), findings.read_error.empty() ? "null" : json_string(findings.read_error),
      findings.frames, findings.roce_packets, findings.segment_batches, findings.judged_hosts, findings.judged_packets,
      findings.hosts_left_out, findings.hosts_assumed, findings.errors, findings.quirks,
      lines_json(violations, violation), lines_json(findings.connections, connection_json),
      lines_json(findings.exchanges, exchange_json));
}

}  // namespace uroce::cli
