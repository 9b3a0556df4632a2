// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/message_sequence.h"

namespace uroce::oracle {
namespace {

constexpr uint64_t kMaxMessage = 1ull << 31;  // IBTA 9.7.3.3
constexpr uint32_t kMaxPathMtu = 4096;

Packet::Finding finding(Rule rule, std::string what) {
  return {.rule = rule, .text = std::move(what)};
}

}  // namespace

std::optional<Packet::Finding> MessageSequence::next(const Request& request, Context& context) {
  auto found = judge_place(request);
  if (request.info->first) {
    bytes_ = 0;
    announced_ = request.length;
    size_known_ = true;
  } else if (found || !known_) {
    size_known_ = false;
  }
  operation_ = request.info->operation;
  bytes_ += request.info->has_payload ? request.payload_size : request.is_atomic() ? 8 : request.length;
  if (!found) found = judge_size(request, context);
  inside_ = !request.info->last;
  known_ = true;
  return found;
}

std::optional<Packet::Finding> MessageSequence::judge_place(const Request& request) const {
  if (!known_) return std::nullopt;
  if (request.info->first) {
    if (!inside_) return std::nullopt;
    return finding(Rule::kOpcodeSequence, text("%s before the last packet of a message", request.info->name));
  }
  if (inside_ && operation_ == request.info->operation) return std::nullopt;
  return finding(Rule::kOpcodeSequence, text("%s without the first packet of its message", request.info->name));
}

std::optional<Packet::Finding> MessageSequence::judge_size(const Request& request, Context& context) const {
  const wire::OpcodeInfo& info = *request.info;
  if (request.length > kMaxMessage || (size_known_ && bytes_ > kMaxMessage)) {
    return finding(Rule::kMessageTooLong,
                   text("%llu bytes", static_cast<unsigned long long>(std::max<uint64_t>(request.length, bytes_))));
  }
  if (request.is(wire::Operation::kAtomicWrite)) {
    if (request.payload_size == 8 && request.length == 8) return std::nullopt;
    return finding(Rule::kPayloadSize, text("ATOMIC WRITE of %u bytes", request.payload_size));
  }
  if (!info.has_payload) return std::nullopt;

  if (!info.last) context.learn_path_mtu(request.payload_size);
  const uint32_t largest = context.attributes.path_mtu.value_or(kMaxPathMtu);
  const bool full_wanted = !info.last && context.attributes.path_mtu;
  if (request.payload_size > largest || (full_wanted && request.payload_size != largest) ||
      (!info.first && request.payload_size == 0)) {
    return finding(Rule::kPayloadSize, text("%s with %u bytes, path MTU %u", info.name, request.payload_size, largest));
  }
  if (!info.last && !context.attributes.path_mtu) {
    return finding(Rule::kPayloadSize, text("%s with %u bytes, which is no path MTU", info.name, request.payload_size));
  }
  if (operation_ == wire::Operation::kWrite && size_known_ &&
      (bytes_ > announced_ || (info.last && bytes_ != announced_))) {
    return finding(Rule::kMessageLength,
                   text("%llu bytes of a WRITE whose RETH says %llu", static_cast<unsigned long long>(bytes_),
                        static_cast<unsigned long long>(announced_)));
  }
  return std::nullopt;
}

}  // namespace uroce::oracle
