// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/request_packets.h"

#include <algorithm>

#include "engine/transport/common/sge_cursor.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/feth.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/reth.h"
#include "wire/xrceth.h"

namespace uroce::transport {

using queue::SendQueue;
using queue::SendWqe;
using queue::WrOpcode;
using wire::Opcode;

namespace {

// The opcodes of a kind of message, by position. `last` and `only` depend on immediate and invalidate.
struct MessageOpcodes {
  Opcode first, middle, last, only;
};

MessageOpcodes opcodes_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteOnly};
    case WrOpcode::kRdmaWriteWithImmediate:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImmediate,
              Opcode::kRcWriteOnlyImmediate};
    case WrOpcode::kSendWithImmediate:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImmediate, Opcode::kRcSendOnlyImmediate};
    case WrOpcode::kSendWithInvalidate:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInvalidate,
              Opcode::kRcSendOnlyInvalidate};
    default:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly};
  }
}

// What is added to an RC opcode (wire.md "Opcodes").
uint8_t opcode_base(QpType type) {
  switch (type) {
    case QpType::kUc:
      return 0x20;
    case QpType::kUd:
      return 0x60;
    case QpType::kXrcInitiator:
    case QpType::kXrcTarget:
      return 0xa0;
    default:
      return 0x00;
  }
}

template <class Header>
void append(const Header& header, io::TxPacket& out) {
  header.emit(&out.header[out.header_size]);
  out.header_size += Header::kSize;
}

wire::Bth base_bth(const QpContext& qp, Opcode operation, wire::Psn psn, const io::TxPacket& out) {
  wire::Bth bth{};
  bth.opcode = static_cast<Opcode>(static_cast<uint8_t>(operation) + opcode_base(qp.type));
  bth.mig_req = true;  // migrated state, as native HCAs send it
  bth.pad = out.pad;
  bth.pkey = 0xffff;
  bth.dest_qp = qp.attr.dest_qpn;
  bth.psn = psn;
  return bth;
}

}  // namespace

void emit_bth(const QpContext& qp, Opcode operation, wire::Psn psn, io::TxPacket& out) {
  base_bth(qp, operation, psn, out).emit(out.header.data());
  out.header_size = wire::Bth::kSize;
}

void RequestPackets::begin(const SendWqe& wqe, Opcode operation, wire::Psn psn, Flags flags, io::TxPacket& out) {
  wire::Bth bth = base_bth(qp_, operation, psn, out);
  bth.solicited = flags.solicited;
  bth.ack_request = flags.ack_request;
  if (qp_.type == QpType::kUd) bth.dest_qp = wire::Qpn(wqe.ud.remote_qpn);
  bth.emit(out.header.data());
  out.header_size = wire::Bth::kSize;
  if (qp_.type == QpType::kXrcInitiator) append(wire::Xrceth{wqe.xrc_srqn()}, out);
  if (qp_.type == QpType::kUd) {
    // IBTA 10.2.5: a Q_Key with its highest bit set is a controlled one; the QP's own goes out instead.
    constexpr uint32_t kControlled = 1u << 31;
    append(wire::Deth{(wqe.ud.remote_qkey & kControlled) ? qp_.attr.qkey : wqe.ud.remote_qkey, qp_.qpn}, out);
  }
}

bool RequestPackets::request(const SendQueue::Entry& entry, wire::Psn psn, uint32_t psns, bool ack_request,
                             io::TxPacket& out) {
  const uint32_t n = psn.offset_from(wire::Psn(entry.progress.first_psn));
  switch (entry.wqe.opcode) {
    case WrOpcode::kRdmaRead:
      read(entry, n, psn, out);
      return true;
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      atomic(entry, psn, out);
      return true;
    case WrOpcode::kAtomicWrite:
      return atomic_write(entry, psn, out);
    case WrOpcode::kFlush:
      flush(entry, psn, out);
      return true;
    default:
      return message(entry, n, psns, entry.progress.psn_count, psn, ack_request, out);
  }
}

bool RequestPackets::message(const SendQueue::Entry& entry, uint32_t n, uint32_t psns, uint32_t count, wire::Psn psn,
                             bool ack_request, io::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  const uint32_t offset = n * qp_.attr.path_mtu;
  const bool first = n == 0, last = n + psns == count;
  const uint32_t size = std::min(psns * qp_.attr.path_mtu, wqe.length - offset);
  if (!gather(entry, offset, size, out)) return false;
  out.pad = static_cast<uint8_t>(-size & 3);
  out.psns = psns;

  const MessageOpcodes opcodes = opcodes_of(wqe.opcode);
  const Opcode opcode = first && last ? opcodes.only : first ? opcodes.first : last ? opcodes.last : opcodes.middle;
  const wire::OpcodeInfo& info = wire::opcode_info(opcode);
  // The event is asked for where the receiver completes (IBTA 9.2.3): SENDs, and WRITEs with immediate.
  const bool solicited = last && (wqe.flags & queue::kSolicited) && wqe.opcode != WrOpcode::kRdmaWrite;
  begin(wqe, opcode, psn, {solicited, ack_request}, out);
  if (info.has_reth) append(wire::Reth{wqe.remote_address, wqe.rkey, wqe.length}, out);
  if (info.has_immdt) append(wire::ImmDt{wqe.immediate_or_rkey}, out);
  if (info.has_ieth) append(wire::Ieth{wqe.immediate_or_rkey}, out);
  return true;
}

