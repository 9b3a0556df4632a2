// SPDX-License-Identifier: BSD-2-Clause
// The ACK Extended Transport Header: what a responder says about a request (IBTA 9.3, 9.7.5).
#pragma once

#include <array>
#include <chrono>

#include "wire/bytes.h"
#include "wire/header_view.h"
#include "wire/psn.h"

namespace uroce::wire {

enum class AethKind : uint8_t { kAck, kRnrNak, kNak, kReserved };

enum class NakCode : uint8_t {  // the values on the wire
  kPsnSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidRdRequest = 4,
};

// Credit code 31: the responder does not count receive requests for the requester (IBTA 9.7.7).
inline constexpr uint8_t kNoCreditsCode = 31;
inline constexpr uint32_t kNoCredits = 0xffffffff;

// Receive requests a credit code stands for (IBTA 9.7.7); kNoCredits for code 31. Code 0..31.
constexpr uint32_t credit_count(uint8_t code) {
  constexpr std::array<uint32_t, 32> kCounts = {
      0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, kNoCredits};
  return kCounts[code & 0x1f];
}

// The code that offers as many of `count` receive requests as can be expressed, never more; 0..30.
constexpr uint8_t credit_code_for(uint32_t count) {
  uint8_t code = 0;
  while (code < kNoCreditsCode - 1 && credit_count(static_cast<uint8_t>(code + 1)) <= count) ++code;
  return code;
}

// The delay an RNR NAK timer code asks for (IBTA 9.7.5.2): 10 us .. 655.36 ms; code 0 is the longest. Code 0..31.
constexpr std::chrono::nanoseconds rnr_delay(uint8_t code) {
  constexpr std::array<uint32_t, 32> kTensOfMicroseconds = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(10 * int64_t{kTensOfMicroseconds[code & 0x1f]});
}

class AethView : public HeaderView<AethView, 4> {
 public:
  constexpr uint8_t syndrome() const { return bytes_[0]; }
  constexpr Msn msn() const { return Msn(load_be24(bytes_ + 1)); }
};

struct Aeth {
  static constexpr size_t kSize = AethView::kSize;

  uint8_t syndrome = 0;
  Msn msn{};

  // credit_code: 0..31, see credit_count(). rnr_code: 0..31, see rnr_delay().
  static constexpr Aeth make_ack(uint8_t credit_code, Msn msn) { return make(0x00, credit_code, msn); }
  static constexpr Aeth make_rnr_nak(uint8_t rnr_code, Msn msn) { return make(0x20, rnr_code, msn); }
  static constexpr Aeth make_nak(NakCode code, Msn msn) { return make(0x60, static_cast<uint8_t>(code), msn); }

  constexpr AethKind kind() const {
    switch (syndrome >> 5) {
      case 0:
        return AethKind::kAck;
      case 1:
        return AethKind::kRnrNak;
      case 3:
        return AethKind::kNak;
      default:
        return AethKind::kReserved;
    }
  }
  // Credit code, RNR timer code or NakCode by kind(). A NAK's value may be above the last NakCode: reserved.
  constexpr uint8_t value() const { return syndrome & 0x1f; }

  static constexpr Aeth parse(const AethView& view) { return {.syndrome = view.syndrome(), .msn = view.msn()}; }
  constexpr void emit(uint8_t* out) const {
    out[0] = syndrome;
    store_be24(out + 1, msn.value());
  }

  friend constexpr bool operator==(const Aeth&, const Aeth&) = default;

 private:
  static constexpr Aeth make(uint8_t kind_bits, uint8_t value, Msn msn) {
    return {.syndrome = static_cast<uint8_t>(kind_bits | (value & 0x1f)), .msn = msn};
  }
};

}  // namespace uroce::wire
