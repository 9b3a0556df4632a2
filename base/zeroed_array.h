// SPDX-License-Identifier: BSD-2-Clause
// Large arrays of zeroes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace uroce {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
// Zeroes from the kernel: a page costs nothing before one of its elements is used.
template <class T>
using ZeroedArray = std::unique_ptr<T[], FreeMemory>;
template <class T>
ZeroedArray<T> make_zeroed_array(uint32_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
  auto* const array = static_cast<T*>(std::calloc(count, sizeof(T)));
  if (array == nullptr) throw std::bad_alloc();
  return ZeroedArray<T>(array);
}

}  // namespace uroce
