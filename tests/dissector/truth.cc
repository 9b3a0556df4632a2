// SPDX-License-Identifier: BSD-2-Clause
#include "tests/dissector/truth.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <sstream>

#include "pcapng/capture_reader.h"
#include "pcapng/pcapng_writer.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace uroce::simulator {
namespace {

using pcapng::Record;
using queue::WrOpcode;
using std::chrono::microseconds;
using wire::Operation;

constexpr uint32_t kPsnMask = 0xffffff;
constexpr const char* kRandom = "random";

// What one frame is, from the sender's point of view.
struct Sent {
  size_t order = 0;  // among all frames of its host
  bool request = false;
  bool again = false;   // a request that the sender has sent before, or a part of one
  bool inside = false;  // ... that is not its beginning: the rest of a READ
  bool response_again = false;
  int64_t rank = 0;  // of a request: among the new ones, of one sent again that of the first time
};
// By its bytes: the IPv4 ID makes each frame different.
using SentFrames = std::map<std::vector<uint8_t>, Sent>;

bool parse(const std::vector<uint8_t>& frame, wire::Envelope& envelope, std::span<const uint8_t>& ib,
           wire::Packet& packet) {
  return wire::parse_frame(frame, envelope, ib) == wire::FrameError::kNone &&
         wire::parse_packet(ib, packet) == wire::ParseError::kNone;
}

uint32_t span_of(const wire::Packet& packet, uint32_t path_mtu) {
  if (packet.info->operation != Operation::kReadRequest) return 1;
  return std::max(1u, (packet.reth.length + path_mtu - 1) / path_mtu);
}

// The frames that a host sent, judged by themselves.
SentFrames judge_sent(const View& view, uint32_t path_mtu) {
  SentFrames all;
  std::map<uint32_t, int64_t> requested;
  std::set<uint32_t> responded;
  int64_t rank = 0;
  size_t order = 0;
  for (const Record& record : view.records) {
    if (record.direction != pcapng::Direction::kOut) continue;
    wire::Envelope envelope;
    std::span<const uint8_t> ib;
    wire::Packet packet;
    if (!parse(record.frame, envelope, ib, packet)) std::abort();
    Sent sent{.order = order++, .request = packet.info->request};
    const uint32_t psn = packet.bth.psn.value();
    if (sent.request) {
      sent.again = requested.count(psn) != 0;
      sent.rank = sent.again ? requested[psn] : ++rank;
      sent.inside =
          sent.again && requested.count((psn - 1) & kPsnMask) != 0 && requested[(psn - 1) & kPsnMask] == sent.rank;
      for (uint32_t i = 0; i < span_of(packet, path_mtu); ++i) requested.emplace((psn + i) & kPsnMask, sent.rank);
    } else if (packet.info->operation != Operation::kAcknowledge) {
      sent.response_again = !responded.insert(psn).second;
    }
    all[record.frame] = sent;
  }
  return all;
}

// Whether one flipped bit leaves the frame a RoCE v2 packet, and which checksum must notice: by where the bit is.
enum class Damage { kNone, kBadIcrc, kBadIpChecksum, kBoth, kNotRoce };
Damage damage_at(size_t byte, uint8_t bits) {
  const size_t ip = byte - wire::kEthernetSize;
  if (ip == 0 || ip == 2 || ip == 3 || ip == 9) return Damage::kNotRoce;  // version, length, protocol
  if (ip == 6 || ip == 7) return bits == 0x40 && ip == 6 ? Damage::kBoth : Damage::kNotRoce;  // fragment
  if (ip == 1 || ip == 8 || ip == 10 || ip == 11) return Damage::kBadIpChecksum;              // TOS, TTL, checksum
  if (ip < wire::kIpv4Size) return Damage::kBoth;
  if (ip == 22 || ip == 23 || ip == 24 || ip == 25) return Damage::kNotRoce;  // UDP port, length
  if (ip == 26 || ip == 27 || ip == 32) return Damage::kNone;                 // UDP checksum, FECN and BECN
  return Damage::kBadIcrc;
}

const std::vector<uint8_t>* original_of(const std::vector<uint8_t>& frame, const SentFrames& sent, Damage& damage) {
  if (const auto same = sent.find(frame); same != sent.end()) {
    damage = Damage::kNone;
    return &same->first;
  }
  for (const auto& [candidate, what] : sent) {
    if (candidate.size() != frame.size()) continue;
    const auto differs = std::mismatch(frame.begin(), frame.end(), candidate.begin());
    if (!std::equal(differs.first + 1, frame.end(), differs.second + 1)) continue;
    damage = damage_at(static_cast<size_t>(differs.first - frame.begin()),
                       static_cast<uint8_t>(*differs.first ^ *differs.second));
    return &candidate;
  }
  std::abort();
}

// The READ responses that arrive: which come behind a gap, from what their requester has asked for.
class ReadGaps {
 public:
  explicit ReadGaps(uint32_t path_mtu) : path_mtu_(path_mtu) {}
  void on_request(const wire::Packet& packet) {
    if (packet.info->operation != Operation::kReadRequest) return;
    const uint32_t psn = packet.bth.psn.value();
    if (read_of_.count(psn) != 0) return;  // a part of one again
    for (uint32_t i = 0; i < span_of(packet, path_mtu_); ++i) read_of_[(psn + i) & kPsnMask] = psn;
  }
  bool on_response(const wire::Packet& packet) {
    if (packet.info->operation == Operation::kAcknowledge) return false;
    const uint32_t psn = packet.bth.psn.value();
    const auto read = read_of_.find(psn);
    if (read == read_of_.end()) return false;
    const uint32_t at = (psn - read->second) & kPsnMask;
    uint32_t& seen = seen_[read->second];
    const bool gap = at > seen;
    seen = std::max(seen, at + 1);
    return gap;
  }

