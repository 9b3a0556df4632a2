// SPDX-License-Identifier: BSD-2-Clause
// The ring between the packet path and the writer of a capture.
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <vector>

#include "capture/ring.h"

namespace uroce::io::test {
namespace {

TEST(CaptureRing, GivesBackWhatWasPutInAndRefusesWhatDoesNotFit) {
  CaptureRing ring(4096);
  std::mt19937 random(5);
  std::vector<std::vector<uint8_t>> in_ring;  // the model
  size_t refused = 0, wrapped = 0;
  for (int step = 0; step < 20000; ++step) {
    const size_t size = random() % 600;
    if (uint8_t* const room = ring.reserve(size)) {
      std::vector<uint8_t> content(size);
      for (uint8_t& byte : content) byte = static_cast<uint8_t>(random());
      std::copy(content.begin(), content.end(), room);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(room) % 8, 0u);
      ring.commit();
      in_ring.push_back(std::move(content));
    } else {
      ++refused;
      ASSERT_GT(ring.used() + 2 * 616, ring.size()) << "refused with room to spare";
    }
    while (!in_ring.empty() && random() % 3 == 0) {
      const std::span<uint8_t> front = ring.front();
      ASSERT_TRUE(std::equal(front.begin(), front.end(), in_ring.front().begin(), in_ring.front().end()));
      ring.pop();
      in_ring.erase(in_ring.begin());
      ++wrapped;
    }
    ASSERT_EQ(in_ring.empty(), ring.front().data() == nullptr);
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(wrapped, 1000u);
  EXPECT_EQ(ring.reserve(4096), nullptr) << "can never fit";
}

TEST(CaptureRing, OneThreadFillsWhileAnotherEmpties) {
  CaptureRing ring(1 << 14);
  constexpr uint32_t kEntries = 50000;
  std::thread producer([&] {
    for (uint32_t i = 0; i < kEntries;) {
      uint8_t* const room = ring.reserve(4 + i % 200);
      if (room == nullptr) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(room, &i, sizeof(i));
      ring.commit();
      ++i;
    }
  });
  for (uint32_t i = 0; i < kEntries;) {
    const std::span<uint8_t> front = ring.front();
    if (front.data() == nullptr) {
      std::this_thread::yield();
      continue;
    }
    uint32_t value;
    std::memcpy(&value, front.data(), sizeof(value));
    EXPECT_EQ(value, i);
    EXPECT_EQ(front.size(), 4 + i % 200);
    ring.pop();
    ++i;
  }
  producer.join();
}

}  // namespace
}  // namespace uroce::io::test
