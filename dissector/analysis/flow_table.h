// SPDX-License-Identifier: GPL-2.0-or-later
// The flows (all packets from one address to one QP at another) and which two of them are the two directions of a
// connection: a stream. Without a CM exchange that is found by the answers, whose PSN must be one that the other
// direction awaits, and among several by the UDP source port, which Linux and mlx5 derive from both QPNs. Used by
// Analysis.
//
// UD packets name both QPs, so their streams need no search.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "dissector/analysis/datagram.h"
#include "dissector/analysis/rate_meter.h"
#include "dissector/analysis/request_track.h"

namespace uroce::dissector {

struct FlowKey {
  static constexpr uint32_t kConnected = 0xffffffff;

  wire::IpAddress source, destination;
  uint32_t destination_qpn = 0;
  uint32_t source_qpn = kConnected;  // UD

  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};

struct FlowKeyHash {
  size_t operator()(const FlowKey& key) const;
};

struct Flow {
  Flow(const FlowKey& k, wire::Transport t) : key(k), transport(t), requests(t != wire::Transport::kUc) {}

  FlowKey key;
  wire::Transport transport;
  uint16_t source_port = 0;
  uint32_t stream = 0;
  uint32_t peer = kNone;
  uint32_t exchange = kNone;  // index into the CM exchanges: the one that made the connection
  uint32_t first_frame = 0;
  uint32_t last_frame = 0;
  uint32_t pairing_attempts = 0;
  std::vector<uint32_t> candidates{};  // that fitted all answers so far, while it has no peer
  RequestTrack requests;
  RateMeter rate;
  IpIds ip_ids;
};

class FlowTable {
 public:
  // kNone if there is none.
  uint32_t find(const FlowKey& key) const;
  uint32_t find_or_add(const FlowKey& key, wire::Transport transport, uint16_t source_port);
  // Another connection with the same addresses and QPNs begins: new flows, of a new stream, take the place of this one
  // and its peer. Returns the one for `flow`.
  uint32_t restart(uint32_t flow);
  // An answer in `flow`, which has no peer: looks for one.
  void pair_by_answer(uint32_t flow, wire::Psn psn);
  void pair_only_ones(uint32_t flow, wire::Psn psn);
  void pair(uint32_t a, uint32_t b);
  // What the CM says: a new connection, with the first PSN of each direction. Takes the place of one that had the same
  // addresses and QPNs.
  struct Made {
    uint32_t stream;  // of new_stream()
    uint32_t exchange;
  };
  void connect(const FlowKey& a, wire::Psn first_a, const FlowKey& b, wire::Psn first_b, wire::Transport transport,
               const Made& made);
  uint32_t new_stream() { return streams_++; }

  Flow& operator[](uint32_t index) { return flows_[index]; }
  const Flow& operator[](uint32_t index) const { return flows_[index]; }
  uint32_t stream_count() const { return streams_; }
  // The QPN at the source of the flow, if it is known; else FlowKey::kConnected.
  uint32_t source_qpn(uint32_t flow) const;

 private:
  struct Addresses {
    wire::IpAddress source, destination;
    friend bool operator==(const Addresses&, const Addresses&) = default;
  };
  struct AddressesHash {
    size_t operator()(const Addresses& addresses) const;
  };

  uint32_t add(const FlowKey& key, wire::Transport transport, uint16_t source_port);
  void pair_by_port(uint32_t flow);
  std::vector<uint32_t>& unpaired_towards(uint32_t flow);
  void forget_unpaired(uint32_t flow);

  std::deque<Flow> flows_;
  std::unordered_map<FlowKey, uint32_t, FlowKeyHash> by_key_;
  std::unordered_map<Addresses, std::vector<uint32_t>, AddressesHash> unpaired_;
  uint32_t streams_ = 0;
};

}  // namespace uroce::dissector
