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

}  // namespace uroce::wire
