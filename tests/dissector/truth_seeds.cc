// SPDX-License-Identifier: BSD-2-Clause
// Precision and recall of the analysis over many seeds, without Wireshark in between: the captures of truth.h, handed
// to the analysis packet by packet as the plugin would. Below 100 % it fails, but for captures without IP IDs, where
// nobody can always tell a copy, a late packet and a retransmission.
//
// Usage: truth_seeds [--seeds N] [--first SEED|fresh] [--random-only] [--verbose] [--packets]
//   --random-only  only the cases that the seed draws
//   --packets      prints all packets: what was found, and behind "|" what is true
// Exit codes: 0 all found and nothing else, 1 not so, 2 wrong usage.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>

#include "dissector/analysis/analysis.h"
#include "dissector/analysis/icrc.h"
#include "tests/dissector/describe.h"
#include "tests/dissector/truth.h"
#include "tests/simulator/scenario.h"
#include "wire/icrc.h"

namespace uroce::dissector {
namespace {

using simulator::Case;
using simulator::Truth;
using simulator::View;

constexpr const char* kKinds[] = {"retransmission", "psn_gap",         "out_of_order", "duplicate_packet",
                                  "bad_icrc",       "bad_ip_checksum", "response_gap", "response_replay"};
// The transport under test does none of these, whatever the network does to it.
constexpr Finding kNever[] = {Finding::kOpcodeSequence,  Finding::kLength,
                              Finding::kPsnJump,         Finding::kAckUnseen,
                              Finding::kRnrNotHonoured,  Finding::kNakInvalidRequest,
                              Finding::kNakRemoteAccess, Finding::kNakRemoteOperational,
                              Finding::kNakOther};

struct Options {
  uint64_t first = 1, seeds = 20;
  bool random_only = false, verbose = false, packets = false;
};

struct Count {
  uint64_t right = 0, wrong = 0, missed = 0;
};
using Totals = std::map<std::string, Count>;

struct Found {
  Truth kinds;
  std::vector<std::string> never;
};

bool is_out(const pcapng::Record& record) {
  return record.direction == pcapng::Direction::kOut;
}

// What is judged of the findings of one packet. The truth knows the order of new requests, gaps in what comes in, and
// replays of what this end sends.
bool judged(const pcapng::Record& record, bool request, const Findings& findings, const FindingInfo& info) {
  if (info.finding == Finding::kOutOfOrder) return request && !findings.is_retransmission();
  if (info.finding == Finding::kResponseReplay) return is_out(record);
  if (info.finding == Finding::kResponseGap) return !is_out(record);
  return std::find_if(std::begin(kKinds), std::end(kKinds),
                      [&](const char* kind) { return std::strcmp(kind, info.name) == 0; }) != std::end(kKinds);
}

void collect(const pcapng::Record& record, uint32_t number, bool request, const Findings& findings, bool faultless,
             Found& found) {
  for (const FindingInfo& info : kFindings) {
    if (!findings.has(info.finding)) continue;
    const bool never = std::find(std::begin(kNever), std::end(kNever), info.finding) != std::end(kNever);
    // What is sent again too soon may come from somebody who never got the RNR NAK, if this end has sent that.
    if (info.finding == Finding::kRnrNotHonoured && !is_out(record)) continue;
    if (never || (faultless && info.finding != Finding::kZeroCredits)) {
      found.never.push_back("frame " + std::to_string(number) + ": " + info.name);
    }
    if (judged(record, request, findings, info)) found.kinds.emplace(number, info.name);
  }
  if (findings.is_retransmission()) found.kinds.emplace(number, "retransmission");
}

// For whoever looks for the reason of a wrong finding.
void print_packet(const pcapng::Record& record, uint32_t number, const Datagram& datagram, const Headers& headers,
                  const Findings& findings, const Truth& truth) {
  std::printf("%6u %12.3f us %s id %04x %-22s psn %06x", number, static_cast<double>(datagram.time) / 1e3,
              is_out(record) ? "out" : "in ", datagram.ip_id, headers.info != nullptr ? headers.info->name : "-",
              headers.bth.psn.value());
  if (headers.has_bth && headers.info->has_reth) std::printf(" reth %u", headers.reth.length);
  if (headers.has_bth && headers.info->has_aeth) std::printf(" aeth %02x", headers.aeth.syndrome);
  for (const FindingInfo& info : kFindings) {
    if (findings.has(info.finding)) std::printf(" %s", info.name);
  }
  std::printf(" |");
  for (auto at = truth.lower_bound({number, ""}); at != truth.end() && at->first == number; ++at) {
    std::printf(" %s", at->second.c_str());
  }
  std::printf("\n");
}

// What the analysis says about the frames, in the terms of the truth, when it has seen all of them.
Found analyse(const View& view, bool faultless, const Truth& truth, bool print = false) {
  struct Seen {
    uint32_t number, index;
    bool request;
    Datagram datagram;
    Headers headers;
  };
  std::vector<Seen> all;
  Analysis analysis;
  uint32_t number = 0;
  for (const pcapng::Record& record : view.records) {
    ++number;
    Datagram datagram;
    if (truth.count({number, "anything"}) != 0 || !describe(record, number, datagram)) continue;
    const Headers headers = parse_headers(datagram.ib, datagram.ib_size);
    all.push_back(
        {number, analysis.add(datagram, headers, true), headers.has_bth && headers.info->request, datagram, headers});
  }
  Found found;
  for (const Seen& seen : all) {
    const pcapng::Record& record = view.records[seen.number - 1];
    const Findings& findings = analysis.packet(seen.index).findings;
    collect(record, seen.number, seen.request, findings, faultless, found);
    if (print) print_packet(record, seen.number, seen.datagram, seen.headers, findings, truth);
  }
  return found;
}

uint64_t compare(const std::string& name, const Truth& truth, const Found& found, Totals& totals, bool verbose) {
  uint64_t wrong = 0;
  const auto unknowable = [&](uint32_t frame, const std::string& kind) {
    return (kind == "retransmission" || kind == "out_of_order") && truth.count({frame, "unknowable"}) != 0;
  };
  for (const auto& [frame, kind] : found.kinds) {
    if (unknowable(frame, kind)) continue;
    if (truth.count({frame, kind}) != 0) {
      ++totals[kind].right;
      continue;
    }
    ++totals[kind].wrong;
    ++wrong;
    if (verbose) std::printf("%s: frame %u: false %s\n", name.c_str(), frame, kind.c_str());
  }
  for (const auto& [frame, kind] : truth) {
    if (kind == "anything" || found.kinds.count({frame, kind}) != 0) continue;
    if (kind == "unknowable" &&
        found.kinds.count({frame, "retransmission"}) + found.kinds.count({frame, "out_of_order"}))
      continue;
    ++totals[kind].missed;
    ++wrong;
    if (verbose) std::printf("%s: frame %u: missed %s\n", name.c_str(), frame, kind.c_str());
  }
  for (const std::string& text : found.never) {
    ++wrong;
    if (verbose) std::printf("%s: %s, which is not so\n", name.c_str(), text.c_str());
  }
  return wrong;
}

void report(const char* title, const Totals& totals) {
  std::printf("%-18s%10s%8s%8s  precision   recall\n", title, "right", "false", "missed");
  for (const char* kind : kKinds) {
    const auto found = totals.find(kind);
    const Count c = found == totals.end() ? Count{} : found->second;
    const auto percent = [&](uint64_t other) {
      return c.right + other == 0 ? 100.0 : 100.0 * static_cast<double>(c.right) / static_cast<double>(c.right + other);
    };
    std::printf("%-18s%10llu%8llu%8llu  %8.3f %%  %8.3f %%\n", kind, static_cast<unsigned long long>(c.right),
                static_cast<unsigned long long>(c.wrong), static_cast<unsigned long long>(c.missed), percent(c.wrong),
                percent(c.missed));
  }
}

// The simulator numbers from 0 on without holes: other IDs, as if the sender's counter had been there before and others
// used it too. What was wrong with a frame stays as wrong as it was.
struct Renumbering {
  uint16_t first, step;

