// SPDX-License-Identifier: BSD-2-Clause
#include "cli/check.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <vector>

#include "cli/check_report.h"
#include "cli/complaint.h"
#include "cli/exit_codes.h"
#include "cli/progress_line.h"
#include "oracle/oracle.h"
#include "pcapng/capture_reader.h"

namespace uroce::cli {
namespace {

std::optional<wire::IpAddress> parse_address(const std::string& text) {
  uint8_t bytes[16];
  if (inet_pton(AF_INET, text.c_str(), bytes) == 1) return wire::IpAddress::v4(bytes);
  if (inet_pton(AF_INET6, text.c_str(), bytes) == 1) return wire::IpAddress::v6(bytes);
  return std::nullopt;
}

// "500us", "1ms", "2s", "0": at most an hour.
std::optional<Duration> parse_duration(std::string_view text) {
  static constexpr std::pair<std::string_view, int64_t> kUnits[] = {
      {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  if (error != std::errc() || value < 0) return std::nullopt;
  if (unit.empty()) return value == 0 ? std::optional(Duration{}) : std::nullopt;
  for (const auto& [name, nanoseconds] : kUnits) {
    if (unit == name && value <= 3600 * 1000000000ll / nanoseconds) return Duration(value * nanoseconds);
  }
  return std::nullopt;
}

struct ByBytes {
  bool operator()(const wire::IpAddress& a, const wire::IpAddress& b) const { return a.bytes < b.bytes; }
};
using Addresses = std::set<wire::IpAddress, ByBytes>;

// Of packets that are marked as outbound, or looped.
struct Sender {
  Addresses addresses;
  uint64_t packets = 0;
};

// What a first reading of the file tells.
struct Overview {
  uint64_t frames = 0, roce_packets = 0, skipped = 0, batches = 0;
  Time first{}, last{};
  std::map<wire::IpAddress, uint64_t, ByBytes> all;  // with their packets
  std::map<uint32_t, Sender> senders;                // by interface
  std::string error;                                 // where reading ended, if not at the end
};

class Capture {
 public:
  explicit Capture(const std::string& path) : path_(path), file_(path, std::ios::binary), reader_(file_) {}

  bool is_open() const { return file_.is_open(); }
  // Calls visit(record) for each. Returns what was wrong with the file, or nothing. `what`: that is done, for people
  // who wait for it.
  template <class Visitor>
  std::string for_each(const char* what, Visitor visit) {
    constexpr uint64_t kRecordsPerUpdate = 1024;
    std::error_code unknown;  // a pipe: 0
    const uint64_t size = std::filesystem::is_regular_file(path_, unknown) ? std::filesystem::file_size(path_) : 0;
    ProgressLine progress(fmt::format("uroce: {} {}", what, path_), size);
    pcapng::Record record;
    pcapng::ReadResult result;
    batches_ = 0;
    for (uint64_t read = 0; (result = reader_.next(record)) == pcapng::ReadResult::kRecord; ++read) {
      const std::vector<pcapng::Record> packets = pcapng::packets_of_batch(record);
      batches_ += !packets.empty();
      if (packets.empty()) visit(record);
      for (const pcapng::Record& packet : packets) visit(packet);
      if (read % kRecordsPerUpdate == 0) progress.update(static_cast<uint64_t>(std::max<int64_t>(file_.tellg(), 0)));
    }
    return result == pcapng::ReadResult::kError ? reader_.error() : std::string();
  }
  uint64_t skipped() const { return reader_.skipped(); }
  // Frames of several packets that have been taken apart.
  uint64_t batches() const { return batches_; }
  // Our own captures have an interface for what one queue pair of a process sends to another.
  bool is_loop(uint32_t interface) const { return reader_.interfaces()[interface].name.ends_with(":loop"); }

 private:
  const std::string path_;
  std::ifstream file_;
  pcapng::CaptureReader reader_;
  uint64_t batches_ = 0;
};

Overview survey(Capture& capture) {
  Overview overview;
  uint64_t last = 0;
  overview.error = capture.for_each("reading", [&](const pcapng::Record& record) {
    if (overview.frames == 0) overview.first = record.time;
    overview.frames += record.number != last;  // a frame may have several packets
    last = record.number;
    overview.last = std::max(overview.last, record.time);
    pcapng::RocePart part;
    if (pcapng::parse_record(record, part) != wire::FrameError::kNone) return;
    ++overview.roce_packets;
    ++overview.all[part.envelope.source];
    ++overview.all[part.envelope.destination];
    const bool looped = record.direction == pcapng::Direction::kUnknown && capture.is_loop(record.interface);
    if (!looped && record.direction != pcapng::Direction::kOut) return;
    Sender& sender = overview.senders[record.interface];
    sender.addresses.insert(part.envelope.source);
    ++sender.packets;
  });
  overview.skipped = capture.skipped();
  overview.batches = capture.batches();
  return overview;
}

// Each judged host costs memory, and a look at every record. A hostile file may have a host for each of its records.
constexpr size_t kMostHosts = 64;

// One judged host, and the records that it sees: those of one interface, or all.
struct Host {
  std::optional<uint32_t> interface;
  std::unique_ptr<oracle::Oracle> oracle;
};

class Hosts {
 public:
  explicit Hosts(const oracle::Options& options) : options_(options) {}

  void add(std::optional<uint32_t> interface, const Addresses& addresses) {
    Host& host = hosts_.emplace_back();
    host.interface = interface;
    host.oracle = std::make_unique<oracle::Oracle>(options_);
    for (const wire::IpAddress& address : addresses) host.oracle->add_local(address);
  }
  void judge(const pcapng::Record& record) {
    for (const Host& host : hosts_) {
      if (!host.interface || host.interface == record.interface) host.oracle->add(record);
    }
  }
  void finish(Time end) {
    for (const Host& host : hosts_) host.oracle->finish(end);
  }
  const std::vector<Host>& all() const { return hosts_; }

 private:
  oracle::Options options_;
  std::vector<Host> hosts_;
};

struct Choice {
  bool told = true;     // false: the file does not tell at which hosts it was taken, and all are judged
  size_t left_out = 0;  // hosts that are not judged, as there are too many
};

Choice choose_hosts(const Overview& overview, const Addresses& at, Hosts& hosts) {
  for (const wire::IpAddress& address : at) hosts.add(std::nullopt, {address});
  if (!at.empty()) return {};
  struct Candidate {
    std::optional<uint32_t> interface;
    Addresses addresses;
    uint64_t packets;
  };
  std::vector<Candidate> candidates;
  for (const auto& [interface, sender] : overview.senders)
    candidates.push_back({interface, sender.addresses, sender.packets});
  const bool told = !candidates.empty();
  if (!told) {
    for (const auto& [address, packets] : overview.all) candidates.push_back({std::nullopt, {address}, packets});
  }
  const size_t left_out = candidates.size() - std::min(candidates.size(), kMostHosts);
  if (left_out > 0) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.packets > b.packets; });
    candidates.resize(kMostHosts);
  }
  for (const Candidate& candidate : candidates) hosts.add(candidate.interface, candidate.addresses);
  return {told, left_out};
}

void say_what_is_assumed() {
  fmt::print(
      "The file does not say at which host it was taken (no packet is marked as inbound or outbound), so every "
      "address\n"
      "is judged: what was lost between the capture point and a host may look like a violation. --at names the "
      "host.\n\n");
}

CheckFindings collect(const Hosts& hosts, const Overview& overview) {
  CheckFindings findings;
  findings.read_error = overview.error;
  findings.frames = overview.frames;
  findings.roce_packets = overview.roce_packets;
  findings.segment_batches = overview.batches;
  findings.start = overview.first;
  findings.judged_hosts = hosts.all().size();
  uint64_t count = 0;
  for (const Host& host : hosts.all()) {
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(findings.violations, host.oracle->violations());
    append(findings.connections, host.oracle->summary());
    append(findings.exchanges, host.oracle->cm_summary());
    findings.judged_packets += host.oracle->packet_count();
    findings.errors += host.oracle->error_count();
    count += host.oracle->violation_count();
  }
  findings.quirks = count - findings.errors;
  std::stable_sort(findings.violations.begin(), findings.violations.end(),
                   [](const auto& a, const auto& b) { return a.packet < b.packet; });
  return findings;
}

std::string why_nothing(const Overview& overview, const std::string& file) {
  std::string why = fmt::format("{}: no RoCE v2 packets (UDP port 4791) among {} frames", file, overview.frames);
  if (overview.skipped > 0) why += fmt::format("; {} more are neither Ethernet nor IP", overview.skipped);
  return why +
         "; tcpdump does not see the packets of RDMA NICs and of AF_XDP: capture at a mirror port, or at the peer";
}

}  // namespace

