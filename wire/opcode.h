// SPDX-License-Identifier: BSD-2-Clause
// The BTH opcodes and what a packet of each one carries, as one table (IBTA 9.2.1, annexes A14, A17, A19; wire.md
// "Headers", "Opcodes").
// Parsing, formatting and the transport ask the table; nothing else decodes opcodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/deth.h"
#include "wire/feth.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/reth.h"
#include "wire/xrceth.h"

namespace uroce::wire {

inline constexpr size_t kBthSize = 12;
inline constexpr size_t kIcrcSize = 4;
inline constexpr size_t kCnpReservedSize = 16;  // zero bytes that follow the BTH of a CNP

enum class Opcode : uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImmediate = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImmediate = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImmediate = 0x09,
  kRcWriteOnly = 0x0a,
  kRcWriteOnlyImmediate = 0x0b,
  kRcReadRequest = 0x0c,
  kRcReadResponseFirst = 0x0d,
  kRcReadResponseMiddle = 0x0e,
  kRcReadResponseLast = 0x0f,
  kRcReadResponseOnly = 0x10,
  kRcAcknowledge = 0x11,
  kRcAtomicAcknowledge = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInvalidate = 0x16,
  kRcSendOnlyInvalidate = 0x17,
  kRcFlush = 0x1c,
  kRcAtomicWrite = 0x1d,

  kUcSendFirst = 0x20,
  kUcSendMiddle = 0x21,
  kUcSendLast = 0x22,
  kUcSendLastImmediate = 0x23,
  kUcSendOnly = 0x24,
  kUcSendOnlyImmediate = 0x25,
  kUcWriteFirst = 0x26,
  kUcWriteMiddle = 0x27,
  kUcWriteLast = 0x28,
  kUcWriteLastImmediate = 0x29,
  kUcWriteOnly = 0x2a,
  kUcWriteOnlyImmediate = 0x2b,

  kUdSendOnly = 0x64,
  kUdSendOnlyImmediate = 0x65,

  kCnp = 0x81,

  kXrcSendFirst = 0xa0,
  kXrcSendMiddle = 0xa1,
  kXrcSendLast = 0xa2,
  kXrcSendLastImmediate = 0xa3,
  kXrcSendOnly = 0xa4,
  kXrcSendOnlyImmediate = 0xa5,
  kXrcWriteFirst = 0xa6,
  kXrcWriteMiddle = 0xa7,
  kXrcWriteLast = 0xa8,
  kXrcWriteLastImmediate = 0xa9,
  kXrcWriteOnly = 0xaa,
  kXrcWriteOnlyImmediate = 0xab,
  kXrcReadRequest = 0xac,
  kXrcReadResponseFirst = 0xad,
  kXrcReadResponseMiddle = 0xae,
  kXrcReadResponseLast = 0xaf,
  kXrcReadResponseOnly = 0xb0,
  kXrcAcknowledge = 0xb1,
  kXrcAtomicAcknowledge = 0xb2,
  kXrcCompareSwap = 0xb3,
  kXrcFetchAdd = 0xb4,
  kXrcSendLastInvalidate = 0xb6,
  kXrcSendOnlyInvalidate = 0xb7,
};

enum class Transport : uint8_t { kRc, kUc, kRd, kUd, kCnp, kXrc };

enum class Operation : uint8_t {
  kNone,
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kFlush,
  kAtomicWrite,
  kCnp,
};

struct OpcodeInfo {
  bool known = false;  // false: all other fields are meaningless
  Transport transport = Transport::kRc;
  Operation operation = Operation::kNone;
  bool first = false;  // begins a message or a READ response: First and Only
  bool last = false;   // ends it: Last and Only
  bool request = false;
  bool has_reth = false;
  bool has_aeth = false;
  bool has_atomic_eth = false;
  bool has_atomic_ack_eth = false;
  bool has_immdt = false;
  bool has_ieth = false;
  bool has_deth = false;
  bool has_xrceth = false;
  bool has_feth = false;
  bool has_payload = false;      // may carry payload
  uint8_t header_size = 0;       // BTH and extension headers; for a CNP also its reserved bytes
  const char* name = "UNKNOWN";  // "RDMA_WRITE_FIRST", without the transport

