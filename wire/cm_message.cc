// SPDX-License-Identifier: BSD-2-Clause
#include "wire/cm_message.h"

#include <utility>

namespace uroce::wire {
namespace {

// The place of each attribute's message in CmMessage.
constexpr size_t index_of(CmAttribute attribute) {
  return static_cast<size_t>(attribute) - static_cast<size_t>(CmAttribute::kReq);
}
constexpr size_t kMessages = std::variant_size_v<CmMessage>;

template <size_t index>
void parse_message(const uint8_t* data, CmMessage& out) {
  using Message = std::variant_alternative_t<index, CmMessage>;
  static_assert(index_of(Message::kAttribute) == index);
  Message::layout(out.emplace<index>(), FieldReader(data));
}

template <size_t... indices>
constexpr auto parsers(std::index_sequence<indices...>) {
  return std::array{&parse_message<indices>...};
}

}  // namespace

CmParseError parse_cm(std::span<const uint8_t> mad, CmMad& out) {
  if (mad.size() != kMadSize) return CmParseError::kLength;
  const MadHeader header = MadHeader::parse(MadHeaderView::at(mad.data()));
  if (header.base_version != kMadBaseVersion) return CmParseError::kVersion;
  if (header.management_class != kMadClassCm) return CmParseError::kClass;
  if (header.class_version != kMadClassVersionCm) return CmParseError::kVersion;
  if (header.method != kMadMethodSend) return CmParseError::kMethod;
  const size_t index = index_of(static_cast<CmAttribute>(header.attribute));
  if (index >= kMessages) return CmParseError::kAttribute;
  static constexpr auto kParsers = parsers(std::make_index_sequence<kMessages>{});
  out.transaction = header.transaction;
  out.modifier = header.modifier;
  kParsers[index](mad.data() + kMadHeaderSize, out.message);
  return CmParseError::kNone;
}

Mad emit_cm(const CmMad& mad) {
  Mad out{};
  MadHeader{.transaction = mad.transaction,
            .attribute = static_cast<uint16_t>(attribute_of(mad.message)),
            .modifier = mad.modifier}
      .emit(out.data());
  std::visit([&](const auto& message) { message.layout(message, FieldWriter(out.data() + kMadHeaderSize)); },
             mad.message);
  return out;
}

const char* cm_message_name(CmAttribute attribute) {
  static constexpr std::array<const char*, kMessages> kNames = {"REQ",  "MRA",      "REJ",      "REP", "RTU", "DREQ",
                                                                "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
  const size_t index = index_of(attribute);
  return index < kMessages ? kNames[index] : nullptr;
}

const char* rej_reason_text(RejReason reason) {
  static constexpr std::array kTexts = {"unknown reason",
                                        "no QP",
                                        "no EE context",
                                        "no resources",
                                        "timeout",
                                        "unsupported request",
                                        "unknown communication id",
                                        "communication instance",
                                        "nobody listens at this service",
                                        "transport not supported",
                                        "stale connection",
                                        "no RDC",
                                        "wrong GID",
                                        "wrong LID",
                                        "service level",
                                        "traffic class",
                                        "hop limit",
                                        "packet rate",
                                        "wrong alternate GID",
                                        "wrong alternate LID",
                                        "alternate service level",
                                        "alternate traffic class",
                                        "alternate hop limit",
                                        "alternate packet rate",
                                        "redirected to another CM",
                                        "redirected to another port",
                                        "path MTU",
                                        "responder resources",
                                        "by the application",
                                        "RNR retry count",
                                        "communication id in use",
                                        "class version",
                                        "flow label",
                                        "alternate flow label",
                                        "unknown reason",
                                        "vendor option not supported"};
  const auto index = static_cast<size_t>(reason);
  return index < kTexts.size() ? kTexts[index] : kTexts[0];
}

const char* sidr_status_text(SidrStatus status) {
  static constexpr std::array kTexts = {"valid", "nobody listens at this service", "rejected by the application",
                                        "no QP", "redirected to another CM",       "version not supported"};
  const auto index = static_cast<size_t>(status);
  return index < kTexts.size() ? kTexts[index] : "unknown status";
}

}  // namespace uroce::wire
