// SPDX-License-Identifier: GPL-2.0-or-later
// The analysis of a whole capture, one packet after the other in the order of the file. The plugin calls add() at the
// first pass and looks records up later.
//
// Time: constant per packet, but for the binary search among the requests of one connection and among the packets that
// its sender has sent. Memory: 80 bytes per RoCE v2 packet, 48 per message, 16 per CNP, 32 per CM message and 264 per
// exchange of these, all bounded by the number of packets; and per flow about 2 kB plus 80 bytes for each request that
// is not answered or among the last 2048 that are, at most 16384 (RequestTrack), and 16 bytes for each of the last
// 16384 packets if their IP IDs count up (IpIds).
#pragma once

#include <cstdint>

#include "dissector/analysis/cm.h"
#include "dissector/analysis/datagram.h"
#include "dissector/analysis/flow_table.h"
#include "dissector/analysis/record.h"

namespace uroce::dissector {

class Analysis {
 public:
  // check_icrc: else no ICRC is computed. Returns the index of the packet's record.
  uint32_t add(const Datagram& datagram, const Headers& headers, bool check_icrc);

  // The records of a frame: [first, last). More than one if it carries several datagrams.
  struct Range {
    uint32_t first, last;
  };
  Range of_frame(uint32_t frame) const;

  const PacketRecord& packet(uint32_t index) const { return store_.packets[index]; }
  const Flow* flow(const PacketRecord& record) const { return record.flow == kNone ? nullptr : &flows_[record.flow]; }
  const MessageRecord* message(const PacketRecord& record) const;
  // Calls each(MessageRecord) for every message that this answer completes, the last one first.
  template <class Each>
  void for_completed(const PacketRecord& record, Each each) const {
    for (uint32_t m = record.completed; m != kNone; m = store_.messages[m].also) each(store_.messages[m]);
  }
  const CnpRecord* cnp(const PacketRecord& record, const Headers& headers) const;
  // Null unless the packet is a message of the communication management.
  const CmRecord* cm(const PacketRecord& record) const;
  // That it belongs to, or that has made its connection; null if that was not captured.
  const CmExchange* exchange(const PacketRecord& record) const;
  // Of a record with a flow. The messages that make a connection have its number.
  uint32_t stream(const PacketRecord& record) const;
  uint32_t source_qpn(const PacketRecord& record) const {
    return record.flow == kNone ? FlowKey::kConnected : flows_.source_qpn(record.flow);
  }
  const Flow* peer(const PacketRecord& record) const {
    const Flow* const own = flow(record);
    return own == nullptr || own->peer == kNone ? nullptr : &flows_[own->peer];
  }

  static_assert(sizeof(PacketRecord) <= 80 && sizeof(MessageRecord) <= 48 && sizeof(CnpRecord) <= 16 &&
                sizeof(CmRecord) <= 32 && sizeof(CmExchange) <= 264);

 private:
  void analyse(const Datagram& datagram, const Headers& headers, uint32_t index);
  void analyse_connected(const Subject& subject, uint32_t flow);
  void share_path_mtu(uint32_t flow);
  void analyse_cnp(const Subject& subject, uint32_t flow);
  bool is_cm(const PacketRecord& record) const;
  bool verify(const Datagram& datagram, bool check_icrc, PacketRecord& record);

  Store store_;
  FlowTable flows_;
  CmTracker cm_;
  // How many packets had a checksum that was right, and how many a wrong one.
  struct Checksums {
    static constexpr uint64_t kEnough = 8;
    uint64_t good = 0, bad = 0;
    bool trust(bool is_good, bool is_bad) {
      good += is_good;
      const bool trusted = !is_bad || (bad > good && bad >= kEnough);
      bad += is_bad;
      return trusted;
    }
  };
  Checksums icrcs_, ip_checksums_;
};

}  // namespace uroce::dissector
