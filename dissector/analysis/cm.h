// SPDX-License-Identifier: GPL-2.0-or-later
// What the analysis takes from the communication management (IBTA 12): a REQ and its REP name both QPs of a connection
// and the first PSN of each direction, so that the stream is known before its first packet. Used by Analysis; the
// offsets of the other messages are in plugin/cm_tree.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "dissector/analysis/flow_table.h"

namespace uroce::dissector {

enum class CmAttribute : uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
  kLap = 0x19,
  kApr = 0x1a,
};

inline constexpr uint32_t kMadHeaderSize = 24;

// The CM message in a UD packet to QP1, as far as it was captured; nothing if it is not one.
struct CmMessage {
  CmAttribute attribute;
  uint32_t at;                    // of the message behind the MAD header, in the InfiniBand bytes
  std::span<const uint8_t> body;  // from there on
};
std::optional<CmMessage> find_cm_message(const Datagram& datagram, const Headers& headers);

class CmTracker {
 public:
  void on_message(const Datagram& datagram, const CmMessage& message, FlowTable& flows);

 private:
  struct Key {
    wire::IpAddress requester;
    uint32_t comm_id;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Request {
    uint32_t qpn;
    wire::Psn responder_starts;  // the PSN that the requester asks the other side to start with
    wire::Transport transport;
    uint32_t answered_qpn = FlowKey::kConnected;  // by a REP that was seen
  };
  static constexpr size_t kMostRequests = 65536;

  std::unordered_map<Key, Request, KeyHash> requests_;
};

}  // namespace uroce::dissector
