// SPDX-License-Identifier: BSD-2-Clause
// Messages between clients and broker: what is taken for one and what is not.
#include "broker/protocol/protocol.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/passed_descriptors.h"

namespace uroce::broker {
namespace {

class ProtocolTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    near_.reset(ends[0]);
    far_.reset(ends[1]);
  }
  int receive() { return broker::receive(far_.get(), got_, descriptors_, 1000); }
  int outcome_of(const Message& message) {
    EXPECT_EQ(send(near_.get(), message), 0);
    return receive();
  }

  UniqueFd near_, far_;
  Message got_;
  Descriptors descriptors_;
};

TEST_F(ProtocolTest, MessageArrivesWithItsDescriptors) {
  Message message = make_message(Kind::kGranted, "text");
  message.range = 77;
  const UniqueFd a(eventfd(0, EFD_CLOEXEC)), b(eventfd(0, EFD_CLOEXEC));
  const std::array numbers{a.get(), b.get()};
  ASSERT_EQ(send(near_.get(), message, numbers), 0);
  ASSERT_EQ(receive(), 0);
  EXPECT_EQ(got_.kind, Kind::kGranted);
  EXPECT_EQ(got_.range, 77u);
  EXPECT_EQ(text_of(got_), "text");
  EXPECT_TRUE(descriptors_[0] && descriptors_[1]);
  EXPECT_FALSE(descriptors_[2] || descriptors_[3]);
  EXPECT_NE(fcntl(descriptors_[1].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(ProtocolTest, LongTextIsCutAndControlCharactersAreReplaced) {
  const Message cut = make_message(Kind::kRefused, std::string(1000, 'x'));
  EXPECT_EQ(text_of(cut), std::string(cut.text.size() - 1, 'x'));
  EXPECT_EQ(text_of(make_message(Kind::kRefused, "a\x1b[2J\nb\x7f")), "a?[2J?b?");
}

TEST_F(ProtocolTest, WhatIsNoMessageIsRefused) {
  Message message = make_message(Kind::kHello);
  message.magic ^= 1;
  EXPECT_EQ(outcome_of(message), EPROTO);
  message = make_message(static_cast<Kind>(0));
  EXPECT_EQ(outcome_of(message), EPROTO);
  message = make_message(static_cast<Kind>(static_cast<int>(kLastKind) + 1));
  EXPECT_EQ(outcome_of(message), EPROTO);
  message = make_message(Kind::kLease);
  message.plane = static_cast<Plane>(static_cast<int>(kLastPlane) + 1);
  EXPECT_EQ(outcome_of(message), EPROTO);
  message = make_message(Kind::kHello);
  message.text.fill('x');  // without an end
  EXPECT_EQ(outcome_of(message), EPROTO);
}

TEST_F(ProtocolTest, AnotherVersionIsToldApart) {
  Message message = make_message(Kind::kHello);
  message.version = kProtocolVersion + 1;
  message.kind = static_cast<Kind>(999);  // which it may mean something in
  EXPECT_EQ(outcome_of(message), ENOTSUP);
}

TEST_F(ProtocolTest, ShortLongAndMissingMessages) {
  std::array<uint8_t, sizeof(Message) + 1> bytes{};
  ASSERT_GT(::send(near_.get(), bytes.data(), sizeof(Message) - 1, 0), 0);
  EXPECT_EQ(receive(), EPROTO);
  ASSERT_GT(::send(near_.get(), bytes.data(), sizeof(Message) + 1, 0), 0);
  EXPECT_EQ(receive(), EPROTO);
  EXPECT_EQ(broker::receive(far_.get(), got_, descriptors_, 0), ETIMEDOUT);
  near_.reset();
  EXPECT_EQ(receive(), ECONNRESET);
}

// More than anybody asked for: none stays open, whether the kernel cut them or not.
TEST_F(ProtocolTest, TooManyDescriptorsAreClosed) {
  const UniqueFd one(eventfd(0, EFD_CLOEXEC));
  const Message message = make_message(Kind::kClaim);
  std::array<int, 50> numbers;
  numbers.fill(one.get());
  ASSERT_EQ(send_with_descriptors(near_.get(), {reinterpret_cast<const uint8_t*>(&message), sizeof(message)}, numbers),
            0);
  const int before = UniqueFd(dup(one.get())).get();
  EXPECT_EQ(receive(), EPROTO);
  EXPECT_FALSE(descriptors_[0]);
  EXPECT_EQ(UniqueFd(dup(one.get())).get(), before) << "the lowest free number is what it was";
}

}  // namespace
}  // namespace uroce::broker
