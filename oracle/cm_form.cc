// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/cm_form.h"

#include <algorithm>
#include <cinttypes>

#include "oracle/text.h"
#include "wire/bytes.h"
#include "wire/cma_header.h"
#include "wire/mad.h"

namespace uroce::oracle {
namespace {

using wire::CommId;
using wire::Qpn;

constexpr uint16_t kClassPortInfo = 1;  // an attribute of every class: not the connection manager's
constexpr uint16_t kNoLid = 0xffff;
constexpr uint16_t kMostReason = 35;

bool names_a_qp(Qpn qpn) {
  return qpn.value() > wire::kGsiQpn.value();
}

// The fields of a message that a host sends, one function for each kind.
class FieldJudge {
 public:
  FieldJudge(const Packet& packet, std::vector<Packet::Finding>& out) : packet_(packet), out_(out) {}

  void operator()(const wire::Req& m) const {
    id(m.local_id);
    const bool xrc = m.transport == wire::CmTransport::kExtended;
    expect(names_a_qp(m.qpn), text("REQ: QPN 0x%x", m.qpn.value()));
    expect(m.path_mtu >= 1 && m.path_mtu <= 5, text("REQ: path MTU code %u", m.path_mtu));
    expect(m.transport != wire::CmTransport::kRd, "REQ: transport RD");
    expect(m.extended_transport == (xrc ? wire::kExtendedTransportXrc : 0),
           text("REQ: extended transport %u", m.extended_transport));
    expect(m.pkey == packet_.bth().pkey, text("REQ: P_Key 0x%04x", m.pkey));
    expect(m.ca_guid != wire::Guid{}, "REQ: no CA GUID");
    expect(m.alternate == wire::ReqPath{}, "REQ: an alternate path");
    path(m.primary);
    if (!is_ip_service(m.service_id)) return;
    names(wire::CmaHeader::parse(m.private_data).has_value(), "REQ");
  }
  void operator()(const wire::Mra& m) const {
    id(m.local_id);
    id(m.remote_id);
    expect(m.message <= wire::CmAnswered::kOther, text("MRA: message %u", static_cast<unsigned>(m.message)));
  }
  void operator()(const wire::Rej& m) const {
    const auto reason = static_cast<unsigned>(m.reason);
    reject(m.message <= wire::CmAnswered::kOther, text("message %u", static_cast<unsigned>(m.message)));
    reject(reason >= 1 && reason <= kMostReason, text("reason %u", reason));
    reject(m.info_length <= m.additional_info.size(), text("%u bytes of additional information", m.info_length));
    const size_t length = std::min<size_t>(m.info_length, m.additional_info.size());
    reject(std::all_of(m.additional_info.begin() + static_cast<ptrdiff_t>(length), m.additional_info.end(),
                       [](uint8_t byte) { return byte == 0; }),
           "additional information behind its length");
    if (m.reason != wire::RejReason::kTimeout) return;
    reject(m.info_length == 8, text("reason timeout: %u bytes instead of the CA GUID", m.info_length));
    reject(m.local_id != CommId{}, "reason timeout without an id of its sender");
  }
  void operator()(const wire::Rep& m) const {
    id(m.local_id);
    id(m.remote_id);
    // XRC has it in the place of the EE context.
    expect(names_a_qp(m.qpn) || (m.qpn.value() == 0 && names_a_qp(Qpn(m.eecn))), text("REP: QPN 0x%x", m.qpn.value()));
    expect(m.ca_guid != wire::Guid{}, "REP: no CA GUID");
    expect(m.failover_accepted <= 2, text("REP: failover accepted %u", m.failover_accepted));
  }
  void operator()(const wire::Rtu& m) const {
    id(m.local_id);
    id(m.remote_id);
  }
  void operator()(const wire::Dreq& m) const {
    id(m.local_id);
    id(m.remote_id);
    expect(names_a_qp(m.remote_qpn), text("DREQ: QPN 0x%x", m.remote_qpn.value()));
  }
  void operator()(const wire::Drep&) const {}  // to whatever ids a DREQ has
  void operator()(const wire::SidrReq& m) const {
    id(m.request_id);
    expect(m.pkey == packet_.bth().pkey, text("SIDR_REQ: P_Key 0x%04x", m.pkey));
    if (is_ip_service(m.service_id)) names(wire::CmaHeader::parse(m.private_data).has_value(), "SIDR_REQ");
  }
  void operator()(const wire::SidrRep& m) const {
    const auto status = static_cast<unsigned>(m.status);
    add(status <= 5, Rule::kCmSidr, text("status %u", status));
    add(m.status != wire::SidrStatus::kOk || names_a_qp(m.qpn), Rule::kCmSidr,
        text("valid, with QPN 0x%x", m.qpn.value()));
    add(m.info_length <= m.additional_info.size(), Rule::kCmSidr,
        text("%u bytes of additional information", m.info_length));
  }
  void operator()(const wire::Lap& m) const { id(m.local_id); }
  void operator()(const wire::Apr&) const {}

 private:
  void add(bool right, Rule rule, std::string what) const {
    if (!right) out_.push_back({rule, std::move(what)});
  }
  void expect(bool right, std::string what) const { add(right, Rule::kCmField, std::move(what)); }
  void reject(bool right, std::string what) const { add(right, Rule::kCmReject, std::move(what)); }
  void id(CommId id) const { add(id != CommId{}, Rule::kCmId, "communication id 0"); }
  void names(bool right, const char* message) const {
    add(right, Rule::kCmNames, text("%s: no CMA header of version 0 with IPv4 or IPv6", message));
  }

