// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/opcode_sequence.h"

namespace uroce::dissector {
namespace {

constexpr uint32_t kLargestMessage = 1u << 31;
constexpr uint32_t kAtomicWriteSize = 8;

}  // namespace

void OpcodeSequence::check(const Headers& headers, bool in_order, uint32_t path_mtu, Findings& findings) {
  if (!in_order) {
    state_ = State::kUnknown;
    length_known_ = false;
  }
  const wire::OpcodeInfo& info = *headers.info;
  check_order(headers, findings);
  if (info.first) {
    operation_ = info.operation;
    bytes_ = 0;
    length_known_ = info.has_reth && info.operation == wire::Operation::kWrite;
    length_ = headers.reth.length;
  }
  bytes_ += headers.payload_size;
  check_length(headers, path_mtu, findings);
  if (info.last) {
    state_ = State::kBetween;
    length_known_ = false;
  } else if (info.first || state_ != State::kUnknown) {
    state_ = State::kInside;
  }
}

void OpcodeSequence::check_order(const Headers& headers, Findings& findings) {
  const wire::OpcodeInfo& info = *headers.info;
  const bool wrong = info.first
                         ? state_ == State::kInside
                         : state_ == State::kBetween || (state_ == State::kInside && info.operation != operation_);
  if (!wrong) return;
  findings.add(Finding::kOpcodeSequence);
  length_known_ = false;
  if (!info.first) operation_ = info.operation;
}

void OpcodeSequence::check_length(const Headers& headers, uint32_t path_mtu, Findings& findings) {
  const wire::OpcodeInfo& info = *headers.info;
  const uint32_t size = headers.payload_size;
  bool wrong = info.has_reth && headers.reth.length > kLargestMessage;
  if (info.operation == wire::Operation::kAtomicWrite) {
    wrong |= size != kAtomicWriteSize;
  } else if (!info.last) {
    wrong |= path_mtu != 0 ? size != path_mtu : !is_path_mtu(size);
  } else {
    wrong |= size > (path_mtu != 0 ? path_mtu : kLargestPathMtu) || (size == 0 && !info.first);
  }
  if (length_known_) wrong |= info.last ? bytes_ != length_ : bytes_ >= length_;
  if (wrong) findings.add(Finding::kLength);
}

}  // namespace uroce::dissector
