// SPDX-License-Identifier: BSD-2-Clause
// The rings between two processes: what an honest pair gets, and what a hostile side does to the other.
#include "engine/io/same_host/ring.h"

#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/engine/io/same_host/hostile_memory.h"

namespace uroce::io::test {
namespace {

class Ring : public testing::Test {
 protected:
  HostileMemory memory_;
  RingWriter writer_{memory_.writers(), memory_.readers(), memory_.bytes()};
  RingReader reader_{memory_.readers(), memory_.writers(), memory_.bytes()};

  bool write(size_t size, uint8_t content) {
    uint8_t* const at = writer_.reserve(size);
    if (at == nullptr) return false;
    std::memset(at, content, size);
    writer_.add(size);
    return true;
  }
  // Size and content of the next record.
  std::vector<uint8_t> read() {
    const std::span<const uint8_t> record = reader_.front();
    std::vector<uint8_t> copy(record.begin(), record.end());
    if (!copy.empty()) reader_.pop();
    return copy;
  }
};

TEST_F(Ring, RecordsOfAnyLengthArriveInOrder) {
  for (uint32_t i = 0; i < 5000; ++i) {
    const size_t size = 1 + i * 37 % 5000;
    ASSERT_TRUE(write(size, static_cast<uint8_t>(i)));
    EXPECT_TRUE(reader_.empty()) << "nothing is seen before it is published";
    writer_.publish();
    ASSERT_EQ(read(), std::vector<uint8_t>(size, static_cast<uint8_t>(i)));
    reader_.release();
  }
  EXPECT_TRUE(reader_.empty());
}

TEST_F(Ring, FullUntilTheReaderReturnsWhatItHasRead) {
  size_t written = 0;
  while (write(1000, static_cast<uint8_t>(written))) ++written;
  EXPECT_GT(written, kRingSize / 1100);
  writer_.publish();
  EXPECT_EQ(read().size(), 1000u);
  EXPECT_FALSE(write(1000, 0)) << "it may still be looked at";
  reader_.release();
  EXPECT_TRUE(write(1000, 0));
  EXPECT_FALSE(write(1000, 0));
}

TEST_F(Ring, WhoSleepsIsWokenOnce) {
  write(1, 1);
  EXPECT_TRUE(writer_.publish()) << "nobody has looked yet";
  write(1, 2);
  EXPECT_FALSE(writer_.publish());
  EXPECT_FALSE(reader_.sleep()) << "there are records";
  read();
  read();
  write(1, 3);
  EXPECT_TRUE(writer_.publish()) << "it was about to sleep";
  read();
  EXPECT_TRUE(reader_.sleep());
  EXPECT_FALSE(writer_.publish()) << "nothing to tell of";
  write(1, 4);
  EXPECT_TRUE(writer_.publish());
  write(1, 5);
  EXPECT_FALSE(writer_.publish());
}

// Fails below ThreadSanitizer.
TEST_F(Ring, EachSideMayHaveAThreadOfItsOwn) {
  constexpr uint32_t kRecords = 20'000;
  std::thread sender([this] {
    for (uint32_t i = 0; i < kRecords;) {
      if (write(1 + i % 3000, static_cast<uint8_t>(i))) {
        ++i;
      } else {
        std::this_thread::yield();
      }
      writer_.publish();
    }
  });
  for (uint32_t i = 0; i < kRecords;) {
    const std::vector<uint8_t> record = read();
    if (record.empty()) {
      reader_.release();
      std::this_thread::yield();
    } else {
      ASSERT_EQ(record, std::vector<uint8_t>(1 + i % 3000, static_cast<uint8_t>(i)));
      ++i;
    }
  }
  sender.join();
}

// What a hostile writer says: index, and length of the record at the beginning.
struct Lie {
  const char* name;
  uint64_t tail;
  uint32_t length;
};

class HostileWriter : public testing::TestWithParam<Lie> {};

TEST_P(HostileWriter, IsNotBelieved) {
  HostileMemory memory;
  RingReader reader(memory.readers(), memory.writers(), memory.bytes());
  memory.set_length(0, GetParam().length);
  memory.writers().tail = GetParam().tail;
  EXPECT_TRUE(reader.front().empty());
  EXPECT_TRUE(reader.broken());
  memory.set_length(0, 4);
  memory.writers().tail = 16;
  EXPECT_TRUE(reader.front().empty()) << "for good";
  EXPECT_TRUE(reader.sleep());
}

INSTANTIATE_TEST_SUITE_P(Lies, HostileWriter,
                         testing::Values(Lie{"no_length", 64, 0}, Lie{"longer_than_written", 64, 61},
                                         Lie{"longer_than_the_ring", kRingSize, kRingSize}, Lie{"huge", 64, 0xffffffff},
                                         Lie{"wraps", 64, 0xfffffff0}, Lie{"less_than_a_record", 3, 1},
                                         Lie{"more_than_the_ring", kRingSize + 16, 16},
                                         Lie{"before", ~uint64_t{0}, 16}),
                         [](const auto& test) { return test.param.name; });

TEST_F(Ring, AnIndexThatGoesBackIsNotBelieved) {
  write(100, 1);
  writer_.publish();
  read();
  memory_.writers().tail = 0;
  EXPECT_TRUE(reader_.front().empty());
  EXPECT_TRUE(reader_.broken());
}

// The worst that it can do is to have its own packets overwritten.
TEST_F(Ring, AReaderThatLiesSeesNoMoreThanTheRing) {
  write(100, 1);
  for (const uint64_t head : {uint64_t{112}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{0}}) {
    memory_.readers().head = head;
    for (int i = 0; i < 1000; ++i) {
      uint8_t* const at = writer_.reserve(4000);
      if (at == nullptr) break;
      ASSERT_GE(at, memory_.bytes());
      ASSERT_LE(at + 4000, memory_.bytes() + 2 * kRingSize);
      writer_.add(4000);
    }
    EXPECT_EQ(writer_.reserve(4000), nullptr) << "a full ring, head " << head;
  }
}

}  // namespace
}  // namespace uroce::io::test
