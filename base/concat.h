// SPDX-License-Identifier: BSD-2-Clause
// Text for people from parts, without a formatting library: the engine lives in other people's processes.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace uroce {

// The parts one after the other; a part is text or a number.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string all;
  const auto append = [&all](const auto& part) {
    if constexpr (std::integral<std::remove_cvref_t<decltype(part)>>) {
      all += std::to_string(part);
    } else {
      all += std::string_view(part);
    }
  };
  (append(parts), ...);
  return all;
}

}  // namespace uroce
