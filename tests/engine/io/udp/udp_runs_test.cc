// SPDX-License-Identifier: BSD-2-Clause
// Runs of packets through real UDP sockets.
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "engine/io/af_xdp/af_xdp.h"
#include "engine/io/fault_injector.h"
#include "engine/io/udp/message.h"
#include "engine/io/udp/udp.h"
#include "engine/memory/memory_access.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class UdpRuns : public testing::Test {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    veth_ = std::make_unique<VethPair>(VethPair::Options{.mtu = kMtu, .queues = 1});
    a_ = open(veth_->a());
    b_ = open(veth_->b());
    ASSERT_TRUE(a_ && b_);
  }

  static constexpr uint32_t kMtu = 4200;
  static std::unique_ptr<UdpIo> open(const VethPair::End& end) {
    VethPair::enter(end);
    IoResult<UdpIo> result = UdpIo::open({.netdev = end.netdev, .ifindex = end.ifindex});
    if (std::holds_alternative<IoError>(result)) return nullptr;
    return std::move(std::get<std::unique_ptr<UdpIo>>(result));
  }
  wire::Envelope envelope(bool v4) const {
    return v4 ? VethPair::envelope_v4(veth_->a(), veth_->b()) : VethPair::envelope_v6(veth_->a(), veth_->b());
  }
  TestBurst equal_packets(size_t count, size_t payload, bool v4 = true) const {
    TestBurst burst;
    for (uint32_t psn = 0; psn < count; ++psn) burst.add(envelope(v4), psn, payload);
    return burst;
  }
  // Everything that `count` packets need to arrive.
  std::vector<RxPacket> receive(size_t count) {
    std::vector<RxPacket> all(count);
    size_t arrived = 0;
    EXPECT_TRUE(eventually([&] {
      arrived += b_->receive(std::span(all).subspan(arrived));
      return arrived == count;
    })) << arrived
        << " of " << count;
    return all;
  }

  std::unique_ptr<VethPair> veth_;
  std::unique_ptr<UdpIo> a_, b_;
};

TEST_F(UdpRuns, EqualPacketsLeaveAndArriveTogether) {
  for (const bool v4 : {true, false}) {
    for (const size_t payload : {0, 1, 8, 24, 1024, 2048, 4096}) exchange(*a_, *b_, equal_packets(200, payload, v4));
  }
  const IoCounters sent = a_->counters(), received = b_->counters();
  EXPECT_EQ(sent.tx_run_packets, 14u * 200u);
  EXPECT_EQ(received.rx_runs, sent.tx_runs);
  EXPECT_EQ(received.rx_run_packets, sent.tx_run_packets);
  EXPECT_EQ(received.rx_packets, 14u * 200u);
  EXPECT_EQ(received.rx_bytes, sent.tx_bytes);
}

// As a WRITE's: the first packet is longer, the last one shorter, and another QP's or a short one is between.
TEST_F(UdpRuns, PacketsOfAllLengthsKeepTheirOrder) {
  for (const bool v4 : {true, false}) {
    TestBurst burst;
    uint32_t psn = 0;
    for (const size_t payload :
         {1040u, 1024u, 1024u, 1024u, 100u, 8u, 8u, 8u, 12u, 12u, 4096u, 4096u, 3u, 2u, 1u, 0u, 1024u, 1024u}) {
      burst.add(envelope(v4), psn, payload, payload < 3 ? 1 : 1 + psn % 3);
      ++psn;
    }
    exchange(*a_, *b_, burst);
  }
}

// The sending netdev cuts in software where it cannot offload, and IDs count up on the wire. A receiver without offload
// gets packets one by one; one that joins them again gets runs that begin anywhere.
TEST_F(UdpRuns, RunsThatTheKernelCuts) {
  VethPair::run(veth_->a(), "ethtool -K va tx-udp-segmentation off");
  for (const bool v4 : {true, false}) exchange(*a_, *b_, equal_packets(300, 1024, v4));
  EXPECT_GT(a_->counters().tx_runs, 0u);
  EXPECT_EQ(b_->counters().rx_runs, 0u);
}

TEST_F(UdpRuns, RunsThatAreCutAndJoinedAgain) {
  VethPair::run(veth_->a(), "ethtool -K va tso off tx-udp-segmentation off");
  VethPair::run(veth_->b(), "ethtool -K vb gro on");
  for (const bool v4 : {true, false}) exchange(*a_, *b_, equal_packets(300, 1024, v4));
  EXPECT_GT(b_->counters().rx_runs, 0u);
}