  // RoCE v2: GIDs are the addresses of the packet, and there are no LIDs. Who cannot reach behind a router (hop limit
  // 0 or 1) may put any LIDs.
  void path(const wire::ReqPath& path) const {
    expect(path.local_gid == packet_.envelope().source, "REQ: local GID " + path.local_gid.text());
    expect(path.remote_gid == packet_.envelope().destination, "REQ: remote GID " + path.remote_gid.text());
    expect(path.hop_limit > 0, "REQ: hop limit 0");
    if (path.hop_limit <= 1) return;
    expect(path.local_lid == kNoLid && path.remote_lid == kNoLid,
           text("REQ: LIDs 0x%04x, 0x%04x", path.local_lid, path.remote_lid));
    expect(!path.subnet_local, text("REQ: subnet local, with hop limit %u", path.hop_limit));
  }

  static bool is_ip_service(wire::ServiceId id) {
    return wire::port_space_name(id) != nullptr && wire::port_space(id) != wire::PortSpace::kIb;
  }

  const Packet& packet_;
  std::vector<Packet::Finding>& out_;
};

// What holds for any packet between two QP1.
void judge_packet(const Packet& packet, std::vector<Packet::Finding>& out) {
  const auto wrong = [&](std::string what) { out.push_back({Rule::kCmPacket, std::move(what)}); };
  const wire::Packet& p = packet.wire();
  if (p.bth.opcode != wire::Opcode::kUdSendOnly) wrong(std::string("opcode ") + p.info->name);
  if (p.deth.source_qp != wire::kGsiQpn) wrong(text("from QP 0x%x", p.deth.source_qp.value()));
  if (p.deth.qkey != wire::kGsiQkey) wrong(text("Q_Key 0x%08" PRIx32, p.deth.qkey));
  if (p.bth.pkey != wire::Bth::kDefaultPkey) wrong(text("P_Key 0x%04x", p.bth.pkey));
  if (p.payload.size() != wire::kMadSize) wrong(text("%zu bytes", p.payload.size()));
}

bool may_have_modifier(wire::CmAttribute attribute) {
  using enum wire::CmAttribute;
  return attribute == kReq || attribute == kRep || attribute == kSidrReq || attribute == kSidrRep;
}

void judge_header(std::span<const uint8_t> mad, std::vector<Packet::Finding>& out) {
  const auto wrong = [&](std::string what) { out.push_back({Rule::kCmHeader, std::move(what)}); };
  const wire::MadHeader header = wire::MadHeader::parse(wire::MadHeaderView::at(mad.data()));
  const auto attribute = static_cast<wire::CmAttribute>(header.attribute);
  if (header.base_version != wire::kMadBaseVersion) wrong(text("base version %u", header.base_version));
  if (header.class_version != wire::kMadClassVersionCm) wrong(text("class version %u", header.class_version));
  if (header.method != wire::kMadMethodSend) wrong(text("method %u", header.method));
  if (header.status != 0) wrong(text("status 0x%04x", header.status));
  if (wire::cm_message_name(attribute) == nullptr) wrong(text("attribute 0x%04x", header.attribute));
  if (header.modifier != 0 && !may_have_modifier(attribute)) wrong(text("modifier 0x%08" PRIx32, header.modifier));
  if (wire::load_be16(mad.data() + 6) != 0 || wire::load_be16(mad.data() + 18) != 0) {
    out.push_back({Rule::kCmReserved, "in the MAD's header"});
  }
}

// What the message's layout does not name.
void judge_reserved(std::span<const uint8_t> mad, const wire::CmMad& message, std::vector<Packet::Finding>& out) {
  const wire::Mad plain = wire::emit_cm(message);
  const auto differs =
      std::mismatch(mad.begin() + wire::kMadHeaderSize, mad.end(), plain.begin() + wire::kMadHeaderSize).first;
  if (differs == mad.end()) return;
  out.push_back({Rule::kCmReserved, text("%s: byte %td", wire::cm_message_name(wire::attribute_of(message.message)),
                                         differs - mad.begin() - static_cast<ptrdiff_t>(wire::kMadHeaderSize))});
}

}  // namespace

bool is_cm(const Packet& packet) {
  if (!packet.whole() || packet.info().transport != wire::Transport::kUd) return false;
  if (packet.bth().dest_qp != wire::kGsiQpn) return false;
  const auto mad = packet.wire().payload;
  if (mad.size() < wire::kMadHeaderSize) return true;
  const auto header = wire::MadHeaderView::at(mad.data());
  return header.management_class() == wire::kMadClassCm && header.attribute() != kClassPortInfo;
}

bool parse_cm(const Packet& packet, wire::CmMad& out) {
  const wire::Packet& p = packet.wire();
  return p.deth.source_qp == wire::kGsiQpn && p.deth.qkey == wire::kGsiQkey &&
         wire::parse_cm(p.payload, out) == wire::CmParseError::kNone;
}

void judge_cm_form(const Packet& packet, std::vector<Packet::Finding>& out) {
  judge_packet(packet, out);
  const auto mad = packet.wire().payload;
  if (mad.size() != wire::kMadSize) return;
  judge_header(mad, out);
  wire::CmMad message;
  if (wire::parse_cm(mad, message) != wire::CmParseError::kNone) return;
  judge_reserved(mad, message, out);
  std::visit(FieldJudge(packet, out), message.message);
}

}  // namespace uroce::oracle
