// SPDX-License-Identifier: BSD-2-Clause
// The 24-bit numbers of the InfiniBand transport as distinct types: packet sequence number (PSN), message sequence
// number (MSN) and queue pair number (QPN). Used by headers, the transport and everything that names a QP.
#pragma once

#include <cstdint>

namespace uroce::wire {

inline constexpr uint32_t kMask24 = 0xffffff;
inline constexpr uint32_t kPsnHalf = 1u << 23;

// A packet sequence number, modulo 2^24. PSNs have no total order: "before" and "after" hold within half of the number
// space (IBTA 9.7.2: valid and duplicate regions).
class Psn {
 public:
  constexpr Psn() = default;
  explicit constexpr Psn(uint32_t value) : value_(value & kMask24) {}

  constexpr uint32_t value() const { return value_; }

  constexpr Psn operator+(uint32_t n) const { return Psn(value_ + n); }
  constexpr Psn operator-(uint32_t n) const { return Psn(value_ - n); }
  constexpr Psn& operator++() { return *this = *this + 1; }

  // Steps forward from `from` to `to`, in [-2^23, 2^23).
  static constexpr int32_t distance(Psn from, Psn to) {
    const uint32_t forward = to.offset_from(from);
    return static_cast<int32_t>(forward) - (forward >= kPsnHalf ? 1 << 24 : 0);
  }
  // Steps forward from `base` to here, in [0, 2^24): for what may be longer than half of the number space.
  constexpr uint32_t offset_from(Psn base) const { return (value_ - base.value_) & kMask24; }
  constexpr bool is_before(Psn other) const { return distance(*this, other) > 0; }
  constexpr bool is_after(Psn other) const { return distance(*this, other) < 0; }

  friend constexpr bool operator==(Psn, Psn) = default;

 private:
  uint32_t value_ = 0;
};

// A message sequence number: messages a responder has completed, modulo 2^24.
class Msn {
 public:
  constexpr Msn() = default;
  explicit constexpr Msn(uint32_t value) : value_(value & kMask24) {}

  constexpr uint32_t value() const { return value_; }
  constexpr Msn& operator++() { return *this = Msn(value_ + 1); }

  // Steps forward from `from` to `to`, in [-2^23, 2^23).
  static constexpr int32_t distance(Msn from, Msn to) { return Psn::distance(Psn(from.value_), Psn(to.value_)); }

  friend constexpr bool operator==(Msn, Msn) = default;

 private:
  uint32_t value_ = 0;
};

// A queue pair number. 0 and 1 are the special QPs, 0xffffff is the multicast QP.
class Qpn {
 public:
  constexpr Qpn() = default;
  explicit constexpr Qpn(uint32_t value) : value_(value & kMask24) {}

  constexpr uint32_t value() const { return value_; }

  friend constexpr bool operator==(Qpn, Qpn) = default;

 private:
  uint32_t value_ = 0;
};

// `count` numbers, a power of two.
struct QpnRange {
  uint32_t first = 0;
  uint32_t count = 0;
  constexpr bool contains(Qpn qpn) const { return qpn.value() - first < count; }
};

inline constexpr Qpn kGsiQpn{1};               // communication management
inline constexpr Qpn kMulticastQpn{0xffffff};  // addresses a multicast group's members

}  // namespace uroce::wire
