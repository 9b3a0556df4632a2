// SPDX-License-Identifier: BSD-2-Clause
// What the views of all headers have in common: a view is a pointer to bytes whose number has been checked.
// Every header file (bth.h, reth.h, ...) has a view to read fields in place and a plain value to keep and to emit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace uroce::wire {

template <class View, size_t size>
class HeaderView {
 public:
  static constexpr size_t kSize = size;

  // A view of the first kSize bytes, or nothing if there are fewer.
  static constexpr std::optional<View> checked(std::span<const uint8_t> bytes) {
    if (bytes.size() < kSize) return std::nullopt;
    return at(bytes.data());
  }
  // A view of kSize bytes that the caller knows to be there.
  static constexpr View at(const uint8_t* bytes) {
    View view;
    view.bytes_ = bytes;
    return view;
  }

 protected:
  const uint8_t* bytes_ = nullptr;
};

}  // namespace uroce::wire
