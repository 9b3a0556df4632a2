// SPDX-License-Identifier: BSD-2-Clause
// AF_XDP on one end of a veth pair that changes, UDP sockets or another one on the other end.
#include "process/followed_frames.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "engine/io/udp/udp.h"
#include "tests/engine/io/detach_xdp.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::engine {
namespace {

using io::test::exchange;
using io::test::TestBurst;
using io::test::VethPair;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

// FollowedFrames on end b, told of the netdev as a device does.
class FollowedFramesTest : public testing::Test {
 protected:
  static constexpr int kQueues = 4;

  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    veth_.emplace(VethPair::Options{.mtu = 1500, .queues = kQueues});
    set_queues(1);
    now_.index = veth_->b().ifindex;
    now_.name = veth_->b().netdev;
    now_.mtu = 1500;
    now_.mac = veth_->b().mac;
    now_.addresses = {veth_->b().v4, veth_->b().v6};
  }

  // Of the way from a to b. A veth drops what comes from more queues than there are at the other end.
  void set_queues(int count) {
    const std::string n = std::to_string(count);
    const auto receive = [&] { VethPair::run(veth_->b(), "ethtool -L vb rx " + n); };
    const auto send = [&] { VethPair::run(veth_->a(), "ethtool -L va tx " + n); };
    if (count == 1) send();
    receive();
    if (count > 1) send();
  }
  void set_mtu(uint32_t mtu) {
    VethPair::run(veth_->a(), "ip link set va mtu " + std::to_string(mtu));
    VethPair::run(veth_->b(), "ip link set vb mtu " + std::to_string(mtu));
    now_.mtu = mtu;
  }

  void open(std::optional<wire::QpnRange> qpns = {}, FollowedFrames::Open how = io::AfXdp::open) {
    VethPair::enter(veth_->b());
    io::AfXdpConfig config;
    config.ifindex = now_.index;
    config.netdev = now_.name;
    config.mtu = now_.mtu;
    config.mac = now_.mac;
    config.local_addresses = now_.addresses;
    config.qpns = qpns;
    auto result = FollowedFrames::open(config, std::move(how));
    const auto* const error = std::get_if<io::IoError>(&result);
    ASSERT_EQ(error, nullptr) << error->text();
    frames_ = std::get<std::shared_ptr<FollowedFrames>>(result);
    io_ = frames_->take_io();
    VethPair::enter(veth_->a());
    auto sockets = io::UdpIo::open({.netdev = veth_->a().netdev, .ifindex = veth_->a().ifindex});
    peer_ = std::move(std::get<std::unique_ptr<io::UdpIo>>(sockets));
  }

  // When to look again, in the time of the test.
  Duration follow() {
    VethPair::enter(veth_->b());
    const auto exclusively = [this](const std::function<void()>& step) {
      ++steps_;
      step();
    };
    return frames_->follow(now_, exclusively, time_) - time_;
  }

  // On every queue, both ways.
  void packets_pass(size_t size) {
    for (uint16_t port = 0xc000; port < 0xc000 + 2 * kQueues; ++port) {
      for (const bool to_b : {true, false}) {
        const VethPair::End &from = to_b ? veth_->a() : veth_->b(), &to = to_b ? veth_->b() : veth_->a();
        wire::Envelope envelope = VethPair::envelope_v4(from, to);
        envelope.source_port = port;
        TestBurst burst;
        for (uint32_t psn = 0; psn < 50; ++psn) burst.add(envelope, psn, size);
        exchange(to_b ? *peer_ : *io_, to_b ? *io_ : *peer_, burst);
      }
    }
  }

  std::optional<VethPair> veth_;
  net::Netdev now_;
  Time time_{};
  int steps_ = 0;  // in which nobody moved packets
  std::shared_ptr<FollowedFrames> frames_;
  std::unique_ptr<io::PacketIo> io_, peer_;
};

TEST_F(FollowedFramesTest, StaysAsItIsWhereNothingChanges) {
  open();
  for (const uint32_t mtu : {1500, 1400}) {
    set_mtu(mtu);
    EXPECT_EQ(follow(), 1s);
  }
  EXPECT_EQ(steps_, 0);
  EXPECT_THAT(frames_->take_notices(), IsEmpty());
  packets_pass(1024);
}

TEST_F(FollowedFramesTest, MoreQueuesAreOpenedAnew) {
  open();
  EXPECT_EQ(io_->wait_descriptors().size(), 1u);
  packets_pass(1024);
  set_queues(kQueues);
  follow();
  EXPECT_EQ(steps_, 2) << "taken out, put in";
  EXPECT_EQ(io_->wait_descriptors().size(), size_t{kQueues});
  EXPECT_THAT(frames_->take_notices(),
              ElementsAre(AllOf(HasSubstr("more receive queues (1 when AF_XDP was opened, now 4): opened anew"),
                                HasSubstr("4 queues"))));
  packets_pass(1024);
  const io::IoCounters counters = io_->counters();
  EXPECT_EQ(counters.tx_packets, 2u * 2 * kQueues * 50) << "counted on";
  EXPECT_EQ(counters.tx_errors, 0u);
  follow();
  EXPECT_EQ(steps_, 2) << "once is enough";
  EXPECT_THAT(frames_->take_notices(), IsEmpty());
}

