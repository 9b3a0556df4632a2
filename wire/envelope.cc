// SPDX-License-Identifier: BSD-2-Clause
#include "wire/envelope.h"

#include <cstdio>

namespace uroce::wire {
namespace {

std::string v4_text(const uint8_t* four) {
  char text[16];
  std::snprintf(text, sizeof text, "%u.%u.%u.%u", four[0], four[1], four[2], four[3]);
  return text;
}

struct ZeroRun {
  int begin = 8;
  int length = 0;
};

// The longest run of at least two zero groups, the first of equals: what "::" stands for (RFC 5952 4.2).
ZeroRun longest_zero_run(const std::array<uint16_t, 8>& groups) {
  ZeroRun best, run;
  for (int i = 0; i < 8; ++i) {
    run = groups[i] != 0 ? ZeroRun{} : run.length == 0 ? ZeroRun{i, 1} : ZeroRun{run.begin, run.length + 1};
    if (run.length > best.length && run.length > 1) best = run;
  }
  return best;
}

}  // namespace

std::string IpAddress::text() const {
  if (is_v4()) return v4_text(v4_bytes());
  std::array<uint16_t, 8> groups;
  for (int i = 0; i < 8; ++i) groups[i] = static_cast<uint16_t>(bytes[2 * i] << 8 | bytes[2 * i + 1]);

  const ZeroRun zeros = longest_zero_run(groups);
  std::string text;
  for (int i = 0; i < 8;) {
    if (i == zeros.begin) {
      text += "::";
      i += zeros.length;
      continue;
    }
    char group[8];
    std::snprintf(group, sizeof group, "%x", groups[i]);
    if (!text.empty() && text.back() != ':') text += ':';
    text += group;
    ++i;
  }
  return text;
}

}  // namespace uroce::wire
