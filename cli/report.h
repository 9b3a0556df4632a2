// SPDX-License-Identifier: BSD-2-Clause
// A list of findings in sections, printed for people or as JSON. Filled by doctor.
#pragma once

#include <string>
#include <vector>

namespace uroce::cli {

enum class Status { kOk, kWarn, kFail };

struct Finding {
  Status status = Status::kOk;
  std::string name;    // short and fixed, for programs: "kernel", "memlock"
  std::string text;    // what was found
  std::string remedy;  // what to do about it; empty when there is nothing to do
};

struct Section {
  std::string title;  // "host", "netdev eth0"
  std::vector<Finding> findings;
};

struct Report {
  std::vector<Section> sections;
  bool usable = false;
  std::string verdict;  // one line
};

// `colour`: ANSI colours for the status words.
std::string format_text(const Report& report, bool colour);
std::string format_json(const Report& report);

}  // namespace uroce::cli