// Middle packets whose payloads lie in one piece of memory, behind one that is such a packet too.
uint32_t RequestPackets::repeatable_behind(const SendQueue::Entry& entry, uint32_t n, const io::TxPacket& out) const {
  const uint32_t mtu = qp_.attr.path_mtu, count = entry.progress.psn_count;
  if (n == 0 || n + 2 >= count || out.fragment_count != 1 || (entry.wqe.flags & queue::kInline)) return 0;
  const queue::Sge piece = SgeCursor(entry.sges, (n + 1) * mtu).next((count - 2 - n) * mtu);
  const memory::Translation t =
      qp_.mrs.translate_local(piece.lkey, qp_.pd, piece.address, piece.length, memory::kLocalRead);
  const bool adjoins = t.result == memory::AccessResult::kOk && t.address == out.fragments[0].data + mtu;
  return adjoins ? piece.length / mtu : 0;
}

void RequestPackets::repeat(const io::TxPacket& previous, wire::Psn first, std::span<io::TxPacket> out) {
  io::Fragment piece = previous.fragments[0];
  for (io::TxPacket& packet : out) {
    packet.clear_payload();
    std::copy_n(previous.header.begin(), previous.header_size, packet.header.begin());
    wire::Bth::renumber(packet.header.data(), first);
    packet.header_size = previous.header_size;
    packet.payload_size = previous.payload_size;
    piece.data += piece.size;
    packet.fragments[packet.fragment_count++] = piece;
    first = first + 1;
  }
}

// What is left after `n` responses (IBTA 9.7.5.2.8 lets a retried READ start in the middle).
void RequestPackets::read(const SendQueue::Entry& entry, uint32_t n, wire::Psn psn, io::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  const uint32_t offset = n * qp_.attr.path_mtu;
  begin(wqe, Opcode::kRcReadRequest, psn, {}, out);
  append(wire::Reth{wqe.remote_address + offset, wqe.rkey, wqe.length - offset}, out);
}

void RequestPackets::atomic(const SendQueue::Entry& entry, wire::Psn psn, io::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  const bool swap = wqe.opcode == WrOpcode::kCompareSwap;
  begin(wqe, swap ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd, psn, {}, out);
  wire::AtomicEth atomic{};
  atomic.va = wqe.remote_address;
  atomic.rkey = wqe.rkey;
  atomic.swap_add = swap ? wqe.operands.swap : wqe.operands.compare_add;
  atomic.compare = swap ? wqe.operands.compare_add : 0;
  append(atomic, out);
}

// Eight bytes to one address, at once (IBTA A19).
bool RequestPackets::atomic_write(const SendQueue::Entry& entry, wire::Psn psn, io::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  if (!gather(entry, 0, wqe.length, out)) return false;
  begin(wqe, Opcode::kRcAtomicWrite, psn, {}, out);
  append(wire::Reth{wqe.remote_address, wqe.rkey, wqe.length}, out);
  return true;
}

void RequestPackets::flush(const SendQueue::Entry& entry, wire::Psn psn, io::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  begin(wqe, Opcode::kRcFlush, psn, {}, out);
  append(wire::Feth{static_cast<uint8_t>(wqe.operands.swap & 0x0f), static_cast<uint8_t>(wqe.operands.swap >> 4 & 3)},
         out);
  append(wire::Reth{wqe.remote_address, wqe.rkey, static_cast<uint32_t>(wqe.operands.compare_add)}, out);
}

// Points the packet at message bytes [offset, offset + size). False: an SGE does not pass its checks.
bool RequestPackets::gather(const SendQueue::Entry& entry, uint32_t offset, uint32_t size, io::TxPacket& out) {
  out.payload_size = size;
  if (size > 0 && (entry.wqe.flags & queue::kInline)) {
    out.fragments[out.fragment_count++] = {entry.inline_data + offset, size};
    return true;
  }
  for (SgeCursor cursor(entry.sges, offset); size > 0;) {
    const queue::Sge piece = cursor.next(size);
    const memory::Translation t =
        qp_.mrs.translate_local(piece.lkey, qp_.pd, piece.address, piece.length, memory::kLocalRead);
    // Sizes are sums of the SGEs, so the list does not end before.
    if (piece.length == 0 || t.result != memory::AccessResult::kOk) return false;
    out.fragments[out.fragment_count++] = {t.address, piece.length};
    size -= piece.length;
  }
  return true;
}

}  // namespace uroce::transport
