// SPDX-License-Identifier: BSD-2-Clause
// Errors of steering, for people.
#pragma once

#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace uroce::broker {

// `error`: errno value of the call.
inline io::IoError failed(int error, const std::string& call, std::string remedy) {
  return {error, call + ": " + std::generic_category().message(error), std::move(remedy)};
}

// What a client of an earlier broker has brought.
inline io::IoError refused(int code, const std::string& what) {
  return {code, "sockets of an earlier lease: " + what, "open the device again"};
}

}  // namespace uroce::broker
