// SPDX-License-Identifier: BSD-2-Clause
// Exchanges of the connection manager made by hand, as the judged host (10.0.0.1) and its peer (10.0.0.2) send them.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "tests/oracle/trace_builder.h"
#include "wire/cm_message.h"
#include "wire/cma_header.h"
#include "wire/mad.h"

namespace uroce::oracle {

using wire::CommId;

// A capture of whole exchanges. Every message is as it should be unless a test spoils it.
class CmTrace {
 public:
  static constexpr CommId kOurs{0x1001}, kTheirs{0x2002};
  static constexpr uint32_t kOurQp = 0x101, kTheirQp = 0x202;
  static constexpr uint64_t kTransaction = 7, kDreqTransaction = 8;

  explicit CmTrace(bool whole = true) : oracle(options(whole)) { oracle.add_local(address(1)); }

  // Sent by the host or its peer, as the one that asks; ids as they are unless given.
  wire::Req req(bool ours = true) const {
    wire::Req m;
    m.local_id = ours ? kOurs : kTheirs;
    m.service_id = wire::service_id(wire::PortSpace::kTcp, 7471);
    m.ca_guid = wire::Guid{ours ? 1u : 2u};
    m.qpn = wire::Qpn(ours ? kOurQp : kTheirQp);
    m.responder_resources = 4;
    m.initiator_depth = 3;
    m.remote_response_timeout = 20;
    m.local_response_timeout = 20;
    m.starting_psn = wire::Psn(500);
    m.retry_count = 7;
    m.rnr_retry = 6;
    m.pkey = 0xffff;
    m.path_mtu = 1;
    m.max_cm_retries = 3;
    m.primary = {.local_lid = 0xffff,
                 .remote_lid = 0xffff,
                 .local_gid = address(ours ? 1 : 2),
                 .remote_gid = address(ours ? 2 : 1),
                 .hop_limit = 64,
                 .ack_timeout = 19};
    wire::CmaHeader{.source_port = 40000, .source = address(ours ? 1 : 2), .destination = address(ours ? 2 : 1)}.emit(
        m.private_data.data());
    return m;
  }
  wire::Rep rep(bool ours = true) const {
    wire::Rep m;
    set_ids(m, ours);
    m.qpn = wire::Qpn(ours ? kOurQp : kTheirQp);
    m.starting_psn = wire::Psn(100);
    m.responder_resources = 3;
    m.initiator_depth = 4;
    m.rnr_retry = 5;
    m.ca_guid = wire::Guid{ours ? 1u : 2u};
    return m;
  }
  template <class Message>
  Message with_ids(bool ours = true) const {
    Message m;
    set_ids(m, ours);
    return m;
  }
  wire::Mra mra(wire::CmAnswered message, bool ours = true, uint8_t timeout = 24) const {
    auto m = with_ids<wire::Mra>(ours);
    m.message = message;
    m.service_timeout = timeout;
    return m;
  }
  wire::Rej rej(wire::CmAnswered message, wire::RejReason reason = wire::RejReason::kConsumer, bool ours = true) const {
    auto m = with_ids<wire::Rej>(ours);
    m.message = message;
    m.reason = reason;
    return m;
  }
  wire::Dreq dreq(bool ours = true) const {
    auto m = with_ids<wire::Dreq>(ours);
    m.remote_qpn = wire::Qpn(ours ? kTheirQp : kOurQp);
    return m;
  }
  wire::SidrReq sidr_req(bool ours = true) const {
    wire::SidrReq m;
    m.request_id = ours ? kOurs : kTheirs;
    m.pkey = 0xffff;
    m.service_id = wire::service_id(wire::PortSpace::kUdp, 7471);
    wire::CmaHeader{.source = address(ours ? 1 : 2), .destination = address(ours ? 2 : 1)}.emit(m.private_data.data());
    return m;
  }
  wire::SidrRep sidr_rep(bool ours = true) const {
    wire::SidrRep m;
    m.request_id = ours ? kTheirs : kOurs;
    m.service_id = wire::service_id(wire::PortSpace::kUdp, 7471);
    m.qpn = wire::Qpn(ours ? kOurQp : kTheirQp);
    return m;
  }

