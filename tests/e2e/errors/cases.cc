// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/cases.h"

#include <initializer_list>

#include "tests/e2e/errors/layout.h"

namespace uroce::errors {
namespace {

const char* word(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return "write";
    case IBV_WR_RDMA_READ:
      return "read";
    case IBV_WR_SEND:
      return "send";
    default:
      return "fetch-add";
  }
}

std::vector<Case> make_cases() {
  constexpr uint8_t kForever = 7;
  constexpr auto kWrite = IBV_WR_RDMA_WRITE, kRead = IBV_WR_RDMA_READ, kAdd = IBV_WR_ATOMIC_FETCH_AND_ADD,
                 kSend = IBV_WR_SEND;
  const std::initializer_list<ibv_wr_opcode> remote = {kWrite, kRead, kAdd};
  const struct {
    Fault fault;
    const char* name;
    std::vector<ibv_wr_opcode> opcodes;
    uint8_t rnr_retry = kForever;
    bool many_packets = false;
  } kinds[] = {
      {Fault::kUnknownKey, "unknown-key", remote},
      {Fault::kStaleKey, "stale-key", remote},
      {Fault::kForeignKey, "foreign-key", remote},
      {Fault::kBefore, "begins-before", remote},
      {Fault::kBehind, "ends-behind", remote},
      {Fault::kBehind, "ends-behind-packets", {kWrite, kRead}, kForever, true},
      {Fault::kNoRight, "no-right", remote},
      {Fault::kMisaligned, "misaligned", {kAdd}},
      {Fault::kClosedWindow, "closed-window", {kWrite, kRead}},
      {Fault::kTooLong, "too-long", {kSend}},
      {Fault::kTooLong, "too-long-packets", {kSend}, kForever, true},
      {Fault::kNoReceive, "no-receive-rnr-0", {kSend}, 0},
      {Fault::kNoReceive, "no-receive-rnr-1", {kSend}, 1},
      {Fault::kLateReceive, "late-receive-rnr-7", {kSend}},
      {Fault::kPeerError, "peer-in-error", {kWrite, kRead, kAdd, kSend}},
      {Fault::kPeerReset, "peer-in-reset", {kWrite, kSend}},
      {Fault::kPeerDestroyed, "peer-destroyed", {kWrite, kSend}},
      {Fault::kLocalKey, "local-unknown-key", {kWrite, kRead, kSend}},
      {Fault::kLocalBounds, "local-ends-behind", {kWrite, kRead, kSend}},
      {Fault::kLocalBounds, "local-ends-behind-packets", {kWrite, kRead, kSend}, kForever, true},
  };
  std::vector<Case> cases;
  for (const auto& kind : kinds) {
    for (const ibv_wr_opcode opcode : kind.opcodes) {
      cases.push_back(
          {std::string(word(opcode)) + "-" + kind.name, kind.fault, opcode, kind.rnr_retry, kind.many_packets});
    }
  }
  return cases;
}

}  // namespace

uint32_t Case::length() const {
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return 8;
  if (many_packets) return kLong;
  return fault == Fault::kTooLong ? 2 * kPiece : kPiece;
}

uint32_t Case::first_receive() const {
  if (!many_packets) return kPiece;
  return fault == Fault::kTooLong ? kLong - kPiece : kLong;
}

bool Case::peer_is_dead() const {
  return fault == Fault::kPeerError || fault == Fault::kPeerReset || fault == Fault::kPeerDestroyed;
}

uint32_t Case::receives() const {
  return fault == Fault::kNoReceive || fault == Fault::kLateReceive ? 0 : kReceives;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = make_cases();
  return kCases;
}

uint64_t cases_digest() {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const Case& item : all_cases()) {
    for (const char c : item.name + "\n") hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace uroce::errors
