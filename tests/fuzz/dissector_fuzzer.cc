// SPDX-License-Identifier: BSD-2-Clause
// Any packets, in any order, to the analysis of dissector/, which has no Wireshark in it. The input is a stream of
// small decisions: from where to where, which opcode, how far the PSN moves, how many bytes of header and payload are
// given, what the capture cut off.
//
// Checked: nothing is read outside, every packet has its record, the links between records end, and what is counted as
// in flight stays in proportion to what was sent.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dissector/analysis/analysis.h"
#include "dissector/analysis/batch.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce::fuzz {

namespace {

using namespace dissector;

class Capture {
 public:
  explicit Capture(Input& input) : input_(input) {}

  // Valid until the next one.
  Datagram next() {
    const uint8_t way = input_.byte(), how = input_.byte();
    bytes_.assign(kIpAndUdp + wire::kBthSize + wire::kIcrcSize + input_.below(80), 0);
    uint8_t* const bth = bytes_.data() + kIpAndUdp;
    bth[0] = input_.byte();
    if (way & 0x10) bth[1] = input_.byte();
    wire::store_be24(bth + 5, 1 + (way >> 1 & 3));
    uint32_t& psn = psns_[way & 7];
    psn = way & 0x20 ? input_.dword() : psn + static_cast<uint32_t>(static_cast<int8_t>(input_.byte()) / 2);
    wire::store_be24(bth + 9, psn & wire::kMask24);
    input_.fill(std::span(bytes_).subspan(kIpAndUdp + wire::kBthSize).first(input_.below(68) % ib_rest()));

    Datagram d;
    d.frame = ++frame_;
    d.time = time_ += how & 1 ? 1000 : how & 2 ? -5000 : 300'000;
    d.source = address(way & 1 ? 1 : 2);
    d.destination = address(way & 1 ? 2 : way & 0x40 ? 3 : 1);
    d.source_port = how & 4 ? 0xc000 : 0xd000;
    d.has_ip_id = (how & 8) == 0;
    d.ip_id = how & 0x10 ? static_cast<uint16_t>(ip_id_ - (how >> 5)) : how & 0x20 ? 0 : ++ip_id_;
    d.traffic_class = how & 0x40 ? 3 : 2;
    d.ib = std::span<const uint8_t>(bytes_).subspan(kIpAndUdp);
    d.ib_size = static_cast<uint32_t>(d.ib.size());
    if (way & 0x80) d.ib = d.ib.first(input_.byte() % d.ib.size());
    bytes_[0] = 0x45;
    if (how & 0x80) d.ip = std::span<const uint8_t>(bytes_).first(wire::kIpv4Size);
    return d;
  }

 private:
  static constexpr size_t kIpAndUdp = wire::kIpv4Size + wire::kUdpSize;

  static wire::IpAddress address(uint8_t host) {
    const uint8_t four[4] = {192, 0, 2, host};
    return wire::IpAddress::v4(four);
  }
  uint32_t ib_rest() const { return static_cast<uint32_t>(bytes_.size() - kIpAndUdp - wire::kBthSize) + 1; }

  Input& input_;
  std::vector<uint8_t> bytes_;
  uint32_t psns_[8] = {0, 0, 0xfffff0, 0xfffff0, 7, 7, 0, 0};
  uint32_t frame_ = 0;
  int64_t time_ = 1'700'000'000'000'000'000;
  uint16_t ip_id_ = 0;
};

// What the plugin shows at later passes.
void look(const Analysis& analysis, uint32_t index, const Headers& headers, uint32_t frames) {
  const PacketRecord& record = analysis.packet(index);
  const Flow* const flow = analysis.flow(record);
  check(flow == nullptr || (flow->first_frame <= frames && flow->last_frame <= frames), "a flow has frames");
  (void)analysis.source_qpn(record);
  (void)analysis.cnp(record, headers);
  check(record.related <= frames && record.answer <= frames, "links lead to frames");
  if (const MessageRecord* const message = analysis.message(record)) {
    check(message->first_frame <= frames && message->last_frame <= frames, "messages have frames");
    check(message->packets <= frames, "no more packets than frames");
  }
  uint32_t completed = 0;
  analysis.for_completed(record,
                         [&](const MessageRecord&) { check(++completed <= frames, "messages come to an end"); });
}

void analyse(Input input) {
  Capture capture(input);
  Analysis analysis;
  std::vector<Headers> all;
  uint64_t payload = 0;
  while (!input.empty() && all.size() < 3000) {
    const Datagram datagram = capture.next();
    const Headers headers = parse_headers(datagram.ib, datagram.ib_size);
    check(headers.parsed <= datagram.ib.size(), "headers lie in the packet");
    for (const BatchPacket& packet : packets_of_batch(datagram)) {
      check(packet.offset + packet.datagram.ib_size <= datagram.ib.size(), "packets of a batch lie in it");
    }
    payload += headers.payload_size;
    const uint32_t index = analysis.add(datagram, headers, !datagram.ip.empty());
    check(index == all.size(), "each packet has its record");
    check(analysis.packet(index).bytes_in_flight <= payload, "no more bytes in flight than were sent");
    all.push_back(headers);
  }
  const auto frames = static_cast<uint32_t>(all.size());
  for (uint32_t i = 0; i < frames; ++i) {
    check(analysis.of_frame(i + 1).first == i && analysis.of_frame(i + 1).last == i + 1, "frames lead to records");
    look(analysis, i, all[i], frames);
  }
}

}  // namespace

}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::fuzz::analyse(uroce::fuzz::Input(data, size));
  return 0;
}
