// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/analysis.h"

#include <algorithm>

#include "wire/ip_udp.h"

namespace uroce::dissector {
namespace {

using wire::Transport;

FlowKey key_of(const Datagram& datagram, const Headers& headers) {
  FlowKey key{datagram.source, datagram.destination, headers.bth.dest_qp.value()};
  if (headers.info->transport == Transport::kUd) key.source_qpn = headers.deth.source_qp.value();
  return key;
}

}  // namespace

uint32_t Analysis::add(const Datagram& datagram, const Headers& headers, bool check) {
  const auto index = static_cast<uint32_t>(store_.packets.size());
  PacketRecord& record = store_.packets.emplace_back();
  record.frame = datagram.frame;
  const bool trusted = verify(datagram, check, record);
  if (!headers.has_bth || !headers.info->known) return index;
  if (!headers.usable() || !trusted) {
    record.flow = flows_.find(key_of(datagram, headers));
  } else {
    analyse(datagram, headers, index);
  }
  return index;
}

// A packet with a bad ICRC or a bad IP checksum is one that nobody received, and its numbers may be the ones that are
// damaged: the analysis goes on as if it had been lost. Unless most are bad: then whoever captured or translated
// addresses changed them.
bool Analysis::verify(const Datagram& datagram, bool check, PacketRecord& record) {
  if (check) {
    const IcrcCheck icrc = check_icrc(datagram);
    record.icrc = icrc.status;
    record.expected_icrc = icrc.expected;
  }
  const bool v4 = datagram.ip.size() == wire::kIpv4Size;
  const bool bad_ip = v4 && !wire::Ipv4View::at(datagram.ip.data()).checksum_ok();
  record.findings.set(Finding::kBadIcrc, record.icrc == IcrcStatus::kBad);
  record.findings.set(Finding::kBadIpChecksum, bad_ip);
  const bool trust_ip = ip_checksums_.trust(v4 && !bad_ip, bad_ip);
  return icrcs_.trust(record.icrc == IcrcStatus::kGood, record.icrc == IcrcStatus::kBad) && trust_ip;
}

void Analysis::analyse(const Datagram& datagram, const Headers& headers, uint32_t index) {
  const wire::OpcodeInfo& info = *headers.info;
  const uint32_t flow = flows_.find_or_add(key_of(datagram, headers), info.transport, datagram.source_port);
  const Subject subject{datagram, headers, store_.packets[index], index, flows_[flow].ip_ids};
  if (flows_[flow].transport == Transport::kCnp && info.transport != Transport::kCnp) {
    flows_[flow].transport = info.transport;
    flows_[flow].requests = RequestTrack(info.transport != Transport::kUc);
  }
  if ((subject.datagram.traffic_class & wire::kEcnMask) == wire::kEcnCe) {
    subject.record.findings.add(Finding::kCongestionMarked);
  }
  subject.record.flow = flow;
  if (info.transport == Transport::kCnp) {
    analyse_cnp(subject, flow);
  } else if (info.transport != Transport::kUd) {
    analyse_connected(subject, flow);
  } else if (const auto message = find_cm_message(datagram, headers)) {
    cm_.on_message(subject, *message, store_, flows_);
  }
  Flow& seen = flows_[subject.record.flow];
  if (seen.first_frame == 0) seen.first_frame = subject.datagram.frame;
  seen.last_frame = subject.datagram.frame;
  const bool numbered = info.request && subject.record.has_psn;
  seen.ip_ids.note(datagram, headers.bth, numbered ? subject.record.relative_psn : IpIds::kNoPsn);
  if (info.transport == Transport::kCnp) return;
  seen.rate.on_packet(
      subject.now(), subject.datagram.ib_size, store_.cnps, [this](uint32_t record, const CnpRecord& cnp) {
        const bool cut = cnp.rate_before > 0 && cnp.rate_after > 0 && cnp.rate_after < 0.9 * cnp.rate_before;
        if (cut) store_.packets[record].findings.add(Finding::kRateCut);
      });
}

void Analysis::analyse_connected(const Subject& subject, uint32_t flow) {
  if (subject.headers.info->request) {
    if (!flows_[flow].requests.fits(subject.headers.bth.psn)) {
      flow = flows_.restart(flow);
      subject.record.flow = flow;
      subject.record.findings.add(Finding::kPsnJump);
    }
    flows_[flow].requests.on_request(subject, store_);
    return share_path_mtu(flow);
  }
  if (flows_[flow].peer == kNone) flows_.pair_by_answer(flow, subject.headers.bth.psn);
  if (flows_[flow].peer == kNone) return;
  flows_[flows_[flow].peer].requests.on_answer(subject, store_);
  share_path_mtu(flow);
}

void Analysis::share_path_mtu(uint32_t flow) {
  if (flows_[flow].peer == kNone) return;
  RequestTrack& own = flows_[flow].requests;
  RequestTrack& peer = flows_[flows_[flow].peer].requests;
  if (own.path_mtu() == peer.path_mtu()) return;
  own.learn_path_mtu(peer.path_mtu(), store_);
  peer.learn_path_mtu(own.path_mtu(), store_);
}

// It tells the sender of the other direction to slow down.
void Analysis::analyse_cnp(const Subject& subject, uint32_t flow) {
  subject.record.findings.add(Finding::kCnp);
  subject.record.message = static_cast<uint32_t>(store_.cnps.size());
  CnpRecord& cnp = store_.cnps.emplace_back();
  if (flows_[flow].peer == kNone) return;
  flows_[flows_[flow].peer].rate.on_cnp(subject.index, subject.record.message, cnp);
}

Analysis::Range Analysis::of_frame(uint32_t frame) const {
  const auto first = std::lower_bound(store_.packets.begin(), store_.packets.end(), frame,
                                      [](const PacketRecord& record, uint32_t f) { return record.frame < f; });
  auto last = first;
  while (last != store_.packets.end() && last->frame == frame) ++last;
  return {static_cast<uint32_t>(first - store_.packets.begin()), static_cast<uint32_t>(last - store_.packets.begin())};
}

const MessageRecord* Analysis::message(const PacketRecord& record) const {
  if (record.message == kNone || record.findings.has(Finding::kCnp) || is_cm(record)) return nullptr;
  return &store_.messages[record.message];
}

const CmRecord* Analysis::cm(const PacketRecord& record) const {
  return record.message != kNone && is_cm(record) ? &store_.cm[record.message] : nullptr;
}

const CmExchange* Analysis::exchange(const PacketRecord& record) const {
  if (const CmRecord* const message = cm(record)) {
    return message->exchange == kNone ? nullptr : &store_.exchanges[message->exchange];
  }
  const Flow* const own = flow(record);
  return own == nullptr || own->exchange == kNone ? nullptr : &store_.exchanges[own->exchange];
}

uint32_t Analysis::stream(const PacketRecord& record) const {
  const CmExchange* const made_by = exchange(record);
  return made_by != nullptr ? made_by->stream : flow(record)->stream;
}

// Of UD no other messages are followed.
bool Analysis::is_cm(const PacketRecord& record) const {
  const Flow* const own = flow(record);
  return own != nullptr && own->transport == Transport::kUd;
}

const CnpRecord* Analysis::cnp(const PacketRecord& record, const Headers& headers) const {
  if (record.message == kNone || !headers.has_bth || headers.info->transport != Transport::kCnp) return nullptr;
  return &store_.cnps[record.message];
}

}  // namespace uroce::dissector
