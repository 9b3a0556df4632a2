// SPDX-License-Identifier: BSD-2-Clause
// The QP numbers that a shard of a device may give, and which QP has which. A device has a range of numbers: one drawn
// at random, or that which the broker has leased to it (architecture.md, decision 1). Its shards have them by turns, so
// that the low bits of a number tell the shard (io/steering.h).
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/number_allocator.h"
#include "base/zeroed_array.h"
#include "wire/psn.h"

namespace uroce::engine {

class Qp;

using wire::QpnRange;

class QpnSpace {
 public:
  // `count` numbers, a power of two: every `stride`th, likewise, from `first` on. `random` gives 32 uniformly
  // distributed bits.
  QpnSpace(uint32_t first, uint32_t count, std::function<uint32_t()> random, uint32_t stride = 1)
      : first_(first),
        count_(count),
        shift_(static_cast<uint32_t>(std::countr_zero(stride))),
        qps_(make_zeroed_array<Qp*>(count)),
        numbers_(count, std::move(random)) {}

  // Takes a free number, not predictable from earlier ones. False: all are in use.
  bool take(wire::Qpn& qpn) {
    const std::optional<uint32_t> i = numbers_.take();
    if (i) qpn = wire::Qpn(first_ + (*i << shift_));
    return i.has_value();
  }
  // From now on packets for a number that was taken find `qp`. QP1's is in no range and need not be taken.
  void bind(wire::Qpn qpn, Qp* qp) {
    if (qpn == wire::kGsiQpn) {
      gsi_ = qp;
    } else {
      qps_[index(qpn)] = qp;
    }
  }

  void release(wire::Qpn qpn) {
    if (qpn == wire::kGsiQpn) {
      gsi_ = nullptr;
      return;
    }
    const uint32_t i = index(qpn);
    qps_[i] = nullptr;
    numbers_.release(i);
  }

  // Null: there is none, or it is not one of these numbers.
  Qp* find(wire::Qpn qpn) const {
    const uint32_t i = index(qpn);
    if (i < count_) return qps_[i];
    return qpn == wire::kGsiQpn ? gsi_ : nullptr;
  }
  // Somebody will look for it soon.
  void prefetch(wire::Qpn qpn) const {
    if (const uint32_t i = index(qpn); i < count_) __builtin_prefetch(&qps_[i]);
  }

  // All numbers, by index: the QP, if there is one.
  uint32_t count() const { return count_; }
  Qp* at(uint32_t i) const { return qps_[i]; }
  size_t used() const { return numbers_.used(); }

 private:
  // Not less than `count_` for a number that is not of these.
  uint32_t index(wire::Qpn qpn) const { return std::rotr(qpn.value() - first_, static_cast<int>(shift_)); }

  uint32_t first_;
  uint32_t count_;
  uint32_t shift_;  // numbers are 2^shift_ apart
  // Apart, so that looking for the QPs of packets needs as few cache lines as can be.
  ZeroedArray<Qp*> qps_;
  NumberAllocator numbers_;
  Qp* gsi_ = nullptr;  // QP1
};

}  // namespace uroce::engine