// An XDP program at the receiver, of somebody else, lets everything pass: in the driver it makes the sender's netdev
// cut.
TEST_F(UdpRuns, PassAnXdpProgram) {
  for (const bool generic : {false, true}) {
    const VethPair::End& b = veth_->b();
    VethPair::enter(b);
    const IoResult<AfXdp> result = AfXdp::open({.ifindex = b.ifindex,
                                                .netdev = b.netdev,
                                                .mtu = kMtu,
                                                .mac = b.mac,
                                                .local_addresses = {},
                                                .vlans = {},
                                                .force_generic = generic});
    ASSERT_TRUE(std::holds_alternative<std::unique_ptr<AfXdp>>(result));
    const uint64_t runs = b_->counters().rx_runs;
    for (const bool v4 : {true, false}) exchange(*a_, *b_, equal_packets(300, 1024, v4));
    EXPECT_EQ(b_->counters().rx_runs > runs, generic);
  }
  exchange(*a_, *b_, equal_packets(300, 1024));
}

// --- what others send -----------------------------------------------------------------------------------------------

class ForeignRuns : public UdpRuns {
 protected:
  void SetUp() override {
    UdpRuns::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    a_.reset();  // its port is ours now
    VethPair::enter(veth_->a());
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int df = IP_PMTUDISC_DO;
    ASSERT_EQ(setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &df, sizeof(df)), 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(wire::kRoceUdpPort);
    ASSERT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
  }
  void TearDown() override {
    if (socket_ >= 0) close(socket_);
  }

  // The packets of `burst` with such IDs, as bytes of one run.
  template <class IdOf>
  static std::vector<uint8_t> staged(TestBurst& burst, IdOf&& id_of) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < burst.size(); ++i) {
      const size_t at = bytes.size();
      bytes.resize(at + burst.packets()[i].udp_length() - wire::kUdpSize);
      EXPECT_EQ(stage_packet(burst.packets()[i], id_of(i), &bytes[at]), bytes.size() - at);
    }
    return bytes;
  }
  void send(std::span<uint8_t> bytes, size_t segment) {
    UdpTxSlot slot;
    msghdr message;
    prepare_send(slot, envelope(true), veth_->a().ifindex, bytes, segment, message);
    ASSERT_EQ(sendmsg(socket_, &message, 0), static_cast<ssize_t>(bytes.size())) << strerror(errno);
  }

  int socket_ = -1;
};

TEST_F(ForeignRuns, IdsMayBeginAnywhereOrStayTheSame) {
  for (const size_t base : {0, 1, 17, 65530}) {
    for (const size_t step : {0, 1}) {
      TestBurst burst = equal_packets(40, 1024);
      std::vector<uint8_t> bytes = staged(burst, [=](size_t i) { return base + i * step; });
      send(bytes, 1040);
      const std::vector<RxPacket> received = receive(40);
      for (size_t i = 0; i < 40; ++i) {
        burst.expect_arrived(i, received[i]);
        // Where the second one has ID 1 the first one is taken to have 0.
        if (base == 1 && step == 0) continue;
        EXPECT_EQ(received[i].envelope.ip_id, static_cast<uint16_t>(base + i * step)) << base << " " << step;
      }
    }
  }
}

TEST_F(ForeignRuns, ADamagedPacketIsOneDamagedPacket) {
  for (const size_t damaged : {0, 1, 7, 39}) {
    TestBurst burst = equal_packets(40, 1024);
    std::vector<uint8_t> bytes = staged(burst, [](size_t i) { return i; });
    for (size_t i = 100; i < 104; ++i) bytes[damaged * 1040 + i] ^= static_cast<uint8_t>(0x31 + i);
    send(bytes, 1040);
    const std::vector<RxPacket> received = receive(40);
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(wire::icrc_matches(received[i].envelope, received[i].ib), i != damaged) << i << " " << damaged;
    }
  }
}

// Segments of a byte, as many as the kernel lets through, and more of them than one call takes.
TEST_F(ForeignRuns, CrumbsAreHandedOutAndBounded) {
  std::vector<uint8_t> bytes(64, 0xaa);
  for (const size_t segment : {1, 3, 15, 63, 64}) {
    send(bytes, segment);
    std::array<RxPacket, 10> received;
    size_t total = 0;
    EXPECT_TRUE(eventually([&] {
      const size_t count = b_->receive(received);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_LE(received[i].ib.size(), segment);
        EXPECT_FALSE(wire::icrc_matches(received[i].envelope, received[i].ib));
        total += received[i].ib.size();
      }
      if (total < bytes.size() && total > 0) {
        EXPECT_FALSE(b_->prepare_to_wait()) << "some are waiting";
      }
      return total >= bytes.size();
    }));
    EXPECT_EQ(total, bytes.size());
  }
  send({}, 0);  // an empty datagram
  const std::vector<RxPacket> empty = receive(1);
  EXPECT_TRUE(empty[0].ib.empty());
}

