// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/notices.h"

#include <atomic>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using What = Notice::What;

Notice too_long(uint8_t host, uint32_t length) {
  return {.what = What::kTooLong, .to = ipv4(192, 0, 2, host), .error = EMSGSIZE, .length = length};
}

TEST(Notices, AreTakenOnce) {
  Notices notices;
  EXPECT_FALSE(notices.any());
  for (int i = 0; i < 3; ++i) notices.note(too_long(1, 1100));
  EXPECT_TRUE(notices.any());
  EXPECT_THAT(notices.take(),
              ElementsAre("packets of 1100 bytes to 192.0.2.1 are longer than the path takes now (Message "
                          "too long): they are lost; make its MTU larger again, or use a smaller path "
                          "MTU"));
  notices.note(too_long(1, 1000));
  EXPECT_THAT(notices.take(), IsEmpty());
  notices.end(What::kTooLong, ipv4(192, 0, 2, 1), 999);
  EXPECT_TRUE(notices.any());
  notices.end(What::kTooLong, ipv4(192, 0, 2, 1), 1000);
  EXPECT_FALSE(notices.any());
  notices.note(too_long(2, 1100));
  EXPECT_THAT(notices.take(), SizeIs(1));
}

TEST(Notices, AreGivenAgainAfterItWorked) {
  Notices notices;
  notices.note(too_long(1, 1100));
  notices.take();
  notices.end(What::kTooLong, ipv4(192, 0, 2, 1), 1099);
  EXPECT_TRUE(notices.any()) << "shorter packets have always worked";
  notices.end(What::kRunsRefused, ipv4(192, 0, 2, 1), 1100);
  notices.end(What::kTooLong, ipv4(192, 0, 2, 2), 1100);
  EXPECT_TRUE(notices.any());
  notices.end(What::kTooLong, ipv4(192, 0, 2, 1), 1100);
  EXPECT_FALSE(notices.any());
  notices.note(too_long(1, 1100));
  EXPECT_THAT(notices.take(), SizeIs(1));
}

TEST(Notices, AreBounded) {
  Notices notices;
  for (size_t i = 0; i < 2 * Notices::kMost; ++i) notices.note(too_long(static_cast<uint8_t>(i), 1100));
  EXPECT_THAT(notices.take(), SizeIs(Notices::kMost));
  notices.end(What::kTooLong, ipv4(192, 0, 2, 3), 1100);
  notices.note(too_long(200, 1100));
  EXPECT_THAT(notices.take(), SizeIs(1));
}

TEST(Notices, AreTakenByAnotherThread) {
  Notices notices;
  std::atomic<size_t> taken = 0;
  std::thread says([&] {
    while (taken.load(std::memory_order_relaxed) < 100)
      taken.fetch_add(notices.take().size(), std::memory_order_relaxed);
  });
  for (uint8_t host = 0; taken.load(std::memory_order_relaxed) < 100; ++host) {
    notices.note(too_long(host, 1100));
    notices.end(What::kTooLong, ipv4(192, 0, 2, static_cast<uint8_t>(host - 3)), 1100);
  }
  says.join();
}

}  // namespace
}  // namespace uroce::io::test
