// Captures of simulated connections whose faults are known, for the tests of the dissector.
// Usage: make_captures DIRECTORY [SEED [no-ids]]. Writes for each scenario and each end NAME-a.pcapng, NAME-b.pcapng
// (what that host's NIC saw) and beside it NAME-a.truth: lines "FRAME KIND".
//
// The truth comes from both ends together, which the dissector does not have: what one end sent and the other end did
// not see was lost, what it saw twice was duplicated, what nobody sent was corrupted, what overtook is known from the
// order of sending, and what is a retransmission from what the sender has sent before. Nothing of it uses the
// dissector's code.
//
// no-ids: as if the senders left the IPv4 ID zero, as with IPv6.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/simulator/network.h"
#include "tests/simulator/traffic.h"
#include "trace/capture_reader.h"
#include "trace/pcapng_writer.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace uroce::simulator {
namespace {

using queue::WrOpcode;
using std::chrono::microseconds;
using trace::Record;
using wire::Operation;

struct Case {
  std::string name;
  LinkConfig link{};
  TrafficConfig traffic{};
  bool both_ways = true;
  uint32_t first_psn = 0x123456;
};

std::vector<Case> cases() {
  const TrafficConfig mixed{.messages = 150, .under_way = 16, .max_size = 12000};
  TrafficConfig reads = mixed, sends = mixed;
  reads.kinds = {WrOpcode::kRdmaRead};
  sends.kinds = {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImmediate};
  TrafficConfig late = sends;
  late.receive_lag = microseconds(300);
  std::vector<Case> all = {
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
  return all;
}

// What one frame is, from the sender's point of view.
struct Sent {
  size_t order = 0;  // among all frames of its host
  bool request = false;
  bool again = false;  // a request that the sender has sent before, or a part of one
  bool response_again = false;
  int64_t rank = 0;  // of a request: among the new ones, of one sent again that of the first time
};

struct View {
  std::vector<Record> records;  // of one host, in its order
};

bool parse(const std::vector<uint8_t>& frame, wire::Envelope& envelope, std::span<const uint8_t>& ib,
           wire::Packet& packet) {
  return wire::parse_frame(frame, envelope, ib) == wire::FrameError::kNone &&
         wire::parse_packet(ib, packet) == wire::ParseError::kNone;
}

// The frames that a host sent, judged by themselves.
std::map<std::vector<uint8_t>, Sent> judge_sent(const View& view) {
  std::map<std::vector<uint8_t>, Sent> all;
  std::map<uint32_t, int64_t> requested;
  std::set<uint32_t> responded;
  size_t order = 0;
  int64_t rank = 0;
  for (const Record& record : view.records) {
    if (record.direction != trace::Direction::kOut) continue;
    wire::Envelope envelope;
    std::span<const uint8_t> ib;
    wire::Packet packet;
    if (!parse(record.frame, envelope, ib, packet)) std::abort();
    Sent sent{.order = order++, .request = packet.info->request};
    const uint32_t psn = packet.bth.psn.value();
    if (sent.request) {
      sent.again = requested.count(psn) != 0;
      const uint32_t span =
          packet.info->operation == Operation::kReadRequest ? std::max(1u, (packet.reth.length + 1023) / 1024) : 1;
      sent.rank = sent.again ? requested[psn] : ++rank;
      for (uint32_t i = 0; i < span; ++i) requested.emplace((psn + i) & 0xffffff, sent.rank);
    } else if (packet.info->operation != Operation::kAcknowledge) {
      sent.response_again = !responded.insert(psn).second;
    }
    all[record.frame] = sent;
  }
  return all;
}

// Whether one flipped bit leaves the frame a RoCE v2 packet, and whether the ICRC must notice: by where the bit is.
enum class Damage { kNone, kBadIcrc, kNotRoce };
Damage damage_at(size_t byte, uint8_t bits) {
  const size_t ip = byte - wire::kEthernetSize;
  if (ip == 0 || ip == 2 || ip == 3 || ip == 9) return Damage::kNotRoce;  // version, length, protocol
  if (ip == 6 || ip == 7) return bits == 0x40 && ip == 6 ? Damage::kBadIcrc : Damage::kNotRoce;  // fragment
  if (ip == 1 || ip == 8 || ip == 10 || ip == 11) return Damage::kNone;                          // TOS, TTL, checksum
  if (ip == 22 || ip == 23 || ip == 24 || ip == 25) return Damage::kNotRoce;                     // UDP port, length
  if (ip == 26 || ip == 27 || ip == 32) return Damage::kNone;  // UDP checksum, FECN and BECN
  return Damage::kBadIcrc;
}

const std::vector<uint8_t>* original_of(const std::vector<uint8_t>& frame,
                                        const std::map<std::vector<uint8_t>, Sent>& sent, Damage& damage) {
  if (const auto same = sent.find(frame); same != sent.end()) {
    damage = Damage::kNone;
    return &same->first;
  }
  for (const auto& [candidate, what] : sent) {
    if (candidate.size() != frame.size()) continue;
    size_t differing = 0, at = 0;
    for (size_t i = 0; i < frame.size() && differing < 2; ++i) {
      if (frame[i] == candidate[i]) continue;
      ++differing;
      at = i;
    }
    if (differing != 1) continue;
    damage = damage_at(at, static_cast<uint8_t>(frame[at] ^ candidate[at]));
    return &candidate;
  }
  std::abort();
}

// The truth about the frames that one host's capture has.
void write_truth(const View& own, const View& other, const std::string& path) {
  const auto sent_here = judge_sent(own);
  const auto sent_there = judge_sent(other);
  std::ofstream out(path);
  std::set<std::vector<uint8_t>> arrived;
  int64_t newest = 0;
  uint32_t number = 0;
  for (const Record& record : own.records) {
    ++number;
    if (record.direction == trace::Direction::kOut) {
      const Sent& sent = sent_here.at(record.frame);
      if (sent.again) out << number << " retransmission\n";
      if (sent.response_again) out << number << " response_replay\n";
      continue;
    }
    Damage damage;
    const auto* const original = original_of(record.frame, sent_there, damage);
    if (damage == Damage::kNotRoce) {
      out << number << " anything\n";
      continue;
    }
    if (damage == Damage::kBadIcrc) {
      out << number << " bad_icrc\n";
      continue;
    }
    if (!arrived.insert(*original).second) {
      out << number << " duplicate_packet\n";
      continue;
    }
    const Sent& sent = sent_there.at(*original);
    if (!sent.request) continue;
    // What was lost with nothing behind it, nobody at this end can know when it comes again.
    const bool knowable = sent.rank <= newest;
    if (sent.again && knowable) out << number << " retransmission\n";
    // ... nor what was there before the first one.
    if (sent.rank > newest + 1 && newest > 0) out << number << " psn_gap\n";
    if (!sent.again && sent.rank <= newest) out << number << " out_of_order\n";
    newest = std::max(newest, sent.rank);
  }
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

void write_capture(const View& view, const std::string& name, const std::string& path, bool ids) {
  std::ofstream file(path, std::ios::binary);
  trace::PcapngWriter writer(file, "uroce simulator");
  writer.add_interface(name);
  for (Record record : view.records) {
    record.interface = 0;
    if (!ids) remove_ip_id(record.frame);
    writer.write(record);
  }
}

// What each host saw.
std::vector<View> run(const Case& c, uint64_t seed, const std::string& scratch, uint64_t& retransmissions) {
  Pair pair(seed, c.link);
  pair.connect(Network::default_attributes(), c.first_psn, c.first_psn ^ 0x800000);
  Traffic forward(pair.host_a, pair.a, pair.host_b, pair.b, pair.random, c.traffic, 1024);
  TrafficConfig back = c.traffic;
  if (!c.both_ways) back.messages = 0;
  Traffic backward(pair.host_b, pair.b, pair.host_a, pair.a, pair.random, back, 1024);
  const bool done = pair.events.run_until(
      [&] {
        forward.step();
        if (c.both_ways) backward.step();
        return forward.done() && (!c.both_ways || backward.done());
      },
      std::chrono::minutes(5));
  pair.events.run_for(std::chrono::seconds(1));
  if (!done || forward.failed() || backward.failed()) {
    std::fprintf(stderr, "%s: the run failed: %s %s\n", c.name.c_str(), forward.error().c_str(),
                 backward.error().c_str());
    std::exit(1);
  }
  retransmissions = 0;
  for (const auto& host : pair.hosts) retransmissions += host->counters.get(Counter::kTxRetransmissions);
  if (!pair.judge.write_capture(scratch)) std::exit(1);
  std::ifstream file(scratch, std::ios::binary);
  trace::CaptureReader reader(file);
  std::vector<View> views(2);
  Record record;
  while (reader.next(record) == trace::ReadResult::kRecord) views[record.interface].records.push_back(record);
  return views;
}

int main_of(const std::string& directory, uint64_t seed, bool ids) {
  const std::string scratch = directory + "/both.pcapng";
  for (const Case& c : cases()) {
    uint64_t counted;
    const std::vector<View> views = run(c, seed, scratch, counted);
    uint64_t again = 0;
    for (const View& view : views) {
      for (const auto& [frame, sent] : judge_sent(view)) again += sent.again;
    }
    std::printf("%-12s %zu and %zu frames, %llu retransmissions (the engine counted %llu)\n", c.name.c_str(),
                views[0].records.size(), views[1].records.size(), static_cast<unsigned long long>(again),
                static_cast<unsigned long long>(counted));
    const std::string base = directory + "/" + c.name;
    for (size_t i = 0; i < 2; ++i) {
      const std::string end = i == 0 ? "-a" : "-b";
      write_capture(views[i], "host" + std::to_string(i + 1), base + end + ".pcapng", ids);
      write_truth(views[i], views[1 - i], base + end + ".truth");
    }
  }
  std::remove(scratch.c_str());
  return 0;
}

}  // namespace
}  // namespace uroce::simulator

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_captures DIRECTORY [SEED [no-ids]]\n");
    return 2;
  }
  return uroce::simulator::main_of(argv[1], argc > 2 ? std::stoull(argv[2]) : 1, argc < 4);
}
