// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/memory.h"

#include <cerrno>
#include <fmt/format.h>

namespace uroce::errors {

transfer::Verbs<ibv_mr> Memory::region(ibv_pd* pd, Slot slot, size_t begin, size_t end, int access) const {
  transfer::Verbs<ibv_mr> mr(ibv_reg_mr(pd, arena_.slot(slot) + begin, end - begin, static_cast<unsigned>(access)));
  if (!mr) transfer::fail_verbs("ibv_reg_mr", errno);
  return mr;
}

void Memory::expect(Slot slot, size_t at, size_t size, Stream payload, const char* what, Complaints& complaints) {
  if (const auto difference = arena_.payload_difference(slot, {{at, size}}, payload)) {
    complaints.add(fmt::format("{}: byte {} of {} is wrong", what, *difference, size));
  }
  ignore(slot, at, size);
}

void Memory::allow(Slot slot, size_t at, size_t size, Stream payload) {
  if (!arena_.payload_difference(slot, {{at, size}}, payload)) ignore(slot, at, size);
}

void Memory::expect_untouched(Complaints& complaints) const {
  if (const auto difference = arena_.any_difference()) {
    complaints.add(
        fmt::format("memory was touched at offset {} of slot {}", *difference % kSlotSize, *difference / kSlotSize));
  }
}

}  // namespace uroce::errors
