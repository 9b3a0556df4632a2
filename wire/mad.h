// SPDX-License-Identifier: BSD-2-Clause
// Management datagrams (MADs): the header that all have (IBTA 13.4), and the UD packet in which those to QP1, the
// general services interface (GSI), travel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/bth.h"
#include "wire/bytes.h"
#include "wire/deth.h"
#include "wire/header_view.h"
#include "wire/psn.h"

namespace uroce::wire {

inline constexpr uint32_t kGsiQkey = 0x80010000;
inline constexpr size_t kMadSize = 256;  // always
inline constexpr size_t kMadHeaderSize = 24;
inline constexpr size_t kMadDataSize = kMadSize - kMadHeaderSize;

using Mad = std::array<uint8_t, kMadSize>;
using MadView = std::span<const uint8_t, kMadSize>;

inline constexpr uint8_t kMadBaseVersion = 1;
inline constexpr uint8_t kMadClassCm = 7;  // communication management (IBTA 12)
inline constexpr uint8_t kMadClassVersionCm = 2;
inline constexpr uint8_t kMadMethodSend = 3;

// What a question and its answers have in common.
enum class TransactionId : uint64_t {};

class MadHeaderView : public HeaderView<MadHeaderView, kMadHeaderSize> {
 public:
  constexpr uint8_t base_version() const { return bytes_[0]; }
  constexpr uint8_t management_class() const { return bytes_[1]; }
  constexpr uint8_t class_version() const { return bytes_[2]; }
  constexpr uint8_t method() const { return bytes_[3]; }
  constexpr uint16_t status() const { return load_be16(bytes_ + 4); }
  constexpr TransactionId transaction() const { return TransactionId{load_be64(bytes_ + 8)}; }
  constexpr uint16_t attribute() const { return load_be16(bytes_ + 16); }
  constexpr uint32_t modifier() const { return load_be32(bytes_ + 20); }
};

// The defaults are those of the connection manager.
struct MadHeader {
  static constexpr size_t kSize = kMadHeaderSize;

  uint8_t base_version = kMadBaseVersion;
  uint8_t management_class = kMadClassCm;
  uint8_t class_version = kMadClassVersionCm;
  uint8_t method = kMadMethodSend;
  uint16_t status = 0;
  TransactionId transaction{};
  uint16_t attribute = 0;
  uint32_t modifier = 0;

  static constexpr MadHeader parse(const MadHeaderView& view) {
    return {.base_version = view.base_version(),
            .management_class = view.management_class(),
            .class_version = view.class_version(),
            .method = view.method(),
            .status = view.status(),
            .transaction = view.transaction(),
            .attribute = view.attribute(),
            .modifier = view.modifier()};
  }

  // Writes kSize bytes; what is reserved or specific to another class is zero.
  constexpr void emit(uint8_t* out) const {
    out[0] = base_version;
    out[1] = management_class;
    out[2] = class_version;
    out[3] = method;
    store_be16(out + 4, status);
    store_be16(out + 6, 0);
    store_be64(out + 8, static_cast<uint64_t>(transaction));
    store_be16(out + 16, attribute);
    store_be16(out + 18, 0);
    store_be32(out + 20, modifier);
  }

  friend constexpr bool operator==(const MadHeader&, const MadHeader&) = default;
};

// BTH to MAD; the ICRC follows.
inline constexpr size_t kGsiPacketSize = Bth::kSize + Deth::kSize + kMadSize;

// From QP1 to QP1. Writes kGsiPacketSize bytes.
void emit_gsi_packet(Psn psn, MadView mad, uint8_t* out);

}  // namespace uroce::wire