  // Neither begins nor ends anything.
  constexpr bool is_middle() const { return known && !first && !last; }
};

namespace internal {

// What follows the BTH, in bits that the operation list below can be written with.
enum Extension : unsigned {
  kReth = 1,
  kAeth = 2,
  kAtomicEth = 4,
  kAtomicAckEth = 8,
  kImmDt = 16,
  kIeth = 32,
  kFeth = 64,
  kPayload = 128
};
enum Position : unsigned { kMiddle = 0, kFirst = 1, kLast = 2, kOnly = kFirst | kLast };

struct OperationRow {
  uint8_t code;  // the low five bits of the opcode
  Operation operation;
  unsigned position;
  bool request;
  unsigned extensions;
  const char* name;
};

inline constexpr OperationRow kOperations[] = {
    {0x00, Operation::kSend, kFirst, true, kPayload, "SEND_FIRST"},
    {0x01, Operation::kSend, kMiddle, true, kPayload, "SEND_MIDDLE"},
    {0x02, Operation::kSend, kLast, true, kPayload, "SEND_LAST"},
    {0x03, Operation::kSend, kLast, true, kImmDt | kPayload, "SEND_LAST_IMMEDIATE"},
    {0x04, Operation::kSend, kOnly, true, kPayload, "SEND_ONLY"},
    {0x05, Operation::kSend, kOnly, true, kImmDt | kPayload, "SEND_ONLY_IMMEDIATE"},
    {0x06, Operation::kWrite, kFirst, true, kReth | kPayload, "RDMA_WRITE_FIRST"},
    {0x07, Operation::kWrite, kMiddle, true, kPayload, "RDMA_WRITE_MIDDLE"},
    {0x08, Operation::kWrite, kLast, true, kPayload, "RDMA_WRITE_LAST"},
    {0x09, Operation::kWrite, kLast, true, kImmDt | kPayload, "RDMA_WRITE_LAST_IMMEDIATE"},
    {0x0a, Operation::kWrite, kOnly, true, kReth | kPayload, "RDMA_WRITE_ONLY"},
    {0x0b, Operation::kWrite, kOnly, true, kReth | kImmDt | kPayload, "RDMA_WRITE_ONLY_IMMEDIATE"},
    {0x0c, Operation::kReadRequest, kOnly, true, kReth, "RDMA_READ_REQUEST"},
    {0x0d, Operation::kReadResponse, kFirst, false, kAeth | kPayload, "RDMA_READ_RESPONSE_FIRST"},
    {0x0e, Operation::kReadResponse, kMiddle, false, kPayload, "RDMA_READ_RESPONSE_MIDDLE"},
    {0x0f, Operation::kReadResponse, kLast, false, kAeth | kPayload, "RDMA_READ_RESPONSE_LAST"},
    {0x10, Operation::kReadResponse, kOnly, false, kAeth | kPayload, "RDMA_READ_RESPONSE_ONLY"},
    {0x11, Operation::kAcknowledge, kOnly, false, kAeth, "ACKNOWLEDGE"},
    {0x12, Operation::kAtomicAcknowledge, kOnly, false, kAeth | kAtomicAckEth, "ATOMIC_ACKNOWLEDGE"},
    {0x13, Operation::kCompareSwap, kOnly, true, kAtomicEth, "COMPARE_SWAP"},
    {0x14, Operation::kFetchAdd, kOnly, true, kAtomicEth, "FETCH_ADD"},
    {0x16, Operation::kSend, kLast, true, kIeth | kPayload, "SEND_LAST_INVALIDATE"},
    {0x17, Operation::kSend, kOnly, true, kIeth | kPayload, "SEND_ONLY_INVALIDATE"},
    {0x1c, Operation::kFlush, kOnly, true, kFeth | kReth, "FLUSH"},
    {0x1d, Operation::kAtomicWrite, kOnly, true, kReth | kPayload, "ATOMIC_WRITE"},
};

constexpr bool transport_has(Transport transport, uint8_t operation_code) {
  switch (transport) {
    case Transport::kRc:
      return true;
    case Transport::kUc:
      return operation_code <= 0x0b;
    case Transport::kUd:
      return operation_code == 0x04 || operation_code == 0x05;
    case Transport::kXrc:
      return operation_code <= 0x17;
    default:
      return false;
  }
}

constexpr OpcodeInfo make_info(Transport transport, const OperationRow& row) {
  OpcodeInfo info{.known = true,
                  .transport = transport,
                  .operation = row.operation,
                  .first = (row.position & kFirst) != 0,
                  .last = (row.position & kLast) != 0,
                  .request = row.request,
                  .has_reth = (row.extensions & kReth) != 0,
                  .has_aeth = (row.extensions & kAeth) != 0,
                  .has_atomic_eth = (row.extensions & kAtomicEth) != 0,
                  .has_atomic_ack_eth = (row.extensions & kAtomicAckEth) != 0,
                  .has_immdt = (row.extensions & kImmDt) != 0,
                  .has_ieth = (row.extensions & kIeth) != 0,
                  .has_deth = transport == Transport::kUd,
                  .has_xrceth = transport == Transport::kXrc && row.request,
                  .has_feth = (row.extensions & kFeth) != 0,
                  .has_payload = (row.extensions & kPayload) != 0,
                  .header_size = 0,
                  .name = row.name};
  info.header_size = static_cast<uint8_t>(
      kBthSize + info.has_reth * Reth::kSize + info.has_aeth * Aeth::kSize + info.has_atomic_eth * AtomicEth::kSize +
      info.has_atomic_ack_eth * AtomicAckEth::kSize + info.has_immdt * ImmDt::kSize + info.has_ieth * Ieth::kSize +
      info.has_deth * Deth::kSize + info.has_xrceth * Xrceth::kSize + info.has_feth * Feth::kSize);
  return info;
}

constexpr std::array<OpcodeInfo, 256> make_opcode_table() {
  constexpr struct {
    uint8_t base;
    Transport transport;
  } kBases[] = {{0x00, Transport::kRc}, {0x20, Transport::kUc}, {0x60, Transport::kUd}, {0xa0, Transport::kXrc}};

  std::array<OpcodeInfo, 256> table{};
  for (const auto& base : kBases) {
    for (const OperationRow& row : kOperations) {
      if (transport_has(base.transport, row.code)) table[base.base + row.code] = make_info(base.transport, row);
    }
  }
  table[static_cast<uint8_t>(Opcode::kCnp)] = {.known = true,
                                               .transport = Transport::kCnp,
                                               .operation = Operation::kCnp,
                                               .first = true,
                                               .last = true,
                                               .header_size = kBthSize + kCnpReservedSize,
                                               .name = "CNP"};
  return table;
}

inline constexpr std::array<OpcodeInfo, 256> kOpcodeTable = make_opcode_table();

}  // namespace internal

// Never fails: opcodes that RoCE v2 does not define, and those of RD, which nobody implements, are not `known`.
constexpr const OpcodeInfo& opcode_info(Opcode opcode) {
  return internal::kOpcodeTable[static_cast<uint8_t>(opcode)];
}

constexpr const char* transport_name(Transport transport) {
  constexpr const char* kNames[] = {"RC", "UC", "RD", "UD", "CNP", "XRC"};
  return kNames[static_cast<uint8_t>(transport)];
}

static_assert(opcode_info(Opcode::kRcSendFirst).header_size == 12);
static_assert(opcode_info(Opcode::kRcWriteOnlyImmediate).header_size == 32);
static_assert(opcode_info(Opcode::kRcReadResponseMiddle).header_size == 12);
static_assert(opcode_info(Opcode::kRcAtomicAcknowledge).header_size == 24);
static_assert(opcode_info(Opcode::kRcFlush).header_size == 32);
static_assert(opcode_info(Opcode::kUdSendOnlyImmediate).header_size == 24);
static_assert(opcode_info(Opcode::kXrcFetchAdd).header_size == 44);
static_assert(!opcode_info(Opcode{0x44}).known);

}  // namespace uroce::wire
