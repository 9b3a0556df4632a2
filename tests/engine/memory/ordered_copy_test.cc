// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/ordered_copy.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <vector>

namespace uroce::memory {
namespace {

TEST(OrderedCopy, CopiesWhatItIsToldAndNothingElse) {
  std::mt19937 random(1);
  std::vector<uint8_t> source(512), copied(512), expected(512);
  for (size_t size = 0; size <= 300; ++size) {
    for (size_t to = 0; to < 64; ++to) {
      const size_t from = random() % 64;
      std::generate(source.begin(), source.end(), [&] { return static_cast<uint8_t>(random()); });
      copied = expected;
      copy_in_order(&copied[to], &source[from], size);
      std::memcpy(&expected[to], &source[from], size);
      ASSERT_EQ(copied, expected) << size << " bytes from " << from << " to " << to;
    }
  }
}

// What another core sees of it. memcpy() fails this within a few thousand messages of 1 KiB, where the cores are two.
class Poller : public testing::TestWithParam<size_t> {};

TEST_P(Poller, WhoSeesTheLastByteSeesAllBytes) {
  constexpr uint32_t kMessages = 3'000;
  const size_t size = GetParam();
  for (const size_t offset : {0, 8, 13}) {
    alignas(64) static uint8_t place[65536 + 64];
    std::memset(place, 0, sizeof(place));
    uint8_t* const begin = &place[offset];
    std::atomic<uint32_t> seen{0}, torn{0};
    const uint32_t messages = kMessages / static_cast<uint32_t>(1 + size / 4096);
    std::thread poller([&] {
      for (uint32_t message = 1; message <= messages; ++message) {
        const auto value = static_cast<uint8_t>(message);
        for (int spins = 1; __atomic_load_n(&begin[size - 1], __ATOMIC_ACQUIRE) != value; ++spins) {
          if (spins % 4096 == 0) std::this_thread::yield();  // there may be one core only
        }
        for (size_t i = 0; i < size; i += 32) torn += __atomic_load_n(&begin[i], __ATOMIC_RELAXED) != value ? 1 : 0;
        seen.store(message, std::memory_order_release);
      }
    });
    std::vector<uint8_t> source(size);
    for (uint32_t message = 1; message <= messages; ++message) {
      std::memset(source.data(), static_cast<uint8_t>(message), size);
      copy_in_order(begin, source.data(), size);
      while (seen.load(std::memory_order_acquire) != message) std::this_thread::yield();
    }
    poller.join();
    EXPECT_EQ(torn, 0u) << size << " bytes at " << offset;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Poller, testing::Values(8, 16, 24, 64, 100, 256, 1000, 1024, 4096, 65536),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace uroce::memory