int check(const CheckOptions& options) {
  oracle::Options judging;
  const auto slack = parse_duration(options.slack);
  if (!slack)
    return complain(kExitUsage, fmt::format("--slack '{}': no duration; for example: 500us, 1ms or 0", options.slack));
  judging.slack = *slack;
  judging.path_mtu = options.path_mtu;
  judging.patience = std::chrono::seconds(options.patience);
  Addresses at;
  for (const std::string& text : options.at) {
    const auto address = parse_address(text);
    if (!address) return complain(kExitUsage, fmt::format("--at '{}': neither an IPv4 nor an IPv6 address", text));
    at.insert(*address);
  }

  Capture first(options.file);
  std::error_code unknown;
  if (!first.is_open() || std::filesystem::is_directory(options.file, unknown)) {
    const int error = first.is_open() ? EISDIR : errno;
    return complain(kExitUsage, fmt::format("cannot open {}: {}", options.file, std::strerror(error)));
  }
  const Overview overview = survey(first);
  if (!overview.error.empty()) complain(kExitUsage, fmt::format("{}: {}", options.file, overview.error));
  if (overview.roce_packets == 0) {
    return overview.error.empty() ? complain(kExitUsage, why_nothing(overview, options.file)) : kExitUsage;
  }
  for (const wire::IpAddress& address : at) {
    if (overview.all.count(address) == 0) {
      return complain(kExitUsage, fmt::format("{}: no RoCE v2 packets of {}", options.file, address.text()));
    }
  }

  Hosts hosts(judging);
  const auto [told, left_out] = choose_hosts(overview, at, hosts);
  if (left_out > 0) {
    complain(kExitOk, fmt::format("{}: only the {} hosts with the most packets are judged, and {} are not; --at names "
                                  "those to judge",
                                  options.file, kMostHosts, left_out));
  }
  if (!told && !options.quiet && !options.json) say_what_is_assumed();
  Capture second(options.file);
  second.for_each("judging", [&](const pcapng::Record& record) { hosts.judge(record); });
  hosts.finish(overview.last);
  CheckFindings findings = collect(hosts, overview);
  findings.file = options.file;
  findings.hosts_assumed = !told;
  findings.hosts_left_out = left_out;
  fmt::print("{}",
             options.json ? check_json(findings, options.limit) : check_text(findings, options.limit, options.quiet));
  if (!overview.error.empty()) return kExitUsage;  // not all of it was judged
  return findings.errors == 0 ? kExitOk : kExitFailed;
}

}  // namespace uroce::cli
