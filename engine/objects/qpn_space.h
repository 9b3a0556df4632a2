// The QP numbers that a shard of a device may give, and which QP has which. A device has a range of numbers: today it
// is drawn at random, later the broker of the netdev assigns it (architecture.md, decision 1). Its shards have them by
// turns, so that the low bits of a number tell the shard (io/steering.h).
//
// A number that became free rests (IBTA: timewait): packets for the QP that had it may still be under way, or its peer
// may go on repeating them, and a new QP with that number and peer would answer them as duplicates or as packets ahead
// of their turn. Only the peer knows how long it goes on, so the rest is not counted in seconds but is as long as the
// space allows: half of the numbers that are not in use rest, and the one that has rested longest is woken first. With
// a few QPs out of 65,536 a number rests while 32,000 others come and go. When nearly all are in use the rest is short,
// and with the last one there is none: refusing QPs to a program that makes and destroys them quickly would be worse.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "wire/psn.h"

namespace uroce::engine {

class Qp;

class QpnSpace {
 public:
  // `count` numbers, a power of two: every `stride`th, likewise, from `first` on. `random` gives 32 uniformly
  // distributed bits.
  QpnSpace(uint32_t first, uint32_t count, std::function<uint32_t()> random, uint32_t stride = 1)
      : first_(first),
        count_(count),
        shift_(static_cast<uint32_t>(std::countr_zero(stride))),
        qps_(make_array<Qp*>(count)),
        states_(make_array<NumberState>(count)),
        random_(std::move(random)) {}

  // Takes a free number, not predictable from earlier ones. False: all are in use.
  bool take(wire::Qpn& qpn) {
    if (used_ == count_) return false;
    ++used_;
    wake();
    uint32_t i = random_() % count_;
    while (states_[i].is != NumberState::kFree) i = (i + 1) % count_;
    states_[i].is = NumberState::kUsed;
    qpn = wire::Qpn(first_ + (i << shift_));
    return true;
  }
  // From now on packets for a number that was taken find `qp`.
  void bind(wire::Qpn qpn, Qp* qp) { qps_[index(qpn)] = qp; }

  void release(wire::Qpn qpn) {
    const uint32_t i = index(qpn);
    qps_[i] = nullptr;
    states_[i] = {.is = NumberState::kResting};
    (resting_ == 0 ? oldest_ : states_[newest_].next) = i;
    newest_ = i;
    ++resting_;
    --used_;
    wake();
  }

  // Null: there is none, or it is not one of these numbers.
  Qp* find(wire::Qpn qpn) const {
    const uint32_t i = index(qpn);
    return i < count_ ? qps_[i] : nullptr;
  }
  // Somebody will look for it soon.
  void prefetch(wire::Qpn qpn) const {
    if (const uint32_t i = index(qpn); i < count_) __builtin_prefetch(&qps_[i]);
  }

  size_t used() const { return used_; }

 private:
  struct NumberState {
    uint32_t next = 0;  // resting: who came after it
    enum : uint8_t { kFree, kUsed, kResting } is = kFree;
  };
  struct FreeArray {
    void operator()(void* array) const { std::free(array); }
  };
  template <class T>
  using Array = std::unique_ptr<T[], FreeArray>;
  // Zeroes from the kernel: a page costs nothing before one of its numbers is used.
  template <class T>
  static Array<T> make_array(uint32_t count) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
    auto* const array = static_cast<T*>(std::calloc(count, sizeof(T)));
    if (array == nullptr) throw std::bad_alloc();
    return Array<T>(array);
  }

  // Not less than `count_` for a number that is not of these.
  uint32_t index(wire::Qpn qpn) const { return std::rotr(qpn.value() - first_, static_cast<int>(shift_)); }

  // More than half of the unused numbers do not rest.
  void wake() {
    for (; resting_ > (count_ - used_) / 2; --resting_) {
      states_[oldest_].is = NumberState::kFree;
      oldest_ = states_[oldest_].next;
    }
  }

  const uint32_t first_;
  const uint32_t count_;
  const uint32_t shift_;  // numbers are 2^shift_ apart
  // Apart, so that looking for the QPs of packets needs as few cache lines as can be.
  const Array<Qp*> qps_;
  const Array<NumberState> states_;
  uint32_t used_ = 0;
  // Resting numbers, a list in the order in which they became free.
  uint32_t resting_ = 0, oldest_ = 0, newest_ = 0;
  std::function<uint32_t()> random_;
};

}  // namespace uroce::engine