 private:
  const uint32_t path_mtu_;
  std::map<uint32_t, uint32_t> read_of_;  // PSN -> the first one of its READ
  std::map<uint32_t, uint32_t> seen_;     // first PSN of a READ -> responses up to the last one that arrived
};

// Whether something has arrived that was sent before this one and not before its first transmission.
bool sent_beyond(const std::map<size_t, int64_t>& progress, const Sent& sent) {
  for (auto at = progress.lower_bound(sent.order); at != progress.begin();) {
    if ((--at)->second >= sent.rank) return true;
  }
  return false;
}

LinkConfig random_faults(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  LinkConfig link;
  constexpr double kRates[] = {1e9, 10e9, 25e9, 100e9};
  constexpr int kDelays[] = {1, 5, 30, 200};
  constexpr double kLoss[] = {0, 0.002, 0.01, 0.03, 0.1};
  link.bits_per_second = kRates[below(4)];
  link.delay = microseconds(kDelays[below(4)]);
  if (below(4) == 0) link.queue_frames = 16;  // and what does not fit is lost
  link.drop = kLoss[below(5)];
  if (below(3) == 0) link.drop_burst = 2 + static_cast<uint32_t>(below(6));
  link.duplicate = below(2) == 0 ? 0 : kLoss[below(5)];
  link.reorder = below(2) == 0 ? 0 : kLoss[below(5)];
  link.corrupt = below(2) == 0 ? 0 : kLoss[below(5)];
  constexpr int kJitter[] = {5, 40, 500};
  link.reorder_delay = microseconds(kJitter[below(3)]);
  return link;
}

std::vector<WrOpcode> random_kinds(std::mt19937_64& random) {
  const std::vector<WrOpcode> all = TrafficConfig{}.kinds;
  const std::vector<std::vector<WrOpcode>> choices = {
      all,
      all,
      {WrOpcode::kSend, WrOpcode::kSendWithImmediate},
      {WrOpcode::kRdmaWrite},
      {WrOpcode::kRdmaRead},
      {WrOpcode::kCompareSwap, WrOpcode::kFetchAdd},
      {WrOpcode::kRdmaRead, WrOpcode::kFetchAdd, WrOpcode::kRdmaWrite},
  };
  return choices[random() % choices.size()];
}

}  // namespace

