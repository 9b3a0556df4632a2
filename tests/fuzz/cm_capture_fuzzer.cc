// SPDX-License-Identifier: BSD-2-Clause
// Messages of the connection manager between two hosts, in any order, with right ICRCs, to those who read captures: the
// oracle and the analysis of dissector/. capture_fuzzer and dissector_fuzzer hardly ever come as far as a whole MAD.
//
// The input is a list of messages: a byte with flags (below), the kind, both ids, the transaction and how much time
// passes, then what the flags say. Ids and transactions are few, so that messages meet.
//
// Checked: nothing is read or written outside, every message has its record, links lead to frames, there are no more
// exchanges than packets.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dissector/analysis/analysis.h"
#include "oracle/oracle.h"
#include "oracle/report.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "wire/bytes.h"
#include "wire/cm_message.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/mad.h"

namespace uroce::fuzz {
namespace {

constexpr size_t kMostMessages = 2000;
enum Flags : uint8_t {
  kOut = 1,
  kToItself = 2,
  kCut = 4,     // the capture cut it: how much is left
  kWrong = 8,   // bytes of the MAD: how many, where, what
  kInside = 16  // a data packet of QP 2 to 5, and not a message
};

wire::IpAddress address(uint8_t last) {
  const uint8_t four[] = {192, 0, 2, last};
  return wire::IpAddress::v4(four);
}

class Exchange {
 public:
  explicit Exchange(Input& input) : input_(input), oracle_(options(input.byte())) { oracle_.add_local(address(1)); }

  void run() {
    while (!input_.empty() && frames_ < kMostMessages) step();
    oracle_.finish(now_);
    check(oracle_.cm_summary().size() <= frames_ * 2, "no more exchanges than messages");
    check(oracle_.violations().size() <= oracle_.violation_count(), "violations that are kept are counted");
    for (const oracle::Violation& violation : oracle_.violations()) (void)oracle::format_violation(violation);
    (void)oracle::format_cm_summary(oracle_.cm_summary());
    (void)oracle::format_summary(oracle_.summary());
    for (uint32_t i = 0; i < frames_; ++i) look(i);
  }

 private:
  static oracle::Options options(uint8_t choice) {
    oracle::Options options;
    options.whole = (choice & 1) != 0;
    if ((choice & 2) != 0) options.slack = std::chrono::milliseconds(1);
    return options;
  }

  void step() {
    const uint8_t flags = input_.byte();
    std::vector<uint8_t> ib = (flags & kInside) != 0 ? data() : message(flags);
    wire::Envelope envelope;
    envelope.source = address((flags & (kOut | kToItself)) != 0 ? 1 : 2);
    envelope.destination = address((flags & kOut) != 0 && (flags & kToItself) == 0 ? 2 : 1);
    now_ += std::chrono::milliseconds(int64_t{1} << input_.below(18));
    send(envelope, ib, flags);
  }

  std::vector<uint8_t> message(uint8_t flags) {
    const auto attribute = static_cast<wire::CmAttribute>(0x10 + input_.below(11));
    wire::Mad mad{};
    wire::MadHeader{.transaction = wire::TransactionId{input_.below(4)}, .attribute = static_cast<uint16_t>(attribute)}
        .emit(mad.data());
    uint8_t* const body = mad.data() + wire::kMadHeaderSize;
    wire::store_be32(body, input_.below(4));
    const bool request = attribute == wire::CmAttribute::kReq || attribute == wire::CmAttribute::kSidrReq;
    if (!request) wire::store_be32(body + 4, input_.below(4));
    if (attribute == wire::CmAttribute::kReq) {
      wire::store_be64(body + 8, 0x01061d2f);
      wire::store_be24(body + 32, 2 + input_.below(4));
      body[50] = 1 << 4;
    }
    if (attribute == wire::CmAttribute::kRep) wire::store_be24(body + 12, 2 + input_.below(4));
    if (attribute == wire::CmAttribute::kDreq) wire::store_be24(body + 8, 2 + input_.below(4));
    if ((flags & kWrong) != 0) {
      for (uint32_t n = 1 + input_.below(8); n > 0; --n) {
        const uint8_t at = input_.byte();
        mad[at] = input_.byte();
      }
    }
    std::vector<uint8_t> ib(wire::kGsiPacketSize);
    wire::emit_gsi_packet(wire::Psn(0), mad, ib.data());
    return ib;
  }

  // What the attributes that were agreed on are for.
  std::vector<uint8_t> data() {
    std::vector<uint8_t> ib(wire::kBthSize + input_.below(40));
    wire::Bth{.opcode = static_cast<wire::Opcode>(input_.below(0x18)),
              .dest_qp = wire::Qpn(2 + input_.below(4)),
              .psn = wire::Psn(input_.below(8))}
        .emit(ib.data());
    return ib;
  }

  void send(const wire::Envelope& envelope, std::vector<uint8_t>& ib, uint8_t flags) {
    const size_t size = ib.size();
    ib.resize(size + wire::kIcrcSize);
    wire::store_le32(ib.data() + size, wire::icrc(envelope, std::span(ib).first(size)));
    pcapng::Record record;
    record.number = ++frames_;
    record.time = now_;
    record.frame.resize(wire::frame_header_size(envelope));
    wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), record.frame.data());
    const size_t headers = record.frame.size();
    record.frame.insert(record.frame.end(), ib.begin(), ib.end());
    record.original_length = static_cast<uint32_t>(record.frame.size());
    if ((flags & kCut) != 0) record.frame.resize(headers + input_.below(static_cast<uint32_t>(ib.size())));
    oracle_.add(record);

    dissector::Datagram datagram;
    datagram.frame = frames_;
    datagram.time = now_.time_since_epoch().count();
    datagram.source = envelope.source;
    datagram.destination = envelope.destination;
    datagram.ib = std::span<const uint8_t>(record.frame).subspan(headers);
    datagram.ib_size = static_cast<uint32_t>(ib.size());
    const dissector::Headers parsed = dissector::parse_headers(datagram.ib, datagram.ib_size);
    check(analysis_.add(datagram, parsed, true) + 1 == frames_, "each packet has its record");
  }

  void look(uint32_t index) const {
    const dissector::PacketRecord& record = analysis_.packet(index);
    if (analysis_.flow(record) != nullptr) (void)analysis_.stream(record);
    (void)analysis_.message(record);
    if (const dissector::CmRecord* const cm = analysis_.cm(record)) {
      check(cm->request_frame <= index + 1 && cm->first_frame <= index + 1, "links back lead back");
      check(cm->response_frame == 0 || (cm->response_frame > index && cm->response_frame <= frames_), "and on, on");
    }
    if (const dissector::CmExchange* const exchange = analysis_.exchange(record)) {
      check(exchange->first_frame <= index + 1 && exchange->last_frame <= frames_, "exchanges have frames");
    }
  }

  Input& input_;
  oracle::Oracle oracle_;
  dissector::Analysis analysis_;
  Time now_{std::chrono::seconds(1)};
  uint32_t frames_ = 0;
};

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::Exchange(input).run();
  return 0;
}
