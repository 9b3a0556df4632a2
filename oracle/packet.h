// SPDX-License-Identifier: BSD-2-Clause
// A record as the judges see it: parsed, with what they compare. And the rules that hold for any packet, whatever it
// belongs to. Called by Oracle for every record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/rules.h"
#include "pcapng/record.h"
#include "wire/packet.h"

namespace uroce::oracle {

// What of a request its place in the sequence of messages depends on. Light: judges keep it as long as it is
// outstanding.
struct Request {
  wire::Psn psn;
  const wire::OpcodeInfo* info = nullptr;
  wire::Opcode opcode{};
  bool solicited = false;
  bool ack_request = false;
  uint32_t payload_size = 0;
  uint64_t va = 0;  // of RETH or AtomicETH
  uint32_t rkey = 0;
  uint32_t length = 0;  // of the RETH
  uint64_t number = 0;  // of the record
  Time time{};

  bool is(wire::Operation operation) const { return info->operation == operation; }
  bool is_atomic() const { return is(wire::Operation::kCompareSwap) || is(wire::Operation::kFetchAdd); }
  // Answered by a response of its own and not by any later acknowledgement: READ, atomics, FLUSH, ATOMIC WRITE.
  bool has_own_response() const { return !is(wire::Operation::kSend) && !is(wire::Operation::kWrite); }
  // Takes a receive request from the responder's queue when it arrives: the last packet of a WRITE with immediate data,
  // any packet of a SEND.
  bool consumes_receive() const {
    return is(wire::Operation::kSend) || (is(wire::Operation::kWrite) && info->has_immdt);
  }
};

enum class PacketState : uint8_t {
  kForeign,   // not RoCE v2
  kUnusable,  // RoCE v2, but no endpoint may accept it
  kCut,       // the capture cut it within its headers
  kUsable,
};

class Packet {
 public:
  // Parses; the record must outlive the packet's use. Reuses memory from call to call.
  PacketState parse(const pcapng::Record& record);

  // What an endpoint must not send, in any packet: called for outbound ones that are not foreign. Appends to `out`.
  struct Finding {
    Rule rule;
    std::string text;
  };
  void judge(std::vector<Finding>& out) const;

  const pcapng::Record& record() const { return *record_; }
  uint64_t number() const { return record_->number; }
  Time time() const { return record_->time; }
  const wire::Envelope& envelope() const { return roce_.envelope; }
  const wire::Packet& wire() const { return packet_; }
  const wire::Bth& bth() const { return packet_.bth; }
  const wire::OpcodeInfo& info() const { return *packet_.info; }
  bool has_bth() const { return has_bth_; }
  uint32_t payload_size() const { return static_cast<uint32_t>(packet_.payload.size()); }
  bool whole() const { return whole_; }
  wire::ParseError error() const { return error_; }

  Request request() const;
  // Of everything behind the BTH but the ICRC: equal for equal requests. Only of whole packets.
  uint32_t digest() const;

 private:
  const pcapng::Record* record_ = nullptr;
  pcapng::RocePart roce_;
  wire::Packet packet_;
  wire::ParseError error_{};
  wire::FrameError frame_error_{};
  bool has_bth_ = false;
  bool whole_ = false;
  bool icrc_ok_ = false;
  std::vector<uint8_t> padded_;  // a cut packet, filled up to its length on the wire
};

}  // namespace uroce::oracle
