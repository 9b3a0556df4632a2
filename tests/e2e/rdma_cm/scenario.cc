// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/rdma_cm/scenario.h"

#include <algorithm>

namespace uroce::cm_exchange {

void check(bool right, const std::string& what) {
  if (!right) throw Wrong(what);
}

size_t request_size(Scenario scenario) {
  switch (scenario) {
    case Scenario::kServerEnds:
      return 9;
    case Scenario::kDestroy:
    case Scenario::kQuit:
      return 1;
    case Scenario::kAcceptDatagrams:
      return kSidrReqRoom;
    case Scenario::kRejectDatagrams:
      return 21;
    default:
      return kReqRoom;
  }
}

std::vector<uint8_t> pattern(uint8_t first, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(first + i * 7 + (i >> 8) * 13);
  return bytes;
}

void check_data(std::span<const uint8_t> came, uint8_t first, size_t sent, size_t room, const std::string& of) {
  check(came.size() == room, of + " brings " + std::to_string(came.size()) + " bytes, not " + std::to_string(room));
  std::vector<uint8_t> expected = pattern(first, sent);
  expected.resize(room);
  const auto wrong = std::mismatch(came.begin(), came.end(), expected.begin());
  check(wrong.first == came.end(),
        of + ": byte " + std::to_string(wrong.first - came.begin()) + " of the private data is wrong");
}

}  // namespace uroce::cm_exchange
