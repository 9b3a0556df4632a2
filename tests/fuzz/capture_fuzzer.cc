// SPDX-License-Identifier: BSD-2-Clause
// Any bytes as a capture file: read as `uroce check` reads it, and what it holds judged by the oracle. The first byte
// says what the oracle is told beforehand; all others are the file.
//
// Checked: nothing is read or written outside, and memory and time stay in proportion to the file (libFuzzer's limits).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "oracle/report.h"
#include "pcapng/capture_reader.h"
#include "tests/fuzz/check.h"
#include "wire/opcode.h"

namespace uroce::fuzz {

namespace {

oracle::Options make_options(uint8_t choice) {
  oracle::Options options;
  if (choice & 1) options.slack = std::chrono::microseconds(100);
  if (choice & 2) options.path_mtu = 1024;
  options.kept_violations = choice & 4 ? 10 : 10000;
  options.whole = (choice & 16) != 0;
  return options;
}

void judge(uint8_t choice, const std::string& file) {
  std::istringstream in(file);
  pcapng::CaptureReader reader(in);
  oracle::Oracle oracle(make_options(choice));
  const uint8_t address[4] = {192, 0, 2, 1};
  if (choice & 8) oracle.add_local(wire::IpAddress::v4(address));

  pcapng::Record record;
  Time last{};
  uint64_t records = 0, added = 0;
  pcapng::ReadResult result;
  while ((result = reader.next(record)) == pcapng::ReadResult::kRecord) {
    ++records;
    last = record.time;
    check(record.frame.size() <= file.size() + wire::kEthernetSize, "no frame is larger than its file");
    const std::vector<pcapng::Record> packets = pcapng::packets_of_batch(record);
    check(packets.size() <= record.frame.size() / (wire::kBthSize + wire::kIcrcSize) + 1, "no more packets than fit");
    if (packets.empty()) oracle.add(record);
    for (const pcapng::Record& packet : packets) oracle.add(packet);
    added += std::max<uint64_t>(packets.size(), 1);
  }
  check(records <= file.size(), "no more frames than bytes");
  check((result == pcapng::ReadResult::kError) == !reader.error().empty(), "an error says what is wrong");
  oracle.finish(last);
  check(oracle.packet_count() <= added, "packets are frames of the file");
  check(oracle.violations().size() <= oracle.violation_count(), "violations that are kept are counted");
  for (const oracle::Violation& violation : oracle.violations()) (void)oracle::format_violation(violation);
  (void)oracle.summary();
  check(oracle.cm_summary().size() <= oracle.packet_count(), "no more exchanges than packets");
  (void)oracle::format_cm_summary(oracle.cm_summary());
}

}  // namespace

}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  uroce::fuzz::judge(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
