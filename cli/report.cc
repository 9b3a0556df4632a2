// SPDX-License-Identifier: BSD-2-Clause
#include "cli/report.h"

#include <fmt/format.h>

#include "cli/json.h"

namespace uroce::cli {
namespace {

struct StatusStyle {
  const char* name;
  const char* colour;
};

StatusStyle style(Status status) {
  switch (status) {
    case Status::kWarn:
      return {"warn", "\033[33m"};
    case Status::kFail:
      return {"fail", "\033[31m"};
    case Status::kOk:
      break;
  }
  return {"ok", "\033[32m"};
}

std::string status_tag(Status status, bool colour) {
  const StatusStyle how = style(status);
  const std::string padding(6 - std::string_view(how.name).size() - 2 + 1, ' ');
  if (!colour) return fmt::format("[{}]{}", how.name, padding);
  return fmt::format("[{}{}\033[0m]{}", how.colour, how.name, padding);
}

std::string finding_json(const Finding& finding) {
  return fmt::format(R"({{"name": {}, "status": "{}", "text": {}, "remedy": {}}})", json_string(finding.name),
                     style(finding.status).name, json_string(finding.text), json_string(finding.remedy));
}

}  // namespace

std::string format_text(const Report& report, bool colour) {
  std::string out;
  for (const Section& section : report.sections) {
    out += section.title + "\n";
    for (const Finding& finding : section.findings) {
      out += fmt::format("  {}{}: {}\n", status_tag(finding.status, colour), finding.name, finding.text);
      if (!finding.remedy.empty()) out += fmt::format("         -> {}\n", finding.remedy);
    }
  }
  return out + report.verdict + "\n";
}

std::string format_json(const Report& report) {
  std::string sections;
  for (const Section& section : report.sections) {
    std::string findings;
    for (const Finding& finding : section.findings) {
      findings += fmt::format("{}\n      {}", findings.empty() ? "" : ",", finding_json(finding));
    }
    sections += fmt::format("{}\n    {{\"title\": {}, \"findings\": [{}\n    ]}}", sections.empty() ? "" : ",",
                            json_string(section.title), findings);
  }
  return fmt::format("{{\n  \"usable\": {},\n  \"verdict\": {},\n  \"sections\": [{}\n  ]\n}}\n", report.usable,
                     json_string(report.verdict), sections);
}

}  // namespace uroce::cli
