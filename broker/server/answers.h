// SPDX-License-Identifier: BSD-2-Clause
// What the broker answers (broker/protocol/protocol.h).
#pragma once

#include <cstdint>
#include <string>

#include "broker/protocol/protocol.h"

namespace uroce::broker {

inline Message refusal(int error, const std::string& text) {
  Message message = make_message(Kind::kRefused, text);
  message.error = error;
  return message;
}

inline Message granted(uint32_t range) {
  Message message = make_message(Kind::kGranted);
  message.range = range;
  return message;
}

}  // namespace uroce::broker