  // Each returns the number of its record, 1 us after the one before.
  uint64_t out(const wire::CmMessage& message, uint64_t transaction = 0) { return add(message, transaction, true); }
  uint64_t in(const wire::CmMessage& message, uint64_t transaction = 0) { return add(message, transaction, false); }
  uint64_t rc(const Spec& spec, bool out) { return add_frame(ib_bytes(spec, wire::Qpn(spec.dest_qp)), out); }
  void wait(Duration duration) { now += duration; }
  // Of the next message.
  std::function<void(wire::Mad&)> spoil_mad{};
  std::function<void(std::vector<uint8_t>&)> spoil_packet{};

  // The host asks, or is asked, up to here.
  void connect() {
    out(req());
    in(rep(false));
    out(with_ids<wire::Rtu>());
  }
  void accept() {
    in(req(false));
    out(rep());
    in(with_ids<wire::Rtu>(false));
  }

  std::string found() {
    if (!finished_) oracle.finish(now);
    finished_ = true;
    std::string all;
    for (const Violation& violation : oracle.violations()) {
      all +=
          (all.empty() ? "" : " ") + std::string(rule_info(violation.rule).id) + "@" + std::to_string(violation.packet);
    }
    return all;
  }
  std::string outcome(size_t index = 0) const { return oracle.cm_summary().at(index).outcome; }

  Oracle oracle;
  Time now{seconds(100)};
  std::vector<pcapng::Record> records;

 private:
  static Options options(bool whole) {
    Options o;
    o.whole = whole;
    return o;
  }
  template <class Message>
  static void set_ids(Message& m, bool ours) {
    m.local_id = ours ? kOurs : kTheirs;
    m.remote_id = ours ? kTheirs : kOurs;
  }
  static bool is_disconnect(const wire::CmMessage& message) {
    return std::holds_alternative<wire::Dreq>(message) || std::holds_alternative<wire::Drep>(message);
  }

  uint64_t add(const wire::CmMessage& message, uint64_t transaction, bool out) {
    const uint64_t usual = is_disconnect(message) ? kDreqTransaction : kTransaction;
    wire::Mad mad = wire::emit_cm({.transaction = wire::TransactionId{transaction != 0 ? transaction : usual},
                                   .modifier = 0,
                                   .message = message});
    if (spoil_mad) spoil_mad(mad);
    spoil_mad = nullptr;
    std::vector<uint8_t> ib(wire::kGsiPacketSize);
    wire::emit_gsi_packet(wire::Psn(0), mad, ib.data());
    return add_frame(std::move(ib), out);
  }
  uint64_t add_frame(std::vector<uint8_t> ib, bool out) {
    if (spoil_packet) spoil_packet(ib);
    spoil_packet = nullptr;
    wire::Envelope envelope;
    envelope.source = address(out ? 1 : 2);
    envelope.destination = address(out ? 2 : 1);
    envelope.source_port = 0xc000;
    ib.resize(ib.size() + wire::kIcrcSize);
    const auto covered = std::span(ib).first(ib.size() - wire::kIcrcSize);
    wire::store_le32(&ib[covered.size()], wire::icrc(envelope, covered));
    pcapng::Record record;
    record.number = records.size() + 1;
    record.time = now += microseconds(1);
    record.direction = out ? pcapng::Direction::kOut : pcapng::Direction::kIn;
    record.frame.resize(wire::frame_header_size(envelope));
    wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), record.frame.data());
    record.frame.insert(record.frame.end(), ib.begin(), ib.end());
    oracle.add(record);
    records.push_back(std::move(record));
    return records.size();
  }

  bool finished_ = false;
};

}  // namespace uroce::oracle
