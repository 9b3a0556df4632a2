// SPDX-License-Identifier: BSD-2-Clause
#include "wire/crc32.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <ostream>
#include <random>
#include <vector>

#include "wire/crc32_kernels.h"

namespace uroce::wire {

void PrintTo(const Crc32Kernel& kernel, std::ostream* out) {
  *out << kernel.name;
}

namespace {

constexpr size_t kMaxSize = 5000;

std::vector<uint8_t> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// states[n]: the reference after n bytes.
std::vector<uint32_t> reference_states(const uint8_t* p, size_t size, uint32_t state) {
  std::vector<uint32_t> states{state};
  for (size_t n = 0; n < size; ++n) states.push_back(crc32_update_reference(states.back(), p + n, 1));
  return states;
}

class Crc32KernelTest : public testing::TestWithParam<Crc32Kernel> {
 protected:
  void SetUp() override {
    if (!GetParam().supported()) GTEST_SKIP() << "this CPU cannot run it";
  }
};

INSTANTIATE_TEST_SUITE_P(All, Crc32KernelTest, testing::ValuesIn(crc32_kernels().begin(), crc32_kernels().end()),
                         [](const auto& kernel) {
                           std::string name = kernel.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(Crc32KernelTest, CheckValueOfTheCatalogue) {
  const auto* digits = reinterpret_cast<const uint8_t*>("123456789");
  EXPECT_EQ(~GetParam().update(0xffffffff, digits, 9), 0xcbf43926);
  EXPECT_EQ(~crc32_update_reference(0xffffffff, digits, 9), 0xcbf43926);
}

TEST_P(Crc32KernelTest, AgreesWithTheReferenceAtEveryLength) {
  for (const size_t offset : {0, 1, 7, 15, 33}) {
    const uint32_t initial = 0x12345678u * static_cast<uint32_t>(offset + 1);
    const std::vector<uint8_t> bytes = random_bytes(offset + kMaxSize, static_cast<uint32_t>(offset));
    const std::vector<uint32_t> expected = reference_states(bytes.data() + offset, kMaxSize, initial);
    for (size_t n = 0; n <= kMaxSize; ++n) {
      ASSERT_EQ(GetParam().update(initial, bytes.data() + offset, n), expected[n]) << "offset " << offset << " n " << n;
    }
  }
}

TEST_P(Crc32KernelTest, ReadsAndWritesNothingOutside) {
  // ASan guards both ends of exact allocations; without it the canaries still guard the writes.
  for (size_t n = 0; n <= 700; ++n) {
    const std::vector<uint8_t> source = random_bytes(n, static_cast<uint32_t>(n));
    const uint32_t expected = crc32_update_reference(1, source.data(), n);
    ASSERT_EQ(GetParam().update(1, source.data(), n), expected) << n;
    std::vector<uint8_t> exact(n);
    ASSERT_EQ(GetParam().copy(1, exact.data(), source.data(), n), expected) << n;
    ASSERT_EQ(exact, source) << n;
    std::vector<uint8_t> guarded(n + 2, 0xee);
    GetParam().copy(1, guarded.data() + 1, source.data(), n);
    ASSERT_EQ(guarded.front(), 0xee) << n;
    ASSERT_EQ(guarded.back(), 0xee) << n;
  }
}

TEST_P(Crc32KernelTest, CopyCopiesAndSumsAtEveryLength) {
  const std::vector<uint8_t> bytes = random_bytes(kMaxSize + 64, 99);
  for (size_t n = 0; n <= kMaxSize; ++n) {
    const size_t source_offset = n % 17, destination_offset = n % 13;
    std::vector<uint8_t> out(destination_offset + n + 1, 0xee);
    const uint32_t state = GetParam().copy(7, out.data() + destination_offset, bytes.data() + source_offset, n);
    ASSERT_EQ(state, GetParam().update(7, bytes.data() + source_offset, n)) << n;
    ASSERT_EQ(std::memcmp(out.data() + destination_offset, bytes.data() + source_offset, n), 0) << n;
    ASSERT_EQ(out.back(), 0xee) << n;
  }
}

TEST_P(Crc32KernelTest, PiecesGiveTheSameAsTheWhole) {
  const std::vector<uint8_t> bytes = random_bytes(kMaxSize, 5);
  const uint32_t whole = crc32_update_reference(0xffffffff, bytes.data(), kMaxSize);
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    uint32_t state = 0xffffffff;
    for (size_t at = 0; at < kMaxSize;) {
      const size_t n = std::min<size_t>(random() % (round % 2 == 0 ? 40 : 1500), kMaxSize - at);
      state = GetParam().update(state, bytes.data() + at, n);
      at += n;
    }
    ASSERT_EQ(state, whole);
  }
}

TEST(Crc32, UsesTheFastestThisCpuHas) {
  for (const Crc32Kernel& kernel : crc32_kernels()) {
    if (!kernel.supported()) continue;
    EXPECT_STREQ(crc32_implementation(), kernel.name);
    break;
  }
  uint8_t out[9];
  const auto* digits = reinterpret_cast<const uint8_t*>("123456789");
  EXPECT_EQ(~crc32_update(0xffffffff, digits, 9), 0xcbf43926);
  EXPECT_EQ(~crc32_copy(0xffffffff, out, digits, 9), 0xcbf43926);
}

}  // namespace
}  // namespace uroce::wire
