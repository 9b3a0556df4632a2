// SPDX-License-Identifier: BSD-2-Clause
// Writes the inputs that the fuzzers begin with: make_corpus DIRECTORY makes DIRECTORY/TARGET/NAME for every target.
// Called by tools/fuzz. What a byte means is said at the head of each target; operations that read more bytes than are
// given here find zeros, the plainest choice.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cm/codec.h"
#include "pcapng/pcapng_writer.h"
#include "tests/engine/transport/peer_packet.h"
#include "tests/fuzz/sealed_frame.h"

namespace uroce::fuzz {

namespace {

using Bytes = std::vector<uint8_t>;
using transport::test::PeerPacket;

class Corpus {
 public:
  Corpus(const std::filesystem::path& directory, const std::string& target) : directory_(directory / target) {
    std::filesystem::create_directories(directory_);
  }
  void add(const std::string& name, const Bytes& bytes) {
    std::ofstream file(directory_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error("cannot write " + (directory_ / name).string());
  }

 private:
  const std::filesystem::path directory_;
};

Bytes concatenate(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes repeat(const Bytes& part, int times) {
  Bytes all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// --- frames ----------------------------------------------------------------------------------------------------------

wire::Envelope envelope(bool v6, uint8_t from, uint8_t to) {
  const auto address = [v6](uint8_t last) {
    const uint8_t four[4] = {192, 0, 2, last};
    const uint8_t sixteen[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
    return v6 ? wire::IpAddress::v6(sixteen) : wire::IpAddress::v4(four);
  };
  wire::Envelope e;
  e.source = address(from);
  e.destination = address(to);
  e.source_port = 0xc123;
  return e;
}

// A file with all of its words.
void make_port_file(Corpus corpus) {
  const std::string text =
      "\3name port0\nmac 02:00:00:00:00:01\naddress 192.0.2.1/24\naddress 2001:db8::1/64\ngateway 192.0.2.254\n"
      "mtu 4200\nvlan 42  # all of them\n";
  corpus.add("port_file", Bytes(text.begin(), text.end()));
}

// Of every opcode one packet that is as it should be, with and without payload where it may have some.
void make_frames(Corpus corpus) {
  for (int code = 0; code < 256; ++code) {
    const auto opcode = static_cast<wire::Opcode>(code);
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    if (!info.known) continue;
    for (const bool v6 : {false, true}) {
      for (const size_t payload : {0, 61}) {
        if (payload > 0 && !info.has_payload) continue;
        const Bytes ib = PeerPacket(opcode, 0xfffffe).aeth(0x1f, 3).payload(Bytes(payload, 0x5a)).bytes();
        corpus.add(std::string(wire::transport_name(info.transport)) + "_" + info.name + (v6 ? "_v6_" : "_v4_") +
                       std::to_string(payload),
                   sealed_frame(envelope(v6, 1, 2), wire::Qpn(0x202), ib));
      }
    }
  }
}

// --- operations of qp_pair_fuzzer ------------------------------------------------------------------------------------

constexpr uint8_t kAtB = 0x80;
constexpr uint8_t kSignaled = 2;

constexpr size_t kSettings = 13;
const Bytes kPlain(kSettings, 0);  // the first choice of everything

// `where`: the byte that Arena::range() begins with; offset 0 and `length` follow.
Bytes range(uint8_t where, uint16_t length) {
  return {where, 0, 0, static_cast<uint8_t>(length), static_cast<uint8_t>(length >> 8)};
}
constexpr uint8_t kShared = 0x00, kPrivate = 0x80, kWord = 0x08, kAtEnd = 0x03;

// `length` bytes in one SGE of the region `where`; remote: the start of the peer's shared region.
Bytes send(uint8_t host, uint8_t opcode, uint16_t length, uint8_t where = kShared, uint8_t flags = kSignaled) {
  return concatenate({{host, opcode, flags, 1}, range(where, length), range(where & kWord, length), {1, 0}});
}
Bytes receive(uint8_t host, uint16_t length) {
  return concatenate({{static_cast<uint8_t>(host | 3), 1}, range(kPrivate, length)});
}
Bytes wait_us(uint8_t microseconds) {
  return {5, microseconds};
}
Bytes wait_ms(uint8_t power) {
  return {7, power};
}
Bytes disturb(uint8_t host, uint8_t what, uint8_t how) {
  return {static_cast<uint8_t>(host | 11), static_cast<uint8_t>(how << 3 | what)};
}
// A packet to `host`: which PSN (see Session::inject), opcode, flags, choice and size of payload, then headers.
Bytes inject(uint8_t host, uint8_t base, uint8_t opcode, const Bytes& rest) {
  return concatenate({{static_cast<uint8_t>(host | 8), 0, base, opcode}, rest});
}

// One of everything that completes, in both directions.
Bytes all_kinds() {
  Bytes all;
  for (const uint8_t host : {uint8_t{0}, kAtB}) {
    for (int i = 0; i < 4; ++i) {
      const Bytes r = receive(host ^ kAtB, 4000);
      all.insert(all.end(), r.begin(), r.end());
    }
    for (uint8_t opcode = 0; opcode < 10; ++opcode) {
      const bool atomic = opcode == 5 || opcode == 6;
      if (opcode == 7 || opcode == 8 || opcode == 9) continue;  // local operations end the QP
      const Bytes s = send(host, opcode, atomic ? 8 : 3000, atomic ? kWord : kShared);
      all.insert(all.end(), s.begin(), s.end());
    }
  }
  return all;
}

void make_pairs(Corpus corpus) {
  corpus.add("all_kinds", concatenate({kPlain, all_kinds(), wait_ms(3)}));
  for (uint8_t choice = 0; choice < 6; ++choice) {  // other settings
    corpus.add("settings_" + std::to_string(choice), concatenate({Bytes(kSettings, choice), all_kinds(), wait_ms(5)}));
  }
  for (uint8_t opcode = 0; opcode < 11; ++opcode) {
    corpus.add("opcode_" + std::to_string(opcode),
               concatenate({kPlain, receive(kAtB, 5000), send(0, opcode, 5000), wait_us(30), wait_ms(6)}));
  }
  corpus.add("no_receive", concatenate({kPlain, send(0, 2, 500), wait_ms(1), receive(kAtB, 500), wait_ms(4)}));
  corpus.add("nobody_there", concatenate({kPlain, disturb(0, 0, 31), all_kinds(), repeat(wait_ms(10), 9)}));
  corpus.add("short_receive", concatenate({kPlain, receive(kAtB, 100), send(0, 2, 500), wait_ms(1)}));
  for (uint8_t what = 0; what < 8; ++what) {
    corpus.add("disturbed_" + std::to_string(what),
               concatenate({kPlain, disturb(0, what, 9), disturb(kAtB, what, 3), all_kinds(), repeat(wait_ms(4), 8)}));
  }
  for (uint8_t bits = 1; bits != 0; bits = static_cast<uint8_t>(bits << 1)) {
    corpus.add("lost_" + std::to_string(bits),
               concatenate({kPlain, {12, bits}, all_kinds(), wait_us(200), repeat(wait_ms(3), 5)}));
  }
  for (uint8_t state = 0; state < 8; ++state) {
    corpus.add("modify_" + std::to_string(state),
               concatenate({kPlain, all_kinds(), wait_us(10), {14, state, 0}, wait_us(100), {14, 3, 0}, wait_ms(2)}));
  }
  corpus.add("reconnect", concatenate({kPlain, all_kinds(), wait_us(7), {15, 1, 2}, all_kinds(), wait_ms(3)}));
  for (uint8_t how = 0; how < 0x40; how = static_cast<uint8_t>(how + 2)) {
    corpus.add("memory_" + std::to_string(how),
               concatenate({kPlain, all_kinds(), wait_us(6), {13, how, 0x8d, how}, wait_us(100), wait_ms(2)}));
  }
}

// Every request and response, as it should be and with more or less payload, at every PSN that inject() knows, and at
// the end of a region and past it.
void make_attacks(Corpus corpus) {
  constexpr uint8_t kAsItShouldBe = 0, kOneMore = 200, kOneLess = 201, kNone = 220;
  for (uint8_t opcode = 0; opcode < 0x20; ++opcode) {
    const bool request = opcode < 0x0d || opcode > 0x12;
    const bool atomic = opcode == 0x12;
    const uint8_t asked = request ? 2 : atomic ? 6 : 4;
    for (uint8_t base = 0; base < 5; ++base) {
      for (const uint8_t size : {kAsItShouldBe, kOneMore, kOneLess, kNone}) {
        for (const uint8_t where : {kShared, kAtEnd}) {
          const wire::OpcodeInfo& info = wire::opcode_info(wire::Opcode{opcode});
          const Bytes payload = info.last && info.has_payload ? Bytes{size, 64, 0} : Bytes{size};
          const Bytes remote = where == kShared ? range(kShared, 64) : Bytes{kAtEnd, 0, 0, 64, 0, 2, size};
          corpus.add(
              "inject_" + std::to_string(opcode) + "_" + std::to_string(base) + "_" + std::to_string(size) +
                  (where == kShared ? "" : "_end"),
              concatenate({kPlain, receive(0, 5000), send(0, asked, atomic ? 8 : 200, atomic ? kWord : kShared),
                           wait_us(3), inject(0, base, opcode, concatenate({{1}, payload, remote})), wait_ms(1)}));
        }
      }
    }
  }
}

// --- operations of hostile_memory_fuzzer -----------------------------------------------------------------------------

void make_garbage(Corpus corpus) {
  const Bytes settings(6, 0);
  for (uint8_t opcode = 0; opcode < 10; ++opcode) {
    for (uint8_t field = 0; field < 8; ++field) {
      const Bytes post =
          concatenate({{0, 0, opcode, kSignaled, 1}, range(kShared, 3000), range(kShared, 3000), {0, 0, 0}});
      const Bytes receives = repeat(concatenate({{kAtB | 3, 1, 1}, range(kPrivate, 5000), {1, 0, 0, 0}}), 3);
      corpus.add("overwrite_" + std::to_string(opcode) + "_" + std::to_string(field),
                 concatenate({settings,
                              receives,
                              post,
                              post,
                              {10, 0xff},
                              {5, 0, field, 0xff, 0xff, 0xff, 0xff},
                              {6, 20},
                              Bytes(40, field),
                              {8, 4},
                              {9, 1, 3, 1},
                              {12},
                              post,
                              {6, 9}}));
    }
  }
}

// --- captures --------------------------------------------------------------------------------------------------------

// A message and its acknowledgement, as pcapng and as classic pcap.
void make_captures(Corpus corpus) {
  std::vector<pcapng::Record> records;
  const auto seen = [&](bool out, const PeerPacket& packet) {
    pcapng::Record record;
    record.number = records.size() + 1;
    record.time = Time(std::chrono::microseconds(10 * records.size()));
    record.direction = out ? pcapng::Direction::kOut : pcapng::Direction::kIn;
    record.frame = sealed_frame(out ? envelope(false, 1, 2) : envelope(false, 2, 1), wire::Qpn(out ? 0x202 : 0x101),
                                packet.bytes());
    records.push_back(std::move(record));
  };
  using transport::test::request;
  seen(true, request(wire::Opcode::kRcSendFirst, 7, Bytes(256, 1)));
  seen(true, request(wire::Opcode::kRcSendLast, 8, Bytes(99, 2)).ack_request());
  seen(false, transport::test::ack(8));
  seen(true, transport::test::read_request(9, 0x1000, 0x77, 500));
  seen(false, transport::test::read_response(wire::Opcode::kRcReadResponseFirst, 9, Bytes(256, 3)));
  seen(false, transport::test::read_response(wire::Opcode::kRcReadResponseLast, 10, Bytes(244, 4)));
  seen(false, transport::test::nak(wire::NakCode::kPsnSequenceError, 11));
  seen(false, transport::test::rnr_nak(11, 12));
  seen(true, PeerPacket(wire::Opcode::kRcFetchAdd, 11).atomic(0x2000, 0x77, 1));
  seen(false, transport::test::atomic_response(11, 41));

  std::ostringstream out;
  pcapng::PcapngWriter writer(out, "make_corpus");
  writer.add_interface("roce0");
  for (const pcapng::Record& record : records) writer.write(record);
  const std::string pcapng = out.str();
  Bytes classic = {0, 0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0};
  for (const pcapng::Record& record : records) {
    const auto size = static_cast<uint32_t>(record.frame.size());
    Bytes header(16);
    for (uint8_t* field : {&header[8], &header[12]}) wire::store_le32(field, size);
    classic = concatenate({classic, header, record.frame});
  }
  for (const uint8_t choice : {0, 15}) {
    corpus.add("pcapng_" + std::to_string(choice), concatenate({{choice}, Bytes(pcapng.begin(), pcapng.end())}));
    classic[0] = choice;
    corpus.add("pcap_" + std::to_string(choice), classic);
  }
}

// --- what a process says of itself, for statistics_fuzzer -----------------------------------------------------------

void make_statistics(Corpus corpus) {
  const std::string text =
      "uroce-statistics 1\ntime 5\ndevice uroce_a a udp\ncounter tx_packets 7\ncounter drop_bad_icrc 1\n"
      "qps rc rts 2\nqp 1 rc rts 2 192.0.2.1 16777215 5 1 0\nqp 2 ud err 0 - 0 0 0 9\nend\n";
  corpus.add("report", Bytes(text.begin(), text.end()));
}

// --- packets for dissector_fuzzer ------------------------------------------------------------------------------------

// Between hosts 1 and 2, QPs 2 and 1: `bytes` of header and payload, of which `header` are given.
Bytes captured(bool forth, uint8_t opcode, int8_t step, uint8_t bytes, const Bytes& header = {}) {
  const auto way = static_cast<uint8_t>(forth ? 1 | 1 << 1 : 0);
  return concatenate(
      {{way, 1, bytes, opcode, static_cast<uint8_t>(2 * step), static_cast<uint8_t>(header.size())}, header});
}

// SENDs and READs with their answers; `lost`: with a NAK, a timeout and a replay; every opcode once.
void make_dissected(Corpus corpus) {
  const Bytes ack = {0x1f, 0, 0, 1}, nak = {0x60, 0, 0, 1}, rnr = {0x25, 0, 0, 1};
  Bytes reth(16);
  reth[14] = 4;  // 1024 bytes
  const Bytes send = captured(true, 0x04, 1, 32), read = captured(true, 0x0c, 1, 16, reth);
  const Bytes answers = concatenate({captured(false, 0x11, 1, 4, ack), captured(false, 0x10, 1, 36, ack)});
  corpus.add("clean", repeat(concatenate({send, read, answers}), 8));
  for (const Bytes& answer : {nak, rnr, ack}) {
    corpus.add("again_" + std::to_string(answer[0]),
               concatenate({repeat(send, 5), captured(false, 0x11, 3, 4, answer), captured(true, 0x04, -3, 32),
                            repeat(send, 3), captured(true, 0x0c, 3, 16, reth), captured(false, 0x0f, 9, 32),
                            captured(true, 0x0c, -1, 16, reth), answers}));
  }
  for (const uint8_t base : {0x00, 0x20, 0x60, 0x80, 0xa0}) {
    Bytes all;
    for (uint8_t opcode = 0; opcode < 0x1f; ++opcode) {
      const Bytes one = captured(opcode % 3 != 0, static_cast<uint8_t>(base + opcode), 1, 40, reth);
      all.insert(all.end(), one.begin(), one.end());
    }
    corpus.add("opcodes_" + std::to_string(base), all);
  }
}

// --- messages for cm_capture_fuzzer ----------------------------------------------------------------------------------

// Kind, ids and transaction; `more`: the QPN where the kind has one; then how much time passes (2^10 ms).
Bytes said(bool out, uint8_t kind, uint8_t own, uint8_t other, uint8_t transaction, const Bytes& more = {}) {
  const Bytes ids = kind == 0 || kind == 7 ? Bytes{own} : Bytes{own, other};
  return concatenate({{static_cast<uint8_t>(out), kind, transaction}, ids, more, {10}});
}

// From REQ to DREP, by either side; a rejected one; SIDR.
void make_cm_captures(Corpus corpus) {
  for (const bool active : {false, true}) {
    const Bytes connected =
        concatenate({said(active, 0, 1, 0, 1, {0}), said(!active, 3, 2, 1, 1, {1}), said(active, 4, 1, 2, 1),
                     said(active, 5, 1, 2, 2, {1}), said(!active, 6, 2, 1, 2)});
    const Bytes rejected = concatenate({said(active, 0, 3, 0, 3, {0}), said(active, 0, 3, 0, 3, {0}),
                                        said(!active, 1, 2, 3, 3), said(!active, 2, 2, 3, 3)});
    const Bytes sidr = concatenate({said(active, 7, 1, 0, 1), said(!active, 8, 1, 0, 1)});
    const std::string name = active ? "active" : "passive";
    corpus.add("connected_" + name, concatenate({{1}, connected, connected}));
    corpus.add("all_" + name, concatenate({{0}, rejected, sidr, connected}));
  }
}

// --- netlink messages ------------------------------------------------------------------------------------------------

Bytes attribute(uint16_t type, const Bytes& data) {
  const auto length = static_cast<uint16_t>(4 + data.size());
  Bytes bytes = {static_cast<uint8_t>(length), static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(type),
                 static_cast<uint8_t>(type >> 8)};
  bytes.insert(bytes.end(), data.begin(), data.end());
  bytes.resize((bytes.size() + 3) / 4 * 4);
  return bytes;
}

Bytes netlink_message(uint16_t type, std::initializer_list<Bytes> parts) {
  const Bytes body = concatenate(parts);
  const auto length = static_cast<uint32_t>(16 + body.size());
  const Bytes header = {static_cast<uint8_t>(length),
                        static_cast<uint8_t>(length >> 8),
                        0,
                        0,
                        static_cast<uint8_t>(type),
                        static_cast<uint8_t>(type >> 8),
                        2,
                        0,  // NLM_F_MULTI
                        1,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0};
  return concatenate({header, body});
}

// Numbers are those of linux/rtnetlink.h, if_link.h, if_addr.h and neighbour.h.
void make_netlink(Corpus corpus) {
  const Bytes ipv4 = {192, 0, 2, 1}, mac = {2, 0, 0, 0, 0, 1}, one = {1, 0, 0, 0};
  const Bytes ipv6 = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const Bytes vlan =
      attribute(18, concatenate({attribute(1, {'v', 'l', 'a', 'n', 0}), attribute(2, attribute(1, {42, 0}))}));
  const Bytes link = netlink_message(16, {{0, 0, 1, 0},
                                          {7, 0, 0, 0},
                                          {0x43, 0, 1, 0},
                                          {0, 0, 0, 0},
                                          attribute(3, {'e', 't', 'h', '0', 0}),
                                          attribute(4, {0xdc, 5, 0, 0}),
                                          attribute(1, mac),
                                          attribute(10, one),
                                          vlan});
  const Bytes settings = netlink_message(16, {{10, 0, 1, 0}, {7, 0, 0, 0}, {0x43, 0, 1, 0}, {0, 0, 0, 0}});
  const Bytes address = netlink_message(
      20, {{2, 24, 0x80, 0}, {7, 0, 0, 0}, attribute(1, ipv4), attribute(2, ipv4), attribute(8, {0x80, 0, 0, 0})});
  const Bytes address6 = netlink_message(20, {{10, 64, 0x80, 0}, {7, 0, 0, 0}, attribute(1, ipv6)});
  const Bytes metrics = attribute(8, concatenate({attribute(2, {0x78, 5, 0, 0}), attribute(10, {17, 0, 0, 0})}));
  const Bytes route = netlink_message(24, {{2, 32, 0, 0, 254, 0, 0, 1},
                                           {0, 0, 0, 0},
                                           attribute(1, ipv4),
                                           attribute(5, ipv4),
                                           attribute(4, one),
                                           attribute(15, one),
                                           metrics});
  const Bytes via = netlink_message(
      24, {{2, 0, 0, 0, 254, 0, 0, 1}, {0, 0, 0, 0}, attribute(4, one), attribute(18, concatenate({{10, 0}, ipv6}))});
  const Bytes gone = netlink_message(25, {{10, 128, 0, 0, 254, 0, 0, 1}, {0, 0, 0, 0}, attribute(1, ipv6)});
  const Bytes neighbour =
      netlink_message(28, {{2, 0, 0, 0}, {7, 0, 0, 0}, {2, 0, 0, 1}, attribute(1, ipv4), attribute(2, mac)});
  const Bytes stale =
      netlink_message(28, {{10, 0, 0, 0}, {7, 0, 0, 0}, {4, 0, 0, 1}, attribute(1, ipv6), attribute(2, mac)});
  const std::pair<const char*, Bytes> messages[] = {
      {"link", link}, {"settings", settings}, {"address", address},     {"address6", address6}, {"route", route},
      {"via", via},   {"gone", gone},         {"neighbour", neighbour}, {"stale", stale}};
  Bytes all;
  for (const auto& [name, bytes] : messages) {
    corpus.add(name, bytes);
    all = concatenate({all, bytes});
  }
  corpus.add("all", all);
}

// --- AF_XDP rings ----------------------------------------------------------------------------------------------------

// `count` frames of `size` bytes on a queue; `changed`: the byte of the headers that is another one.
Bytes frames_arrive(uint8_t queue, uint8_t count, uint16_t size, uint8_t changed = 0xff) {
  const auto low = static_cast<uint8_t>(size), high = static_cast<uint8_t>(size >> 8);
  return {0, queue, static_cast<uint8_t>(count - 1), low, high, 1, changed, 1, 1, 1};
}

// Behind the number of queues: large frames on each of them, packets and others; wrong descriptors.
void make_rings(Corpus corpus) {
  constexpr uint8_t kIpv4Version = 14, kSomePort = 34;
  for (const uint8_t queues : {1, 2, 8}) {
    for (const uint8_t honest : {0, 1}) {
      const Bytes receive = concatenate({{3}, Bytes(queues), {63}});
      Bytes all = {honest, 1, static_cast<uint8_t>(queues - 1)};
      for (const uint16_t size : {60, 3840, 3841, 5000, 8192, 8193}) {
        for (uint8_t queue = 0; queue < queues; ++queue) {
          const uint8_t changed = (queue + size) % 3 == 0 ? kIpv4Version : kSomePort;
          all = concatenate({all, frames_arrive(queue, 30, size, changed), receive});
        }
        if (!honest) all = concatenate({all, {2, 0, 3, 0, 0, 1, 1, 0, 0, 0, 2, 0, 1, 0, 0, 1, 0, 0, 0, 0}});
        all = concatenate({all, receive, receive});
      }
      corpus.add((honest ? "honest_" : "broken_") + std::to_string(queues), all);
    }
  }
}

// --- operations of same_host_fuzzer ----------------------------------------------------------------------------------

constexpr uint8_t kRecord = 0, kLie = 2, kScribble = 3, kReceive = 4, kSend = 6, kExchange = 8, kSleep = 9, kRing = 10,
                  kComes = 11, kPart = 12, kShow = 13, kAddresses = 14, kLater = 15;

Bytes record(uint8_t size, uint8_t opcode, bool has_icrc = false, uint16_t more_psns = 0) {
  const Bytes psns =
      more_psns == 0 ? Bytes{0} : Bytes{1, static_cast<uint8_t>(more_psns), static_cast<uint8_t>(more_psns >> 8)};
  return concatenate({{kRecord, size, 0, 0, has_icrc}, psns, {opcode, 0, 1}});
}

void make_same_host(Corpus corpus) {
  const Bytes receive{kReceive, 63}, exchange{kExchange, 1, 200, 0, kExchange, 0, 0, 8};
  for (uint8_t size = 0; size < 8; ++size) {
    for (const uint8_t opcode : {4, 7, 12, 100}) {
      corpus.add("record_" + std::to_string(size) + "_" + std::to_string(opcode),
                 concatenate({repeat(record(size, opcode), 3), receive, record(size, opcode, true), exchange, receive,
                              record(size, opcode, false, 63), receive, exchange}));
    }
  }
  for (uint8_t word = 0; word < 4; ++word) {
    const Bytes near{kLie, 0, 1, 0xe8, 3, word}, far{kLie, 1, 0, 255, 255, 255, 255, 255, 255, 255, 255, word};
    corpus.add("lie_" + std::to_string(word), concatenate({record(3, 4),
                                                           receive,
                                                           near,
                                                           {kSend, 7, 0, 16},
                                                           receive,
                                                           exchange,
                                                           {kSleep},
                                                           far,
                                                           receive,
                                                           {kSend, 7, 0, 16},
                                                           exchange}));
  }
  corpus.add("comes_and_goes", concatenate({record(5, 4),
                                            {kComes},
                                            record(5, 4),
                                            receive,
                                            {kPart, 0},
                                            record(5, 4),
                                            receive,
                                            {kComes},
                                            receive,
                                            {kPart, 1},
                                            receive,
                                            exchange}));
  corpus.add("full",
             concatenate({repeat({kSend, 7, 0, 16}, 30), {kLater, 255, 255}, repeat({kSend, 7, 0, 16}, 3), exchange}));
  corpus.add("shown", concatenate({{kShow, 1},
                                   record(6, 4, false, 63),
                                   receive,
                                   exchange,
                                   {kShow, 0},
                                   {kAddresses},
                                   record(6, 4, false, 63),
                                   receive,
                                   {kRing, 19},
                                   {kSleep},
                                   {kScribble, 1, 4, 0, 15},
                                   receive}));
}

// --- operations of cm_fuzzer -----------------------------------------------------------------------------------------

constexpr uint8_t kCmListen = 0, kCmConnect = 1, kCmAccept = 3, kCmConfirm = 4, kCmDisconnect = 7, kCmDestroy = 8,
                  kCmEndClient = 9, kCmWait = 10, kCmBytes = 11, kCmMessage = 12, kCmEcho = 13;

// From another host, about the id of this index; the other fields are what they should be.
Bytes cm_message(uint8_t attribute, uint8_t id, uint8_t value = 1) {
  const bool request = attribute == 0 || attribute == 7;
  return concatenate(
      {{kCmMessage, 1, attribute, id, 0, 0, value}, Bytes(request ? 1 : 0, attribute == 7 ? 1 : 0), {0}});
}

void make_connections(Corpus corpus) {
  const Bytes listen = {kCmListen, 0, 0, 7}, listen_datagrams = {kCmListen, 8, 1, 7};
  const Bytes connect = {kCmConnect, 0, 0, 1, 19, 1, 0}, resolve = {kCmConnect, 4, 1, 1, 19, 1, 0};
  const Bytes accept = {kCmAccept, 1, 0, 1, 3, 1, 2, 3}, confirm = {kCmConfirm, 0, 0, 0};
  const Bytes passive[] = {
      concatenate({listen, cm_message(0, 0)}), accept, cm_message(4, 1), cm_message(5, 1), {kCmDisconnect, 1, 0, 0}};
  const Bytes active[] = {connect, cm_message(3, 0), confirm, {kCmDisconnect, 0, 0, 0}, cm_message(6, 0)};
  const auto begin = [](const Bytes* steps, int count) {
    Bytes all;
    for (int i = 0; i < count; ++i) all = concatenate({all, steps[i]});
    return all;
  };
  for (int steps = 1; steps <= 5; ++steps) {
    for (uint8_t attribute = 0; attribute < 11; ++attribute) {
      const std::string name = std::to_string(steps) + "_" + std::to_string(attribute);
      corpus.add("passive_" + name,
                 concatenate({begin(passive, steps), cm_message(attribute, 1), {kCmWait, 12, kCmDestroy, 1, 0}}));
      corpus.add("active_" + name,
                 concatenate({begin(active, steps), cm_message(attribute, 0), {kCmWait, 12, kCmDestroy, 0, 0}}));
    }
    corpus.add("passive_dies_" + std::to_string(steps),
               concatenate({begin(passive, steps), {kCmEndClient, 0}, repeat({kCmWait, 14}, 20)}));
    corpus.add("active_waits_" + std::to_string(steps), concatenate({begin(active, steps), repeat({kCmWait, 14}, 20)}));
  }
  corpus.add("datagrams", concatenate({listen_datagrams, cm_message(7, 0), accept, cm_message(7, 0), {kCmWait, 14}}));
  corpus.add("resolved", concatenate({resolve, cm_message(8, 0, 0), {kCmDestroy, 0, 0}}));
  corpus.add("echo", concatenate({listen, connect, repeat({kCmEcho}, 3), accept, repeat({kCmEcho}, 3)}));
  corpus.add("any_bytes", concatenate({listen, {kCmBytes, 1, 0, 0}, Bytes(232, 0xff), {kCmBytes, 1, 0, 3}}));
}

}  // namespace

// --- brokers ---------------------------------------------------------------------------------------------------------

Bytes connect_client(uint8_t user) {
  return {0, user};
}
// Of a client that has leases, with a range of its own.
enum Said : uint8_t { kHello, kLease, kReturn, kClaim, kMeet, kLook, kNext };
Bytes say(uint8_t client, Said what, const Bytes& rest = {}) {
  return concatenate({{1, client, what, 1, 0}, rest});
}

// Of each request and answer one, as it is made.
void make_cm_codec(Corpus corpus) {
  const auto add = [&corpus](const std::string& name, const cm::Encoded& message) {
    corpus.add(name, Bytes(message.bytes().begin(), message.bytes().end()));
  };
  cm::ConnectRequest connect;
  connect.connect.service = wire::service_id(wire::PortSpace::kTcp, 7471);
  connect.connect.path = {
      .netdev = 2, .local = envelope(false, 1, 2).source, .remote = envelope(false, 1, 2).destination};
  connect.connect.names = wire::CmaHeader{.v4 = true, .source_port = 4000, .source = connect.connect.path.local};
  cm::ListenRequest listen;
  listen.binding = cm::BindingId{3};
  listen.listen.service = connect.connect.service;
  const cm::Request requests[] = {cm::BindRequest{},
                                  cm::ReuseRequest{},
                                  cm::ReleaseRequest{},
                                  listen,
                                  connect,
                                  cm::TakeRequest{},
                                  cm::AcceptRequest{},
                                  cm::ConfirmRequest{},
                                  cm::RejectRequest{},
                                  cm::EstablishRequest{},
                                  cm::DisconnectRequest{},
                                  cm::DestroyRequest{},
                                  cm::AdoptRequest{}};
  for (const cm::Request& request : requests) add("request_" + std::to_string(request.index()), cm::encode(request));
  add("reply", cm::encode(cm::Reply{.id = cm::Id{7}, .port = 4000}));
  cm::Event event;
  for (auto kind = cm::EventKind::kConnectRequest; kind <= cm::EventKind::kTimewaitExit;
       kind = static_cast<cm::EventKind>(static_cast<int>(kind) + 1)) {
    event.kind = kind;
    add("event_" + std::to_string(static_cast<int>(kind)), cm::encode(event));
  }
}

void make_brokers(Corpus corpus) {
  const Bytes plain(7, 0), small{2, 0, 0, 0, 0, 0, 0}, not_isolated{3, 1, 0, 1, 1, 0, 0}, inherits{3, 0, 0, 1, 0, 0, 0};
  Bytes everybody;
  for (uint8_t user = 0; user < 4; ++user) {
    const Bytes one = concatenate({connect_client(user), {15}, say(user, kHello), repeat(say(user, kLease), 4)});
    everybody.insert(everybody.end(), one.begin(), one.end());
  }
  const Bytes two = concatenate(
      {connect_client(0), connect_client(1), {15}, say(0, kHello), say(1, kHello), say(0, kLease), say(1, kLease)});
  const Bytes later{7, 3, 15};
  const Bytes restart{12};
  for (const auto& [name, settings] : {std::pair("plain", plain), std::pair("small", small),
                                       std::pair("inherits", inherits), std::pair("not_isolated", not_isolated)}) {
    const auto add = [&corpus, begin = settings, prefix = std::string(name) + "_"](const std::string& what,
                                                                                   const Bytes& steps) {
      corpus.add(prefix + what, concatenate({begin, steps}));
    };
    add("everybody", concatenate({everybody, later, everybody}));
    add("returns", concatenate({two, say(0, kReturn, {0, 0}), {8, 0}, say(0, kLease), say(1, kReturn, {0, 0}), later}));
    add("claims",
        concatenate({two, restart, two, say(0, kClaim, {0}), say(1, kClaim, {1}), say(1, kClaim, {0}), later}));
    add("steals", concatenate({two,
                               say(0, kReturn, {0, 0}),
                               {8, 0},
                               say(1, kLease),
                               restart,
                               connect_client(0),
                               {15},
                               say(0, kHello),
                               repeat(say(0, kClaim, {0}), 2),
                               later,
                               say(0, kClaim, {1})}));
    add("meets", concatenate({two, {1, 0, kMeet, 1, 0, 0, 0, 1}, {1, 1, kMeet, 1, 0, 0, 0, 2}, later}));
    add("looks",
        concatenate({two, connect_client(2), {15}, say(2, kLook), repeat(say(2, kNext, {0}), 3), say(2, kNext, {1})}));
    add("reads_nothing", concatenate({two, {9, 1}, repeat(say(1, kLease), 40), later}));
    add("silent", concatenate({connect_client(1), {7, 4, 15}, two}));
    add("queues",
        concatenate({two, {10, 1, 2}, {1, 0, kLease, 1, 7}, {1, 1, kLease, 1, 7}, {10, 1, 1}, say(1, kLease)}));
    for (uint8_t count = 0; count < 7; ++count) {
      for (uint8_t kind = 1; kind < 15; ++kind) {
        add("any_" + std::to_string(kind) + "_" + std::to_string(count),
            concatenate({two, {5, 1, kind, 0, 0, count}, Bytes(6, count), say(0, kLease), later}));
      }
    }
  }
}

// Answers of a hostile broker: how, error, and so on (broker_client_fuzzer.cc: HostileBroker::answer()).
void make_hostile_brokers(Corpus corpus) {
  for (uint8_t how = 0; how < 16; ++how) {
    for (const uint8_t who : {uint8_t{0}, uint8_t{1}}) {
      Bytes answers{who};
      for (int i = 0; i < 6; ++i) {
        const Bytes one = concatenate({{static_cast<uint8_t>(i == 0 ? 0 : how), 1, 0, 0}, {3, 'a', 'b', 'c'}, {1, 0}});
        answers.insert(answers.end(), one.begin(), one.end());
      }
      corpus.add("answers_" + std::to_string(how) + "_" + std::to_string(who), answers);
    }
  }
}

}  // namespace uroce::fuzz

int main(int argc, char** argv) {
  using namespace uroce::fuzz;
  if (argc != 2) {
    std::cerr << "usage: make_corpus DIRECTORY\n";
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  try {
    make_frames({directory, "frame_fuzzer"});
    make_pairs({directory, "qp_pair_fuzzer"});
    make_attacks({directory, "qp_pair_fuzzer"});
    make_garbage({directory, "hostile_memory_fuzzer"});
    make_port_file({directory, "resolution_fuzzer"});
    make_captures({directory, "capture_fuzzer"});
    make_brokers({directory, "broker_server_fuzzer"});
    make_hostile_brokers({directory, "broker_client_fuzzer"});
    make_statistics({directory, "statistics_fuzzer"});
    make_netlink({directory, "rtnetlink_fuzzer"});
    make_rings({directory, "af_xdp_receive_fuzzer"});
    make_same_host({directory, "same_host_fuzzer"});
    make_dissected({directory, "dissector_fuzzer"});
    make_cm_captures({directory, "cm_capture_fuzzer"});
    make_connections({directory, "cm_fuzzer"});
    make_cm_codec({directory, "cm_codec_fuzzer"});
  } catch (const std::exception& error) {
    std::cerr << "make_corpus: " << error.what() << "\n";
    return 1;
  }
}