// --- kernels and paths that cannot ----------------------------------------------------------------------------------

// Refuses messages as paths do that this machine does not have: errno value, or 0.
std::function<int(const msghdr&)> refusal;

bool is_run(const msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT) return true;
  }
  return false;
}

class RefusedRuns : public UdpRuns {
 protected:
  void TearDown() override { refusal = nullptr; }
};

// A route with IPsec takes packets and no runs, and other routes take both.
TEST_F(RefusedRuns, ToOneDestinationLeaveOthersAlone) {
  VethPair::run(veth_->b(), "ip address add 192.0.2.22/24 dev vb");
  const wire::IpAddress protected_address = ipv4(192, 0, 2, 22);
  refusal = [&](const msghdr& message) {
    const auto& to = *static_cast<const sockaddr_in*>(message.msg_name);
    const bool goes_there = std::memcmp(&to.sin_addr, protected_address.v4_bytes(), 4) == 0;
    return goes_there && is_run(message) ? EIO : 0;
  };
  wire::Envelope other = envelope(true);
  other.destination = protected_address;
  TestBurst burst = equal_packets(20, 1024);
  for (uint32_t psn = 20; psn < 40; ++psn) burst.add(other, psn, 1024);
  for (uint32_t psn = 40; psn < 60; ++psn) burst.add(envelope(true), psn, 1024);
  exchange(*a_, *b_, burst);
  EXPECT_EQ(a_->counters().tx_errors, 0u);
  EXPECT_EQ(a_->counters().tx_run_packets, 40u);
  EXPECT_EQ(a_->counters().tx_run_refusals, 1u);
  EXPECT_THAT(a_->take_notices(), ElementsAre(HasSubstr("192.0.2.22 (Input/output error)")));
  exchange(*a_, *b_, burst);
  EXPECT_EQ(a_->counters().tx_run_packets, 80u);
  EXPECT_EQ(a_->counters().tx_run_refusals, 1u) << "not tried again so soon";
  EXPECT_THAT(a_->take_notices(), IsEmpty());
}

// A socket without checksums cannot send runs: EINVAL, as of an IPsec route EIO.
TEST_F(UdpRuns, RefusedRunsLeaveAsPackets) {
  const int no_checksum = 1;
  ASSERT_EQ(setsockopt(a_->wait_descriptors()[0].fd, SOL_SOCKET, SO_NO_CHECK, &no_checksum, sizeof(no_checksum)), 0);
  exchange(*a_, *b_, equal_packets(200, 1024));
  EXPECT_EQ(a_->counters().tx_errors, 0u);
  EXPECT_EQ(a_->counters().tx_runs, 0u);
  EXPECT_EQ(a_->counters().tx_run_refusals, 1u);
  EXPECT_THAT(a_->take_notices(), ElementsAre(HasSubstr("no runs of packets (Invalid argument)")));
  exchange(*a_, *b_, equal_packets(200, 1024, false));
  EXPECT_GT(a_->counters().tx_runs, 0u) << "IPv6 has its own socket";
}

// EINVAL for another reason: these packets are lost, and others leave in runs as before.
TEST_F(UdpRuns, PacketsThatCannotLeaveAtAllEndNoRuns) {
  TestBurst lost;
  wire::Envelope not_ours = envelope(true);
  not_ours.source = ipv4(192, 0, 2, 77);
  for (uint32_t psn = 0; psn < 10; ++psn) lost.add(not_ours, psn, 1024);
  EXPECT_EQ(a_->send(lost.packets()), lost.size());
  EXPECT_EQ(a_->counters().tx_errors, lost.size());
  EXPECT_EQ(a_->counters().tx_run_refusals, 0u);
  exchange(*a_, *b_, equal_packets(100, 1024));
  EXPECT_GT(a_->counters().tx_runs, 0u);
}