bool Case::faultless() const {
  // Of a random case not even the timeout need be long enough.
  return name != kRandom && link.drop == 0 && link.duplicate == 0 && link.reorder == 0 && link.corrupt == 0 &&
         link.queue_frames >= 1024 && traffic.receive_lag == Duration{};
}

std::vector<Case> fixed_cases() {
  const TrafficConfig mixed{.messages = 150, .under_way = 16, .max_size = 12000};
  TrafficConfig reads = mixed, sends = mixed;
  reads.kinds = {WrOpcode::kRdmaRead};
  sends.kinds = {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImmediate};
  TrafficConfig late = sends;
  late.receive_lag = microseconds(300);
  return {
      {.name = "clean", .traffic = mixed},
      {.name = "wrap", .traffic = mixed, .first_psn = 0xffff80},
      {.name = "drop", .link = {.drop = 0.02}, .traffic = mixed},
      {.name = "drop-sends", .link = {.drop = 0.02}, .traffic = sends, .both_ways = false},
      {.name = "drop-reads", .link = {.drop = 0.02}, .traffic = reads, .both_ways = false},
      {.name = "burst", .link = {.drop = 0.005, .drop_burst = 5}, .traffic = mixed},
      {.name = "duplicate", .link = {.duplicate = 0.03}, .traffic = mixed},
      {.name = "reorder", .link = {.reorder = 0.01}, .traffic = mixed},
      {.name = "corrupt", .link = {.corrupt = 0.02}, .traffic = mixed},
      {.name = "rnr", .traffic = late, .both_ways = false},
      {.name = "everything",
       .link = {.drop = 0.01, .duplicate = 0.01, .reorder = 0.01, .corrupt = 0.01},
       .traffic = mixed},
  };
}

Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed ^ 0xd155ec70);
  const auto one_of = [&](auto... choices) {
    const std::common_type_t<decltype(choices)...> all[] = {choices...};
    return all[random() % sizeof...(choices)];
  };
  Case c{.name = kRandom};
  if (random() % 8 != 0) c.link = random_faults(random);
  c.one_way_faults = random() % 3 == 0;
  c.both_ways = random() % 3 != 0;
  c.first_psn = one_of(0u, 0x123456u, 0xffffe0u, 0xfffffeu, 0x7ffff0u);
  c.traffic = {.messages = 20 + static_cast<int>(random() % 130),
               .under_way = one_of(1u, 4u, 16u, 32u),
               .max_size = one_of(64u, 3000u, 12000u, 40000u)};
  c.traffic.kinds = random_kinds(random);
  c.traffic.errors_allowed = true;
  if (random() % 4 == 0) c.traffic.receive_lag = microseconds(one_of(50, 300, 2000));
  transport::QpAttributes& a = c.attributes;
  a.path_mtu = one_of(256u, 512u, 1024u, 2048u, 4096u);
  a.max_rd_atomic = a.max_dest_rd_atomic = static_cast<uint8_t>(one_of(1, 2, 4, 16));
  a.min_rnr_timer = static_cast<uint8_t>(one_of(1, 5, 12));
  a.timeout = static_cast<uint8_t>(one_of(8, 12, 14));
  return c;
}

std::vector<View> run(const Case& c, uint64_t seed) {
  Pair pair(seed, c.link);
  if (c.one_way_faults) {
    pair.backward.config = LinkConfig{.bits_per_second = c.link.bits_per_second, .delay = c.link.delay};
  }
  pair.connect(c.attributes, c.first_psn, c.first_psn ^ 0x800000);
  const uint32_t path_mtu = c.attributes.path_mtu;
  Traffic forward(pair.host_a, pair.a, pair.host_b, pair.b, pair.random, c.traffic, path_mtu);
  TrafficConfig back = c.traffic;
  if (!c.both_ways) back.messages = 0;
  Traffic backward(pair.host_b, pair.b, pair.host_a, pair.a, pair.random, back, path_mtu);
  const bool done = pair.events.run_until(
      [&] {
        forward.step();
        if (c.both_ways) backward.step();
        return forward.done() && (!c.both_ways || backward.done());
      },
      std::chrono::minutes(5));
  pair.events.run_for(std::chrono::seconds(1));
  if (!done || forward.failed() || backward.failed()) {
    std::fprintf(stderr, "%s, seed %llu: the run failed: %s %s\n", c.name.c_str(),
                 static_cast<unsigned long long>(seed), forward.error().c_str(), backward.error().c_str());
    std::exit(1);
  }
  // The first frames are gone if there were too many.
  if (pair.judge.kept().empty() || pair.judge.kept().front().number != 1) {
    Case shorter = c;
    shorter.traffic.messages /= 4;
    return run(shorter, seed);
  }
  std::vector<View> views(2);
  for (const Record& record : pair.judge.kept()) views[record.interface].records.push_back(record);
  return views;
}

