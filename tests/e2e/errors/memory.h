// SPDX-License-Identifier: BSD-2-Clause
// Registered memory amid guard bytes, and what is checked of it after a case. Used by client.cc and server.cc.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>
#include <string>

#include "tests/e2e/errors/layout.h"
#include "tests/e2e/transfer/endpoint.h"
#include "tests/e2e/transfer/verify.h"

namespace uroce::errors {

// What was found wrong in a case, in one line.
class Complaints {
 public:
  void add(const std::string& what) { text_ += (text_.empty() ? "" : "; ") + what; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Memory {
 public:
  explicit Memory(Stream guard) : arena_(kSlots, kSlotSize, guard) {}

  uint64_t address(Slot slot, size_t at) const { return reinterpret_cast<uintptr_t>(arena_.slot(slot)) + at; }
  // A region from `begin` to `end` in the slot.
  transfer::Verbs<ibv_mr> region(ibv_pd* pd, Slot slot, size_t begin, size_t end, int access) const;
  void put(Slot slot, size_t at, size_t size, Stream payload) { arena_.fill_payload(slot, {{at, size}}, payload); }

  // The payload must be there. It becomes guard bytes.
  void expect(Slot slot, size_t at, size_t size, Stream payload, const char* what, Complaints& complaints);
  // The same, or it has not arrived: both are right.
  void allow(Slot slot, size_t at, size_t size, Stream payload);
  // Whatever is there is right.
  void ignore(Slot slot, size_t at, size_t size) { arena_.restore_guard(slot, {{at, size}}); }
  // Nothing but guard bytes is left.
  void expect_untouched(Complaints& complaints) const;

 private:
  transfer::GuardedMemory arena_;
};

}  // namespace uroce::errors
