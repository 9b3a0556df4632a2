// SPDX-License-Identifier: BSD-2-Clause
#include "tests/cm/judge.h"

#include <fstream>

#include "oracle/report.h"
#include "pcapng/pcapng_writer.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::cm::test {
namespace {

constexpr size_t kMostRecords = 100000;

std::vector<uint8_t> frame_of(const Datagram& datagram) {
  wire::Envelope envelope;
  envelope.source = datagram.source;
  envelope.destination = datagram.destination;
  envelope.source_port = 0xc000;
  envelope.hop_limit = datagram.hop_limit;
  envelope.traffic_class = datagram.traffic_class;
  const size_t headers = wire::frame_header_size(envelope);
  std::vector<uint8_t> frame(headers + wire::kGsiPacketSize + wire::kIcrcSize);
  const auto udp_length = static_cast<uint32_t>(frame.size() - headers + wire::kUdpSize);
  wire::emit_frame_headers(envelope, udp_length, frame.data());
  uint8_t* const ib = frame.data() + headers;
  wire::emit_gsi_packet(wire::Psn(0), datagram.mad, ib);
  wire::store_le32(ib + wire::kGsiPacketSize, wire::icrc(envelope, std::span(ib, wire::kGsiPacketSize)));
  return frame;
}

// Nothing was said before.
oracle::Options from_the_beginning() {
  oracle::Options options;
  options.whole = true;
  return options;
}

}  // namespace

Judge::Judge(const wire::IpAddress& address) : oracle_(from_the_beginning()) {
  oracle_.add_local(address);
}

void Judge::on_datagram(const Datagram& datagram, bool out, Time now) {
  pcapng::Record record;
  record.number = ++number_;
  record.time = now;
  record.direction = out ? pcapng::Direction::kOut : pcapng::Direction::kIn;
  record.frame = frame_of(datagram);
  oracle_.add(record);
  if (records_.size() < kMostRecords) records_.push_back(std::move(record));
}

std::string Judge::finish(Time now) {
  oracle_.finish(now);
  for (const oracle::Violation& violation : oracle_.violations()) {
    if (oracle::rule_info(violation.rule).severity != oracle::Severity::kError) continue;
    return std::to_string(oracle_.error_count()) + " violations, the first: " + oracle::format_violation(violation);
  }
  return {};
}

bool Judge::write_capture(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  pcapng::PcapngWriter writer(file, "uroce cm tests");
  writer.add_interface("host");
  for (const pcapng::Record& record : records_) writer.write(record);
  file.flush();
  return writer.ok() && file.good();
}

}  // namespace uroce::cm::test
