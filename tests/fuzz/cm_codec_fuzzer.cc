// SPDX-License-Identifier: BSD-2-Clause
// What the two ends of a connection to the broker's connection manager send each other, as anybody may write it
// (cm/codec.h).
//
// Checked: nothing but whole messages is taken, and each of them has one form: encoded again it is the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "cm/codec.h"
#include "tests/fuzz/check.h"

namespace uroce::fuzz {
namespace {

void check_same(std::span<const uint8_t> bytes, const cm::Encoded& again) {
  check(std::equal(bytes.begin(), bytes.end(), again.bytes().begin(), again.bytes().end()), "a message has one form");
}

void run(std::span<const uint8_t> bytes) {
  if (const auto request = cm::decode_request(bytes)) check_same(bytes, cm::encode(*request));
  if (const auto answer = cm::decode_answer(bytes)) {
    std::visit([&](const auto& value) { check_same(bytes, cm::encode(value)); }, *answer);
  }
}

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::fuzz::run({data, size});
  return 0;
}