  explicit Renumbering(uint64_t seed) {
    constexpr uint16_t kFirst[] = {0, 0x7ff0, 0xfff0, 0xff00}, kStep[] = {1, 1, 3, 5};
    first = kFirst[seed / 4 % 4];
    step = kStep[seed % 4];
  }
  void apply(pcapng::Record& record) const {
    Datagram before, after;
    if (!describe(record, 1, before)) return;
    const uint32_t expected = check_icrc(before).expected;
    uint8_t* const ip = record.frame.data() + wire::kEthernetSize;
    const uint16_t id = static_cast<uint16_t>(first + step * before.ip_id);
    uint32_t checksum = uint32_t{0xffff} - wire::load_be16(ip + 10) + uint16_t(~before.ip_id) + id;  // RFC 1624
    checksum = (checksum & 0xffff) + (checksum >> 16);
    wire::store_be16(ip + 10, static_cast<uint16_t>(~((checksum & 0xffff) + (checksum >> 16))));
    wire::store_be16(ip + 4, id);
    describe(record, 1, after);
    uint8_t* const icrc = record.frame.data() + record.frame.size() - wire::kIcrcSize;
    wire::store_le32(icrc, wire::load_le32(icrc) ^ expected ^ check_icrc(after).expected);
  }
};

struct Run {
  Totals with_ids, without_ids;
  uint64_t wrong = 0, unknowable = 0, captures = 0, frames = 0;

