// SPDX-License-Identifier: BSD-2-Clause
// Memory windows: remote keys of their own for a part of a region, given and taken without registering anew (IBTA
// 10.6.7). Here they are only kept; MrTable knows the regions and decides what may be bound, and says under
// which locks (MrTable::use_windows).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/memory/key_table.h"

namespace uroce::memory {

// The values of enum ibv_mw_type. Type 2 is 2B: tied to the QP that bound it.
enum class WindowType : uint8_t { kType1 = 1, kType2 = 2 };

struct MemoryWindow {
  uint32_t key = 0;  // the current R_Key; its low 8 bits change with every bind
  uint32_t pd = 0;   // protection domain
  WindowType type = WindowType::kType1;
  bool bound = false;

  // While bound:
  uint32_t region_key = 0;
  uint32_t access = 0;      // Access bits
  uint32_t qpn = 0;         // type 2: the only QP whose peer may use it
  uint8_t* base = nullptr;  // where the application has the first byte
  uint64_t iova = 0;        // what peers call it
  uint64_t length = 0;      // bytes

  // WindowTable's: where the windows that are tied to QPs hang together.
  MemoryWindow* next = nullptr;
  MemoryWindow** referrer = nullptr;  // what points to this window; null: it is not tied
};

class WindowTable {
 public:
  // The low bits of a window's key belong to the application (type 2) or count the binds (type 1).
  static constexpr unsigned kConsumerBits = 8;
  static constexpr uint32_t kConsumerMask = (1u << kConsumerBits) - 1;

  WindowTable() = default;
  WindowTable(const WindowTable&) = delete;
  WindowTable& operator=(const WindowTable&) = delete;

  // The window that has these upper 24 bits; null: none.
  MemoryWindow* find(uint32_t key) {
    Entry* entry = entries_.find(key);
    return entry == nullptr ? nullptr : entry->window.get();
  }
  const MemoryWindow* find(uint32_t key) const { return const_cast<WindowTable*>(this)->find(key); }
  size_t size() const { return entries_.size(); }

  // An unbound window. The upper 24 bits of `key` are not 0 and not in use.
  void add(uint32_t key, WindowType type, uint32_t pd);
  // It must be there.
  void remove(uint32_t key);

  // A type 2 window has been bound on window.qpn, or is not any more.
  void tie(MemoryWindow& window);
  static void untie(MemoryWindow& window);
  // Calls f(window) for every window that is tied to this QP; f may untie it. Cheap when there are few.
  template <class F>
  void for_each_tied(uint32_t qpn, F&& f) {
    for (MemoryWindow* window = chain(qpn); window != nullptr;) {
      MemoryWindow* const next = window->next;
      if (window->qpn == qpn) f(*window);
      window = next;
    }
  }

 private:
  struct Entry {
    uint32_t key = 0;  // as it was allocated
    std::unique_ptr<MemoryWindow> window;
  };

  MemoryWindow*& chain(uint32_t qpn) { return by_qpn_[qpn % by_qpn_.size()]; }

  std::array<MemoryWindow*, 256> by_qpn_{};  // the first of each chain
  KeyTable<Entry, kConsumerBits> entries_;
};

}  // namespace uroce::memory
