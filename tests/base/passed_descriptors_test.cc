// SPDX-License-Identifier: BSD-2-Clause
// Descriptors with bytes over a UNIX socket: no more come than there is room for, and none stays open unseen.
#include "base/passed_descriptors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <vector>

#include "base/message_socket.h"

namespace uroce {
namespace {

class PassedDescriptorsTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    near_.reset(ends[0]);
    far_.reset(ends[1]);
  }
  int send(size_t count) {
    const std::vector<int> numbers(count, event_.get());
    return send_with_descriptors(near_.get(), kBytes, numbers);
  }
  ReceivedBytes receive(std::span<UniqueFd> room, int flags = 0) {
    std::array<uint8_t, kBytes.size()> bytes{};
    const ReceivedBytes received = receive_with_descriptors(far_.get(), bytes, room, flags | MSG_DONTWAIT);
    if (received.error == 0) EXPECT_EQ(bytes, kBytes);
    return received;
  }
  // The lowest number that is free.
  int lowest() const { return UniqueFd(dup(event_.get())).get(); }

  static constexpr std::array<uint8_t, 3> kBytes{1, 2, 3};
  const UniqueFd event_{eventfd(0, EFD_CLOEXEC)};
  UniqueFd near_, far_;
};

TEST_F(PassedDescriptorsTest, AsManyAsTheKernelTakesComeInOrder) {
  ASSERT_EQ(send(kMostPassedDescriptors), 0);
  EXPECT_EQ(send(kMostPassedDescriptors + 1), EINVAL);
  std::array<UniqueFd, kMostPassedDescriptors + 1> room;
  const ReceivedBytes received = receive(room);
  EXPECT_EQ(received.descriptors, kMostPassedDescriptors);
  EXPECT_FALSE(received.descriptors_lost || received.bytes_lost);
  EXPECT_FALSE(room.back());
  EXPECT_NE(fcntl(room[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(receive(room).error, EAGAIN);
}

// What is said is known all the same, and nothing stays open.
TEST_F(PassedDescriptorsTest, AProcessThatMayOpenNoMoreReadsTheMessage) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<UniqueFd> holes;  // below what this process has been started with
  for (int i = 0; i < 64; ++i) holes.emplace_back(dup(event_.get()));
  for (const size_t free : {0, 1, 2}) {
    ASSERT_EQ(send(2), 0);
    const int before = lowest();
    const rlimit low{static_cast<rlim_t>(before) + free, limit.rlim_max};
    std::array<uint8_t, kBytes.size()> bytes{};
    Descriptors came;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    const int error = receive_message(far_.get(), bytes, came, 0);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(error, free < 2 ? EMFILE : 0) << free;
    EXPECT_EQ(bytes, kBytes);
    EXPECT_EQ(bool{came[0]}, free == 2);
    came = {};
    EXPECT_EQ(lowest(), before);
  }
}

TEST_F(PassedDescriptorsTest, NoMoreThanThereIsRoomForStayOpen) {
  for (size_t room = 0; room <= 5; ++room) {
    for (const size_t sent : {size_t{0}, room, room + 1, size_t{200}}) {
      const int before = lowest();
      ASSERT_EQ(send(sent), 0);
      {
        std::array<UniqueFd, 5> places;
        const ReceivedBytes received = receive(std::span(places).first(room));
        EXPECT_EQ(received.descriptors, std::min(room, sent));
        EXPECT_EQ(received.descriptors_lost, sent > room) << sent << ' ' << room;
      }
      EXPECT_EQ(lowest(), before) << sent << ' ' << room;
    }
  }
}

TEST_F(PassedDescriptorsTest, WhatIsPeekedAtStays) {
  ASSERT_EQ(send(2), 0);
  std::array<UniqueFd, 4> room;
  EXPECT_TRUE(receive({}, MSG_PEEK).descriptors_lost);
  EXPECT_EQ(receive(room, MSG_PEEK).descriptors, 2u);
  EXPECT_EQ(receive(room).descriptors, 2u);
}

TEST_F(PassedDescriptorsTest, TooManyBytesAreSaid) {
  ASSERT_EQ(send(1), 0);
  std::array<uint8_t, 2> bytes{};
  std::array<UniqueFd, 1> room;
  const ReceivedBytes received = receive_with_descriptors(far_.get(), bytes, room, 0);
  EXPECT_TRUE(received.bytes_lost);
  EXPECT_EQ(received.descriptors, 1u);
}

}  // namespace
}  // namespace uroce
