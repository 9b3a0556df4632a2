// The QP numbers that this process may use, and which QP has which. The range is handed to the process: today it is
// drawn at random, later the broker of the netdev assigns it (architecture.md, decision 1).
#pragma once

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
  // `count` numbers from `first` on, a power of two. `random` gives 32 uniformly distributed bits.
  QpnSpace(uint32_t first, uint32_t count, std::function<uint32_t()> random)
      : first_(first), count_(count), slots_(make_slots(count)), random_(std::move(random)) {}

  // Takes a free number, not predictable from earlier ones. False: all are in use.
  bool take(wire::Qpn& qpn) {
    if (used_ == count_) return false;
    size_t i = random_() % count_;
    while (slots_[i].used) i = (i + 1) % count_;
    slots_[i].used = true;
    ++used_;
    qpn = wire::Qpn(first_ + static_cast<uint32_t>(i));
    return true;
  }
  // From now on packets for a number that was taken find `qp`.
  void bind(wire::Qpn qpn, Qp* qp) { slots_[qpn.value() - first_].qp = qp; }

  void release(wire::Qpn qpn) {
    slots_[qpn.value() - first_] = Slot{};
    --used_;
  }

  Qp* find(wire::Qpn qpn) const {
    const uint32_t i = qpn.value() - first_;
    return i < count_ ? slots_[i].qp : nullptr;
  }

  size_t used() const { return used_; }

 private:
  struct Slot {
    Qp* qp = nullptr;
    bool used = false;
  };
  struct FreeSlots {
    void operator()(Slot* slots) const { std::free(slots); }
  };
  using Slots = std::unique_ptr<Slot[], FreeSlots>;
  // Zeroes from the kernel: a page costs nothing before one of its numbers is used.
  static Slots make_slots(uint32_t count) {
    auto* slots = static_cast<Slot*>(std::calloc(count, sizeof(Slot)));
    if (slots == nullptr) throw std::bad_alloc();
    return Slots(slots);
  }

  const uint32_t first_;
  const uint32_t count_;
  const Slots slots_;
  size_t used_ = 0;
  std::function<uint32_t()> random_;
};

}  // namespace uroce::engine
