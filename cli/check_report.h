// SPDX-License-Identifier: BSD-2-Clause
// What `uroce check` has found in a capture, for people and as JSON. Filled by check.cc; docs/monitoring.md has the
// keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/verdict.h"

namespace uroce::cli {

struct CheckFindings {
  std::string file;
  std::string read_error;  // where reading ended, if not at the end
  uint64_t frames = 0, roce_packets = 0;
  uint64_t segment_batches = 0;  // frames that were taken apart (wire/segment_batch.h)
  uint64_t judged_hosts = 0, judged_packets = 0;
  uint64_t hosts_left_out = 0;                  // not judged, as there are too many
  bool hosts_assumed = false;                   // the file does not say at which host it was taken
  Time start{};                                 // of the first frame
  std::vector<oracle::Violation> violations{};  // those that the oracle has kept, in the order of the file
  uint64_t errors = 0, quirks = 0;              // all
  std::vector<oracle::ConnectionSummary> connections{};
  std::vector<oracle::CmSummary> exchanges{};
};

// `limit`: of violations that are listed; the others are counted.
std::string check_text(const CheckFindings& findings, uint64_t limit, bool quiet);
std::string check_json(const CheckFindings& findings, uint64_t limit);

}  // namespace uroce::cli