// The QPs of the time with the larger MTU stay when that is over, and those of before all the while.
TEST_F(FollowedFramesTest, ALargerMtuIsUsed) {
  open();
  const uint32_t before = io_->max_udp_length();
  EXPECT_LT(before, 4096u);
  set_mtu(9000);
  follow();
  EXPECT_GE(io_->max_udp_length(), 4096u + 60);
  EXPECT_THAT(frames_->take_notices(), ElementsAre(HasSubstr("MTU has grown (1500 when AF_XDP was opened, now 9000)")));
  packets_pass(4096);
  packets_pass(1024);
  set_mtu(1500);
  follow();
  EXPECT_EQ(steps_, 2);
  EXPECT_GE(io_->max_udp_length(), 4096u + 60);
  packets_pass(1024);
  set_queues(2);  // opened anew while the MTU is small
  follow();
  EXPECT_EQ(steps_, 4);
  EXPECT_GE(io_->max_udp_length(), 4096u + 60) << "packets of 4096 bytes may be on their way";
  packets_pass(1024);
}

TEST_F(FollowedFramesTest, AddressesAreThoseThatWereToldLast) {
  open();
  const wire::IpAddress other = io::test::ipv4(192, 0, 2, 77);
  VethPair::run(veth_->b(), "ip address add 192.0.2.77/24 dev vb");
  now_.addresses.push_back(other);
  ASSERT_EQ(frames_->set_addresses(now_.mac, now_.addresses), 0);
  set_queues(kQueues);
  follow();
  wire::Envelope envelope = VethPair::envelope_v4(veth_->a(), veth_->b());
  envelope.destination = other;
  TestBurst burst;
  burst.add(envelope, 1, 100);
  exchange(*peer_, *io_, burst);
}

// What worked goes on where opening anew is sure to fail, and is done when it is not any more.
TEST_F(FollowedFramesTest, StaysOpenWhereItCouldNotBeOpened) {
  open();
  set_queues(kQueues);
  now_.vlans = {"vb.7"};
  follow();
  EXPECT_EQ(steps_, 0);
  EXPECT_THAT(frames_->take_notices(),
              ElementsAre(HasSubstr("vb.7"), AllOf(HasSubstr("now 4): AF_XDP stays as it is"), HasSubstr("vb.7"))));
  follow();
  EXPECT_THAT(frames_->take_notices(), IsEmpty()) << "said once";
  now_.vlans.clear();
  follow();
  EXPECT_EQ(steps_, 2);
  EXPECT_THAT(frames_->take_notices(), ElementsAre(HasSubstr("4 queues")));
  packets_pass(1024);
}

// uroce run --user: the rights are given up when AF_XDP is open.
TEST_F(FollowedFramesTest, StaysOpenWhereTheRightsAreGone) {
  open();
  set_queues(kQueues);
  set_mtu(9000);
  std::thread([this] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    const auto exclusively = [](const std::function<void()>&) { FAIL(); };
    VethPair::enter(veth_->b());
    ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
    frames_->follow(now_, exclusively, time_);
  }).join();
  EXPECT_THAT(frames_->take_notices(),
              ElementsAre(AllOf(HasSubstr("now 4"), HasSubstr("now 9000"), HasSubstr("stays as it is"),
                                HasSubstr("lacks CAP_NET_RAW"), HasSubstr("start the programs"))));
  follow();
  EXPECT_EQ(steps_, 2);
}

TEST_F(FollowedFramesTest, TriesAgainWhereOpeningFails) {
  int failures = 0;  // still to come
  open({}, [&failures](const io::AfXdpConfig& config) -> io::IoResult<io::AfXdp> {
    if (failures-- > 0) return io::IoError{.code = EBUSY, .what = "somebody is in the way", .remedy = "wait"};
    return io::AfXdp::open(config);
  });
  set_queues(kQueues);
  failures = 2;
  EXPECT_EQ(follow(), 1s);
  EXPECT_FALSE(io_->is_open());
  EXPECT_THAT(frames_->take_notices(), ElementsAre(AllOf(HasSubstr("now 4"), HasSubstr("somebody is in the way"),
                                                         HasSubstr("packets are lost"))));
  TestBurst lost;
  lost.add(VethPair::envelope_v4(veth_->b(), veth_->a()), 1, 100);
  EXPECT_EQ(io_->send(lost.packets()), 1u) << "no reason to wait for room";
  EXPECT_EQ(frames_->set_addresses(now_.mac, now_.addresses), 0);
  time_ += 500ms;
  EXPECT_EQ(follow(), 500ms) << "not before its time";
  EXPECT_EQ(failures, 1);
  time_ += 500ms;
  EXPECT_EQ(follow(), 2s);
  EXPECT_THAT(frames_->take_notices(), IsEmpty()) << "the same again";
  time_ += 2s;
  EXPECT_EQ(follow(), 1s);
  EXPECT_TRUE(io_->is_open());
  EXPECT_THAT(frames_->take_notices(), ElementsAre(HasSubstr("opened anew")));
  packets_pass(1024);
}

// Whoever does that means it: it is said, and not undone.
TEST_F(FollowedFramesTest, AProgramThatSomebodyDetachesIsSaid) {
  for (const bool leased : {false, true}) {
    frames_.reset();
    io_.reset();
    peer_.reset();
    open(leased ? std::optional(wire::QpnRange{1 << 14, 1 << 14}) : std::nullopt);
    io::test::detach_xdp(veth_->b());
    follow();
    EXPECT_THAT(frames_->take_notices(), ElementsAre(AllOf(HasSubstr("somebody has detached"), HasSubstr("again"),
                                                           HasSubstr(leased ? "sockets" : "are lost"))));
    follow();
    EXPECT_THAT(frames_->take_notices(), IsEmpty());
    EXPECT_EQ(steps_, 0);
    EXPECT_FALSE(io::attached_xdp_program(now_.index));
  }
}

}  // namespace
}  // namespace uroce::engine
