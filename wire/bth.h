// SPDX-License-Identifier: BSD-2-Clause
// The Base Transport Header, first in every RoCE v2 packet (IBTA 9.2).
#pragma once

#include "wire/bytes.h"
#include "wire/header_view.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace uroce::wire {

class BthView : public HeaderView<BthView, kBthSize> {
 public:
  constexpr Opcode opcode() const { return static_cast<Opcode>(bytes_[0]); }
  constexpr bool solicited() const { return bytes_[1] & 0x80; }
  constexpr bool mig_req() const { return bytes_[1] & 0x40; }
  constexpr uint8_t pad() const { return bytes_[1] >> 4 & 3; }
  constexpr uint8_t tver() const { return bytes_[1] & 0x0f; }
  constexpr uint16_t pkey() const { return load_be16(bytes_ + 2); }
  constexpr bool fecn() const { return bytes_[4] & 0x80; }
  constexpr bool becn() const { return bytes_[4] & 0x40; }
  constexpr Qpn dest_qp() const { return Qpn(load_be24(bytes_ + 5)); }
  constexpr bool ack_request() const { return bytes_[8] & 0x80; }
  constexpr Psn psn() const { return Psn(load_be24(bytes_ + 9)); }
};

// Bit 15 of a P_Key is membership, not identity (IBTA 10.9.3).
inline constexpr uint16_t kPkeyBase = 0x7fff;

struct Bth {
  static constexpr size_t kSize = BthView::kSize;
  static constexpr uint16_t kDefaultPkey = 0xffff;

  Opcode opcode{};
  bool solicited = false;
  bool mig_req = false;
  uint8_t pad = 0;   // 0..3 bytes after the payload
  uint8_t tver = 0;  // transport header version; 0 is the only one
  uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  Qpn dest_qp{};
  bool ack_request = false;
  Psn psn{};

  static constexpr Bth parse(const BthView& view) {
    return {.opcode = view.opcode(),
            .solicited = view.solicited(),
            .mig_req = view.mig_req(),
            .pad = view.pad(),
            .tver = view.tver(),
            .pkey = view.pkey(),
            .fecn = view.fecn(),
            .becn = view.becn(),
            .dest_qp = view.dest_qp(),
            .ack_request = view.ack_request(),
            .psn = view.psn()};
  }

  // Writes kSize bytes; reserved bits are zero.
  constexpr void emit(uint8_t* out) const {
    out[0] = static_cast<uint8_t>(opcode);
    out[1] = static_cast<uint8_t>((solicited ? 0x80 : 0) | (mig_req ? 0x40 : 0) | (pad & 3) << 4 | (tver & 0x0f));
    store_be16(out + 2, pkey);
    out[4] = static_cast<uint8_t>((fecn ? 0x80 : 0) | (becn ? 0x40 : 0));
    store_be24(out + 5, dest_qp.value());
    out[8] = ack_request ? 0x80 : 0;
    store_be24(out + 9, psn.value());
  }

  // Makes an emitted header that of another packet, which asks for no acknowledgement.
  static constexpr void renumber(uint8_t* emitted, Psn psn) {
    emitted[8] = 0;
    store_be24(emitted + 9, psn.value());
  }

  friend constexpr bool operator==(const Bth&, const Bth&) = default;
};

}  // namespace uroce::wire
