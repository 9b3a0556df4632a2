// SPDX-License-Identifier: BSD-2-Clause
// What the judges of one connection share: what is known of it, what was counted, and where findings go. Owned by
// Connection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "oracle/oracle.h"
#include "oracle/packet.h"
#include "oracle/text.h"
#include "oracle/verdict.h"

namespace uroce::oracle {

// A PSN this far from the expected one, with nothing outstanding, is the first of another connection between QPs with
// the same numbers; only where nobody declares connections.
inline constexpr int32_t kOtherConnection = 1 << 16;

// Kept of a connection whose responses are not seen.
inline constexpr size_t kMostOutstanding = 1 << 16;

// All findings of an oracle.
class Findings {
 public:
  explicit Findings(size_t kept) : kept_(kept) {}

  void add(Violation violation) {
    ++count_;
    if (rule_info(violation.rule).severity == Severity::kError) ++errors_;
    if (violations_.size() < kept_) violations_.push_back(std::move(violation));
  }
  const std::vector<Violation>& violations() const { return violations_; }
  uint64_t count() const { return count_; }
  uint64_t errors() const { return errors_; }

 private:
  size_t kept_;
  uint64_t count_ = 0;
  uint64_t errors_ = 0;
  std::vector<Violation> violations_;
};

struct Context {
  Findings& findings;
  const Options& options;
  ConnectionName name;
  Attributes attributes{};  // path_mtu may be learnt
  bool declared = false;    // both directions known from the first packet on
  Counts counts{};
  std::vector<std::string> not_judged{};
  uint64_t packet = 0;  // the record under judgement
  Time now{};

  void violation(Rule rule, std::string what) {
    findings.add({.packet = packet, .time = now, .rule = rule, .connection = name, .text = std::move(what)});
  }
  void cannot_judge(const std::string& what) {
    if (std::find(not_judged.begin(), not_judged.end(), what) == not_judged.end()) not_judged.push_back(what);
  }

  // A full packet tells the path MTU if nobody has.
  void learn_path_mtu(uint32_t payload_size) {
    const bool possible = payload_size >= 256 && payload_size <= 4096 && (payload_size & (payload_size - 1)) == 0;
    if (!attributes.path_mtu && possible) attributes.path_mtu = payload_size;
  }
  // PSNs that a READ of `length` bytes consumes (IBTA 9.7.3.1); 0: not known before the path MTU is.
  uint32_t read_span(uint32_t length) const {
    if (length <= 256) return 1;  // the smallest MTU
    if (!attributes.path_mtu) return 0;
    return static_cast<uint32_t>((uint64_t{length} + *attributes.path_mtu - 1) / *attributes.path_mtu);
  }
  // Not more than that, even without the path MTU.
  static uint32_t largest_span(uint32_t length) { return std::max(1u, length / 256 + (length % 256 != 0)); }
  uint32_t span(const Request& request) const {
    return request.is(wire::Operation::kReadRequest) ? read_span(request.length) : 1;
  }
};

}  // namespace uroce::oracle