// The MTU of the netdev or of the route has shrunk: neither runs nor packets of this size leave, shorter ones do. When
// it has grown again, all do.
TEST_F(UdpRuns, PacketsLongerThanThePathTakesAreLostAlone) {
  for (const auto& [shrink, grow] :
       {std::pair{"ip link set va mtu 2000", "ip link set va mtu 4200"},
        {"ip route change 192.0.2.0/24 dev va mtu 2000", "ip route change 192.0.2.0/24 dev va"}}) {
    const uint64_t errors = a_->counters().tx_errors;
    VethPair::run(veth_->a(), shrink);
    TestBurst burst = equal_packets(10, 2048);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(a_->send(burst.packets()), burst.size());
    EXPECT_EQ(a_->counters().tx_errors - errors, 3 * burst.size()) << shrink;
    EXPECT_THAT(a_->take_notices(), ElementsAre(HasSubstr("packets of 2092 bytes to 192.0.2.2"))) << shrink;
    const uint64_t runs = a_->counters().tx_runs;
    exchange(*a_, *b_, equal_packets(100, 1024));
    EXPECT_GT(a_->counters().tx_runs, runs) << shrink;
    VethPair::run(veth_->a(), grow);
    exchange(*a_, *b_, burst);
    EXPECT_EQ(a_->counters().tx_errors - errors, 3 * burst.size()) << grow;
    EXPECT_EQ(a_->counters().tx_run_refusals, 0u);
    EXPECT_THAT(a_->take_notices(), IsEmpty());
  }
}

// Memory that goes away in the middle of a run takes only its own packet with it.
TEST_F(UdpRuns, UnreadablePacketsAreLeftOut) {
  TestBurst burst = equal_packets(20, 1024);
  ASSERT_EQ(memory::install_fault_handler(), 0);
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (const size_t i : {0, 7, 8, 19}) burst.packets()[i].fragments[0].data = static_cast<const uint8_t*>(page);
  EXPECT_EQ(a_->send(burst.packets()), burst.size());
  size_t unreadable = 0;
  for (const io::TxPacket& packet : burst.packets()) unreadable += packet.unreadable;
  EXPECT_EQ(unreadable, 4u);
  const std::vector<RxPacket> received = receive(16);
  size_t i = 0;
  for (const RxPacket& packet : received) {
    while (i == 0 || i == 7 || i == 8) ++i;
    burst.expect_arrived(i++, packet);
  }
  munmap(page, 4096);
}

// The fault injector leaves runs together but for the packets that it makes a fault of, and tells the IDs.
TEST_F(UdpRuns, LeaveTheFaultInjectorAsRuns) {
  FaultInjector injector(std::move(a_), {.drop = 0.1, .seed = 5});
  TestBurst burst = equal_packets(40, 1024);
  for (io::TxPacket& packet : burst.packets()) packet.ip_id = 777;  // of who had the place before
  EXPECT_EQ(injector.send(burst.packets()), 40u);
  EXPECT_EQ(injector.counters().tx_runs, 1u);
  const uint64_t arriving = 40 - injector.fault_counters().tx_dropped;
  ASSERT_LT(arriving, 40u);
  const std::vector<RxPacket> received = receive(arriving);
  size_t i = 0;
  for (const RxPacket& packet : received) {
    while (burst.packets()[i].faults & kFaultDropped) EXPECT_EQ(burst.packets()[i++].ip_id, 0);
    EXPECT_EQ(packet.envelope.ip_id, burst.packets()[i].ip_id);
    burst.expect_arrived(i++, packet);
  }
}

TEST_F(UdpRuns, TwoOfABurstLeaveTheFaultInjectorWhole) {
  constexpr size_t kRun = 62;
  FaultInjector injector(std::move(a_), {.seed = 5});
  TestBurst burst = equal_packets(2 * kRun, 1024);
  EXPECT_EQ(injector.send(burst.packets()), 2 * kRun);
  EXPECT_EQ(injector.counters().tx_runs, 2u);
  EXPECT_EQ(injector.counters().tx_run_packets, 2 * kRun);
}

}  // namespace
}  // namespace uroce::io::test

// The sender's: the kernel's, but for what is refused.
extern "C" int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  const auto error = [](const mmsghdr& message) {
    return uroce::io::test::refusal ? uroce::io::test::refusal(message.msg_hdr) : 0;
  };
  unsigned taken = 0;
  while (taken < count && error(messages[taken]) == 0) ++taken;
  if (taken > 0) return static_cast<int>(syscall(SYS_sendmmsg, fd, messages, taken, flags));
  errno = error(messages[0]);
  return -1;
}
