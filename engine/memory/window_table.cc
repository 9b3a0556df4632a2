// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/window_table.h"

#include <utility>

namespace uroce::memory {

void WindowTable::add(uint32_t key, WindowType type, uint32_t pd) {
  auto window = std::make_unique<MemoryWindow>();
  window->key = key;
  window->type = type;
  window->pd = pd;
  entries_.insert({key, std::move(window)});
}

void WindowTable::remove(uint32_t key) {
  entries_.erase(entries_.find(key));
}

void WindowTable::tie(MemoryWindow& window) {
  MemoryWindow*& first = chain(window.qpn);
  window.next = first;
  window.referrer = &first;
  if (first != nullptr) first->referrer = &window.next;
  first = &window;
}

void WindowTable::untie(MemoryWindow& window) {
  if (window.referrer == nullptr) return;
  *window.referrer = window.next;
  if (window.next != nullptr) window.next->referrer = window.referrer;
  window.referrer = nullptr;
}

}  // namespace uroce::memory