Truth truth_of(const View& own, const View& other, uint32_t path_mtu) {
  const SentFrames sent_here = judge_sent(own, path_mtu), sent_there = judge_sent(other, path_mtu);
  Truth truth;
  std::set<std::vector<uint8_t>> arrived;
  ReadGaps read_gaps(path_mtu);
  std::map<size_t, int64_t> progress;  // of what arrived: order of sending -> rank
  int64_t newest = 0;
  uint32_t number = 0;
  for (const Record& record : own.records) {
    ++number;
    const auto is = [&](const char* kind) { truth.emplace(number, kind); };
    wire::Envelope envelope;
    std::span<const uint8_t> ib;
    wire::Packet packet;
    if (record.direction == pcapng::Direction::kOut) {
      const Sent& sent = sent_here.at(record.frame);
      if (sent.again) is("retransmission");
      if (sent.response_again) is("response_replay");
      if (sent.request && parse(record.frame, envelope, ib, packet)) read_gaps.on_request(packet);
      continue;
    }
    Damage damage;
    const auto* const original = original_of(record.frame, sent_there, damage);
    if (damage != Damage::kNone) {
      if (damage == Damage::kNotRoce) is("anything");
      if (damage == Damage::kBadIcrc || damage == Damage::kBoth) is("bad_icrc");
      if (damage == Damage::kBadIpChecksum || damage == Damage::kBoth) is("bad_ip_checksum");
      continue;
    }
    if (!arrived.insert(*original).second) {
      is("duplicate_packet");
      continue;
    }
    const Sent& sent = sent_there.at(*original);
    if (!parse(*original, envelope, ib, packet)) std::abort();
    if (!sent.request) {
      if (read_gaps.on_response(packet)) is("response_gap");
      continue;
    }
    // What was lost with nothing behind it, nobody at this end can know when it comes again. If something behind it
    // came, but nothing that was sent before the repetition, then this looks like an original that was overtaken.
    if (sent.again && sent.rank <= newest) is(sent_beyond(progress, sent) ? "retransmission" : "unknowable");
    // ... nor what was there before the first one.
    if (newest > 0 && (sent.rank > newest + 1 || (sent.rank > newest && sent.inside))) is("psn_gap");
    if (!sent.again && sent.rank <= newest) is("out_of_order");
    newest = std::max(newest, sent.rank);
    progress.emplace(sent.order, sent.rank);
  }
  return truth;
}

void remove_ip_id(std::vector<uint8_t>& frame) {
  wire::Envelope envelope;
  std::span<const uint8_t> ib;
  if (wire::parse_frame(frame, envelope, ib) != wire::FrameError::kNone || !wire::icrc_matches(envelope, ib)) return;
  envelope.ip_id = 0;
  std::vector<uint8_t> packet(ib.begin(), ib.end());
  const size_t covered = packet.size() - wire::kIcrcSize;
  wire::store_le32(&packet[covered], wire::icrc(envelope, std::span(packet).first(covered)));
  const size_t size =
      wire::emit_frame_headers(envelope, static_cast<uint32_t>(packet.size() + wire::kUdpSize), frame.data());
  std::copy(packet.begin(), packet.end(), frame.begin() + static_cast<ptrdiff_t>(size));
}

}  // namespace uroce::simulator
