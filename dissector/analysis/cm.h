// SPDX-License-Identifier: GPL-2.0-or-later
// The communication management (IBTA 12) in a capture: which messages belong to one exchange, which answers which, and
// what was said again. A REQ and its REP name both QPs of a connection and the first PSN of each direction, so that the
// stream is known before its first packet, and is named by the service that was asked for. Used by Analysis; the bytes
// of the messages are shown by plugin/cm_tree.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "dissector/analysis/flow_table.h"
#include "wire/cm_message.h"
#include "wire/mad.h"

namespace uroce::dissector {

// The CM message in a UD packet to QP1, as far as it was captured; nothing if it is not one.
struct CmMessage {
  wire::CmAttribute attribute;
  uint64_t transaction;
  uint32_t at;                    // of the message behind the MAD header, in the InfiniBand bytes
  std::span<const uint8_t> body;  // from there on
};
std::optional<CmMessage> find_cm_message(const Datagram& datagram, const Headers& headers);

// The most recent kMostIds communication ids and requests are known; older ones are not found any more. An exchange
// lasts as long as the capture is open: about 250 bytes for each REQ, SIDR_REQ or DREQ of an unknown connection.
class CmTracker {
 public:
  // Fills in the record of the packet, and a CmRecord that it leads to.
  void on_message(const Subject& subject, const CmMessage& message, Store& store, FlowTable& flows);

 private:
  struct Key {
    wire::IpAddress owner, other;
    uint32_t id;
    bool sidr;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  // The message under analysis.
  struct Current {
    const Subject& subject;
    const CmMessage& message;
    Store& store;
    FlowTable& flows;
    uint32_t cm;  // its CmRecord
  };
  static constexpr size_t kMostIds = 131072;

  uint32_t find(const wire::IpAddress& owner, const wire::IpAddress& other, uint32_t id, bool sidr) const;
  void name(const wire::IpAddress& owner, const wire::IpAddress& other, uint32_t id, bool sidr, uint32_t exchange);
  uint32_t begin(const Current& now, bool asked);
  uint32_t exchange_of(const Current& now);
  uint32_t request(const Current& now);
  uint32_t answered(const Current& now);
  void connect(const Current& now, CmExchange& exchange);
  static void ask(const Current& now, CmQuestion& question);
  static void answer(const Current& now, CmQuestion& question);

  std::unordered_map<Key, uint32_t, KeyHash> ids_;
};

}  // namespace uroce::dissector