  void judge(const Case& c, uint64_t seed, const Options& options) {
    std::vector<View> views = simulator::run(c, seed);
    std::vector<Truth> truths;
    for (size_t i = 0; i < 2; ++i) truths.push_back(simulator::truth_of(views[i], views[1 - i], c.attributes.path_mtu));
    for (size_t i = 0; i < 2; ++i) {
      const std::string name = "seed " + std::to_string(seed) + " " + c.name + (i == 0 ? "-a" : "-b");
      if (options.packets) std::printf("%s\n", name.c_str());
      for (pcapng::Record& record : views[i].records) Renumbering(seed).apply(record);
      const Found found = analyse(views[i], c.faultless(), truths[i], options.packets);
      wrong += compare(name, truths[i], found, with_ids, options.verbose);
      for (pcapng::Record& record : views[i].records) simulator::remove_ip_id(record.frame);
      compare(name, truths[i], analyse(views[i], false, truths[i]), without_ids, false);
      unknowable += static_cast<uint64_t>(std::count_if(
          truths[i].begin(), truths[i].end(), [](const auto& entry) { return entry.second == "unknowable"; }));
      ++captures;
      frames += views[i].records.size();
    }
  }
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--random-only") {
      options.random_only = true;
    } else if (name == "--verbose") {
      options.verbose = true;
    } else if (name == "--packets") {
      options.packets = true;
    } else if (i + 1 < argc && name == "--seeds") {
      options.seeds = std::strtoull(argv[++i], nullptr, 0);
    } else if (i + 1 < argc && name == "--first") {
      options.first = simulator::parse_seed(argv[++i]);
    } else {
      return false;
    }
  }
  return options.seeds > 0;
}

}  // namespace
}  // namespace uroce::dissector

int main(int argc, char** argv) {
  using namespace uroce::dissector;
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: truth_seeds [--seeds N] [--first SEED|fresh] [--random-only] [--verbose] "
                 "[--packets]\n");
    return 2;
  }
  Run run;
  for (uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    const uint64_t before = run.wrong;
    std::vector<Case> cases;
    if (!options.random_only) cases = uroce::simulator::fixed_cases();
    cases.push_back(uroce::simulator::random_case(seed));
    for (const Case& c : cases) run.judge(c, seed, options);
    if (run.wrong != before) {
      std::printf("repeat: %s --first %llu --seeds 1 --verbose\n", argv[0], static_cast<unsigned long long>(seed));
    }
  }
  std::printf("seeds %llu to %llu: %llu captures, %llu frames\n", static_cast<unsigned long long>(options.first),
              static_cast<unsigned long long>(options.first + options.seeds - 1),
              static_cast<unsigned long long>(run.captures), static_cast<unsigned long long>(run.frames));
  report("IP IDs count up", run.with_ids);
  report("no IP IDs", run.without_ids);
  std::printf("%llu wrong or missed, %llu beyond what can be known (truth.h)\n",
              static_cast<unsigned long long>(run.wrong), static_cast<unsigned long long>(run.unknowable));
  return run.wrong == 0 ? 0 : 1;
}
