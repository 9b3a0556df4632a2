// SPDX-License-Identifier: BSD-2-Clause
// The programs run by the kernel on exact packets (BPF_PROG_TEST_RUN): which frames are taken and which go on.
#include <algorithm>
#include <array>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cstdint>
#include <gtest/gtest.h>
#include <iterator>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "roce_steer.skel.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce {
namespace {

wire::IpAddress ipv4(uint8_t last) {
  const uint8_t bytes[4] = {192, 0, 2, last};
  return wire::IpAddress::v4(bytes);
}

wire::IpAddress ipv6(uint8_t last) {
  const uint8_t bytes[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return wire::IpAddress::v6(bytes);
}

constexpr wire::MacAddress kOurMac = {2, 0, 0, 0, 0, 1};
constexpr uint8_t kOurs = 1;
constexpr uint8_t kPeer = 2;
constexpr uint8_t kSomebodyElse = 3;

constexpr size_t kIp = 14;  // offsets in a frame
constexpr size_t kUdpV4 = 34;
constexpr size_t kUdpV6 = 54;
constexpr size_t kQpn = 8 + 5;  // behind the beginning of the UDP header

constexpr uint32_t kFirstQpn = 5 << 14, kQpnCount = 1 << 14;

std::vector<uint8_t> frame(const wire::IpAddress& source, const wire::IpAddress& destination, size_t ib_size = 16) {
  wire::Envelope envelope;
  envelope.source = source;
  envelope.destination = destination;
  envelope.source_port = 0xc000;
  envelope.destination_mac = kOurMac;
  std::vector<uint8_t> bytes(wire::frame_header_size(envelope) + ib_size);
  wire::emit_frame_headers(envelope, static_cast<uint32_t>(8 + ib_size), bytes.data());
  return bytes;
}

std::vector<uint8_t> frame_v4(size_t ib_size = 16) {
  return frame(ipv4(kPeer), ipv4(kOurs), ib_size);
}
std::vector<uint8_t> frame_v6(size_t ib_size = 16) {
  return frame(ipv6(kPeer), ipv6(kOurs), ib_size);
}

class RoceSteer : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: loads an XDP program";
    load(true);
  }

  void TearDown() override {
    roce_steer__destroy(skeleton_);
    if (socket_ >= 0) close(socket_);
  }

  void load(bool frags) {
    roce_steer__destroy(skeleton_);
    skeleton_ = roce_steer__open();
    ASSERT_NE(skeleton_, nullptr);
    skeleton_->rodata->first_qpn = kFirstQpn;
    skeleton_->rodata->qpn_count = kQpnCount;
    if (!frags) {
      bpf_program__set_flags(skeleton_->progs.uroce_steer, 0);
      bpf_program__set_flags(skeleton_->progs.uroce_steer_qpn, 0);
    }
    ASSERT_EQ(roce_steer__load(skeleton_), 0);
    take_address(ipv4(kOurs));
    take_address(ipv6(kOurs));
    set_mac(kOurMac);
    if (socket_ < 0) socket_ = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    ASSERT_GE(socket_, 0);
    const uint32_t queue = 0;
    ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(skeleton_->maps.xsks), &queue, &socket_, BPF_ANY), 0);
  }

  void take_address(const wire::IpAddress& address) {
    const uint8_t present = 1;
    const int map = bpf_map__fd(skeleton_->maps.local_addresses);
    ASSERT_EQ(bpf_map_update_elem(map, address.bytes.data(), &present, BPF_ANY), 0);
  }

  void set_mac(const wire::MacAddress& mac) {
    const uint32_t only = 0;
    std::array<uint8_t, 8> value{};
    std::copy(mac.begin(), mac.end(), value.begin());
    ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(skeleton_->maps.own_mac), &only, value.data(), BPF_ANY), 0);
  }

  void close_queue() {
    const uint32_t queue = 0;
    ASSERT_EQ(bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.xsks), &queue), 0);
  }

  // The program's verdict for a frame that arrives at queue 0. It must not change the frame.
  uint32_t verdict(const std::vector<uint8_t>& bytes) { return verdict(skeleton_->progs.uroce_steer, bytes); }
  // Of the program for a range of QPNs.
  uint32_t verdict_for_qpn(const std::vector<uint8_t>& bytes) {
    return verdict(skeleton_->progs.uroce_steer_qpn, bytes);
  }

  // Behind packet sockets; `gso_size`: of a run of packets, that of each.
  uint32_t verdict_for_copy(const std::vector<uint8_t>& bytes, uint32_t gso_size = 0) {
    __sk_buff context{};
    context.gso_size = gso_size;
    context.gso_segs = gso_size == 0 ? 0 : 2;
    return verdict(skeleton_->progs.uroce_drop_copies, bytes, &context);
  }

  static uint32_t verdict(const bpf_program* program, std::vector<uint8_t> bytes, __sk_buff* context = nullptr) {
    std::vector<uint8_t> out(bytes.size());
    bpf_test_run_opts options{};
    options.sz = sizeof(options);
    options.data_in = bytes.data();
    options.data_size_in = static_cast<uint32_t>(bytes.size());
    options.data_out = out.data();
    options.data_size_out = static_cast<uint32_t>(out.size());
    options.ctx_in = context;
    options.ctx_size_in = context == nullptr ? 0 : sizeof(*context);
    EXPECT_EQ(bpf_prog_test_run_opts(bpf_program__fd(program), &options), 0);
    EXPECT_EQ(out, bytes);
    return options.retval;
  }

  roce_steer* skeleton_ = nullptr;
  int socket_ = -1;
};

// `uroce run --user` and containers give CAP_BPF and CAP_NET_ADMIN, and the kernel is stricter without CAP_PERFMON.
TEST_F(RoceSteer, LoadsWithTheRightsOfOrdinaryUsers) {
  for (size_t wanted = 0; wanted < 3; ++wanted) {
    int error = -1;
    std::thread([&] {  // whose rights are its own
      __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct rights[2]{};
      rights[CAP_NET_ADMIN / 32].effective |= 1u << CAP_NET_ADMIN % 32;
      rights[CAP_BPF / 32].effective |= 1u << CAP_BPF % 32;
      for (auto& word : rights) word.permitted = word.effective;
      ASSERT_EQ(syscall(SYS_capset, &header, rights), 0);
      roce_steer* const skeleton = roce_steer__open();
      ASSERT_NE(skeleton, nullptr);
      bpf_program* const programs[] = {skeleton->progs.uroce_steer, skeleton->progs.uroce_steer_qpn,
                                       skeleton->progs.uroce_drop_copies};
      for (size_t i = 0; i < std::size(programs); ++i) bpf_program__set_autoload(programs[i], i == wanted);
      error = roce_steer__load(skeleton);
      roce_steer__destroy(skeleton);
    })
        .join();
    EXPECT_EQ(error, 0) << wanted;
  }
}

TEST_F(RoceSteer, RoceToOurAddressesIsTaken) {
  EXPECT_EQ(verdict(frame_v4()), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(frame_v6()), uint32_t{XDP_REDIRECT});
}

TEST_F(RoceSteer, WorksWithoutFragsToo) {
  load(false);
  EXPECT_EQ(verdict(frame_v4()), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(frame_v6()), uint32_t{XDP_REDIRECT});
}

TEST_F(RoceSteer, FramesOfSeveralBuffersAreTaken) {
  EXPECT_EQ(verdict(frame_v4(8000)), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(frame_v6(8000)), uint32_t{XDP_REDIRECT});
}

TEST_F(RoceSteer, OtherDestinationsPass) {
  EXPECT_EQ(verdict(frame(ipv4(kPeer), ipv4(kSomebodyElse))), uint32_t{XDP_PASS});
  EXPECT_EQ(verdict(frame(ipv6(kPeer), ipv6(kSomebodyElse))), uint32_t{XDP_PASS});
  EXPECT_EQ(verdict(frame(ipv4(kOurs), ipv4(kPeer))), uint32_t{XDP_PASS}) << "only the destination counts";
}

std::vector<uint8_t> to_mac(std::vector<uint8_t> bytes, const wire::MacAddress& mac) {
  std::copy(mac.begin(), mac.end(), bytes.begin());
  return bytes;
}

// Flooded frames, and what a promiscuous netdev sees: the kernel drops them (PACKET_OTHERHOST).
TEST_F(RoceSteer, OtherMacAddressesPass) {
  for (size_t bit = 0; bit < 48; ++bit) {
    wire::MacAddress other = kOurMac;
    other[bit / 8] = static_cast<uint8_t>(other[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(verdict(to_mac(frame_v4(), other)), uint32_t{XDP_PASS}) << "bit " << bit;
    EXPECT_EQ(verdict(to_mac(frame_v6(), other)), uint32_t{XDP_PASS}) << "bit " << bit;
  }
  const wire::MacAddress broadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  EXPECT_EQ(verdict(to_mac(frame_v4(), broadcast)), uint32_t{XDP_PASS});
  EXPECT_EQ(verdict(to_mac(frame_v4(), {0x01, 0x00, 0x5e, 0x00, 0x02, kOurs})), uint32_t{XDP_PASS})
      << "a group's MAC address, but no group";
}

TEST_F(RoceSteer, AnotherMacAddressOfOursIsFollowed) {
  const wire::MacAddress next = {2, 0, 0, 0, 0, 9};
  set_mac(next);
  EXPECT_EQ(verdict(frame_v4()), uint32_t{XDP_PASS});
  EXPECT_EQ(verdict(to_mac(frame_v4(), next)), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(to_mac(frame_v6(), next)), uint32_t{XDP_REDIRECT});
}

TEST_F(RoceSteer, GroupsAreTakenAtTheirMacAddresses) {
  const uint8_t v4_bytes[4] = {239, 0x81, 2, 3};
  const wire::IpAddress v4 = wire::IpAddress::v4(v4_bytes);
  const uint8_t v6_bytes[16] = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4};
  const wire::IpAddress v6 = wire::IpAddress::v6(v6_bytes);
  const wire::MacAddress v4_mac = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}, v6_mac = {0x33, 0x33, 1, 2, 3, 4};
  const auto to_v4 = to_mac(frame(ipv4(kPeer), v4), v4_mac), to_v6 = to_mac(frame(ipv6(kPeer), v6), v6_mac);
  EXPECT_EQ(verdict(to_v4), uint32_t{XDP_PASS}) << "not joined";
  EXPECT_EQ(verdict(to_v6), uint32_t{XDP_PASS}) << "not joined";
  take_address(v4);
  take_address(v6);
  EXPECT_EQ(verdict(to_v4), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(to_v6), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(to_mac(to_v4, kOurMac)), uint32_t{XDP_REDIRECT}) << "a switch may have made it a unicast frame";
  for (size_t byte = 0; byte < 6; ++byte) {
    auto other_v4 = to_v4, other_v6 = to_v6;
    other_v4[byte] ^= 0x10;
    other_v6[byte] ^= 0x10;
    EXPECT_EQ(verdict(other_v4), uint32_t{XDP_PASS}) << byte;
    EXPECT_EQ(verdict(other_v6), uint32_t{XDP_PASS}) << byte;
  }
}

TEST_F(RoceSteer, AQueueWithoutSocketPasses) {
  close_queue();
  EXPECT_EQ(verdict(frame_v4()), uint32_t{XDP_PASS});
  EXPECT_EQ(verdict(frame_v6()), uint32_t{XDP_PASS});
}

TEST_F(RoceSteer, OtherPortsPass) {
  for (const uint16_t port : {uint16_t{4790}, uint16_t{4792}, uint16_t{53}, uint16_t{0xb712}}) {
    auto v4 = frame_v4();
    wire::store_be16(&v4[kUdpV4 + 2], port);
    EXPECT_EQ(verdict(v4), uint32_t{XDP_PASS});
    auto v6 = frame_v6();
    wire::store_be16(&v6[kUdpV6 + 2], port);
    EXPECT_EQ(verdict(v6), uint32_t{XDP_PASS});
  }
  auto source_only = frame_v4();
  wire::store_be16(&source_only[kUdpV4], 4791);
  wire::store_be16(&source_only[kUdpV4 + 2], 4000);
  EXPECT_EQ(verdict(source_only), uint32_t{XDP_PASS});
}

TEST_F(RoceSteer, AnySourcePortIsTaken) {
  for (const uint16_t port : {uint16_t{0}, uint16_t{4791}, uint16_t{0xffff}}) {
    auto v4 = frame_v4();
    wire::store_be16(&v4[kUdpV4], port);
    EXPECT_EQ(verdict(v4), uint32_t{XDP_REDIRECT});
  }
}

TEST_F(RoceSteer, Ipv4FragmentsPass) {
  const uint16_t flags_and_offset[] = {0x2000, 0x0001, 0x1fff, 0x2001, 0x6000};
  for (const uint16_t value : flags_and_offset) {
    auto bytes = frame_v4();
    wire::store_be16(&bytes[kIp + 6], value);
    EXPECT_EQ(verdict(bytes), uint32_t{XDP_PASS}) << value;
  }
  auto may_be_fragmented = frame_v4();
  wire::store_be16(&may_be_fragmented[kIp + 6], 0);
  EXPECT_EQ(verdict(may_be_fragmented), uint32_t{XDP_REDIRECT});
}

TEST_F(RoceSteer, Ipv4WithOptionsPasses) {
  auto bytes = frame_v4(32);
  bytes[kIp] = 0x46;
  EXPECT_EQ(verdict(bytes), uint32_t{XDP_PASS});
}

TEST_F(RoceSteer, WrongIpVersionPasses) {
  auto v4 = frame_v4();
  v4[kIp] = 0x65;
  EXPECT_EQ(verdict(v4), uint32_t{XDP_PASS});
  auto v6 = frame_v6();
  v6[kIp] = 0x40;
  EXPECT_EQ(verdict(v6), uint32_t{XDP_PASS});
}

TEST_F(RoceSteer, OtherProtocolsPass) {
  auto tcp = frame_v4();
  tcp[kIp + 9] = 6;
  EXPECT_EQ(verdict(tcp), uint32_t{XDP_PASS});
  for (const uint8_t next_header :
       {uint8_t{6}, uint8_t{58}, uint8_t{0}, uint8_t{44}}) {  // TCP, ICMPv6, hop-by-hop, fragment
    auto bytes = frame_v6();
    bytes[kIp + 6] = next_header;
    EXPECT_EQ(verdict(bytes), uint32_t{XDP_PASS}) << int{next_header};
  }
  auto arp = frame_v4();
  wire::store_be16(&arp[12], 0x0806);
  EXPECT_EQ(verdict(arp), uint32_t{XDP_PASS});
}

TEST_F(RoceSteer, VlanTaggedFramesPass) {
  for (auto bytes : {frame_v4(), frame_v6()}) {
    const uint8_t tag[4] = {0x81, 0x00, 0x00, 0x64};
    bytes.insert(bytes.begin() + 12, tag, tag + 4);
    EXPECT_EQ(verdict(bytes), uint32_t{XDP_PASS});
  }
}

// Cut anywhere in the headers: passed, never read beyond the end. (The kernel's test run takes 14 bytes and more.)
TEST_F(RoceSteer, TruncatedHeadersPass) {
  const auto v4 = frame_v4();
  for (size_t size = 14; size < kUdpV4 + 8; ++size) {
    EXPECT_EQ(verdict({v4.begin(), v4.begin() + static_cast<ptrdiff_t>(size)}), uint32_t{XDP_PASS}) << size;
  }
  const auto v6 = frame_v6();
  for (size_t size = 14; size < kUdpV6 + 8; ++size) {
    EXPECT_EQ(verdict({v6.begin(), v6.begin() + static_cast<ptrdiff_t>(size)}), uint32_t{XDP_PASS}) << size;
  }
}

// An IPv4-mapped destination in an IPv6 header looks like our IPv4 address; user space refuses and counts it.
TEST_F(RoceSteer, AMappedAddressIsLeftToUserSpace) {
  auto bytes = frame_v6();
  const wire::IpAddress mapped = ipv4(kOurs);
  std::copy(mapped.bytes.begin(), mapped.bytes.end(), bytes.begin() + kIp + 24);
  EXPECT_EQ(verdict(bytes), uint32_t{XDP_REDIRECT});
}

// --- the program for a range of QPNs ---------------------------------------------------------------------------------

std::vector<uint8_t> to_qpn_v4(uint32_t qpn, size_t ib_size = 16) {
  auto bytes = frame_v4(ib_size);
  wire::store_be24(&bytes[kUdpV4 + kQpn], qpn);
  return bytes;
}
std::vector<uint8_t> to_qpn_v6(uint32_t qpn, size_t ib_size = 16) {
  auto bytes = frame_v6(ib_size);
  wire::store_be24(&bytes[kUdpV6 + kQpn], qpn);
  return bytes;
}

TEST_F(RoceSteer, QpnsOfTheRangeAreTakenAndOthersPass) {
  for (const uint32_t qpn : {kFirstQpn, kFirstQpn + 1, kFirstQpn + kQpnCount - 1}) {
    EXPECT_EQ(verdict_for_qpn(to_qpn_v4(qpn)), uint32_t{XDP_REDIRECT}) << qpn;
    EXPECT_EQ(verdict_for_qpn(to_qpn_v6(qpn)), uint32_t{XDP_REDIRECT}) << qpn;
    for (uint32_t bit = 14; bit < 24; ++bit) {
      EXPECT_EQ(verdict_for_qpn(to_qpn_v4(qpn ^ 1u << bit)), uint32_t{XDP_PASS}) << qpn << " bit " << bit;
      EXPECT_EQ(verdict_for_qpn(to_qpn_v6(qpn ^ 1u << bit)), uint32_t{XDP_PASS}) << qpn << " bit " << bit;
    }
  }
  for (const uint32_t qpn : {0u, 1u, kFirstQpn - 1, kFirstQpn + kQpnCount, 0xffffffu}) {
    EXPECT_EQ(verdict_for_qpn(to_qpn_v4(qpn)), uint32_t{XDP_PASS}) << qpn;
    EXPECT_EQ(verdict_for_qpn(to_qpn_v6(qpn)), uint32_t{XDP_PASS}) << qpn;
  }
}

// The bytes beside the QPN mean something else.
TEST_F(RoceSteer, OnlyTheQpnCounts) {
  auto bytes = to_qpn_v4(kFirstQpn);
  bytes[kUdpV4 + kQpn - 1] = bytes[kUdpV4 + kQpn + 3] = 0xff;
  EXPECT_EQ(verdict_for_qpn(bytes), uint32_t{XDP_REDIRECT});
}

TEST_F(RoceSteer, FramesOfSeveralBuffersAreTakenByQpn) {
  EXPECT_EQ(verdict_for_qpn(to_qpn_v4(kFirstQpn, 8000)), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict_for_qpn(to_qpn_v6(kFirstQpn, 8000)), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict_for_qpn(to_qpn_v4(kFirstQpn - 1, 8000)), uint32_t{XDP_PASS});
  load(false);
  EXPECT_EQ(verdict_for_qpn(to_qpn_v4(kFirstQpn)), uint32_t{XDP_REDIRECT});
}

// Never read beyond the end. Whether there is more than the QPN is for user space to see.
TEST_F(RoceSteer, WithoutAWholeQpnPasses) {
  for (size_t size = 14; size <= kUdpV6 + kQpn + 3; ++size) {
    for (auto bytes : {to_qpn_v4(kFirstQpn, 32), to_qpn_v6(kFirstQpn)}) {
      const size_t udp = bytes[kIp] == 0x45 ? kUdpV4 : kUdpV6;
      bytes.resize(size);
      EXPECT_EQ(verdict_for_qpn(bytes), uint32_t{size < udp + kQpn + 3 ? XDP_PASS : XDP_REDIRECT}) << size;
    }
  }
}

// To a QPN of the range.
std::vector<std::vector<uint8_t>> not_for_us() {
  std::vector<std::vector<uint8_t>> frames(8, to_qpn_v4(kFirstQpn, 32));
  frames[0][kIp] = 0x46;                          // options
  wire::store_be16(&frames[1][kIp + 6], 0x2000);  // fragments
  wire::store_be16(&frames[2][kIp + 6], 0x0001);
  wire::store_be16(&frames[3][kUdpV4 + 2], kFirstQpn & 0xff);  // port
  frames[4][kIp + 19] = kSomebodyElse;
  frames[5] = to_mac(frames[5], {2, 0, 0, 0, 0, 9});
  const uint8_t tag[4] = {0x81, 0x00, 0x00, 0x64};
  frames[6].insert(frames[6].begin() + 12, tag, tag + 4);
  frames[7] = to_qpn_v6(kFirstQpn);
  frames[7][kIp + 6] = 0;  // hop-by-hop options
  return frames;
}

TEST_F(RoceSteer, WhatIsNotForUsPassesWhateverItsQpn) {
  const auto frames = not_for_us();
  for (size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(verdict_for_qpn(frames[i]), uint32_t{XDP_PASS}) << i;
  EXPECT_EQ(verdict_for_qpn(to_qpn_v4(kFirstQpn, 32)), uint32_t{XDP_REDIRECT});
  close_queue();
  EXPECT_EQ(verdict_for_qpn(to_qpn_v4(kFirstQpn, 32)), uint32_t{XDP_PASS}) << "a queue without socket";
}

// Members may be behind sockets: the kernel makes the copies for all of them.
TEST_F(RoceSteer, GroupsAreLeftToTheKernel) {
  const uint8_t v4_bytes[4] = {239, 1, 2, 3};
  const wire::IpAddress group = wire::IpAddress::v4(v4_bytes);
  take_address(group);
  auto bytes = to_mac(frame(ipv4(kPeer), group), {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03});
  wire::store_be24(&bytes[kUdpV4 + kQpn], 0xffffff);
  EXPECT_EQ(verdict(bytes), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict_for_qpn(bytes), uint32_t{XDP_PASS});
}

// --- the program behind packet sockets -------------------------------------------------------------------------------

constexpr uint32_t kNext = static_cast<uint32_t>(-1), kDrop = 2;  // TCX_NEXT, TCX_DROP

TEST_F(RoceSteer, CopiesForQpnsOfTheRangeAreDropped) {
  for (const uint32_t qpn : {kFirstQpn, kFirstQpn + 1, kFirstQpn + kQpnCount - 1}) {
    for (const size_t ib_size : {16u, 3000u}) {
      EXPECT_EQ(verdict_for_copy(to_qpn_v4(qpn, ib_size)), kDrop) << qpn;
      EXPECT_EQ(verdict_for_copy(to_qpn_v6(qpn, ib_size)), kDrop) << qpn;
    }
  }
  for (const uint32_t qpn : {0u, 1u, kFirstQpn - 1, kFirstQpn + kQpnCount, 0xffffffu}) {
    EXPECT_EQ(verdict_for_copy(to_qpn_v4(qpn)), kNext) << qpn;
    EXPECT_EQ(verdict_for_copy(to_qpn_v6(qpn)), kNext) << qpn;
  }
}

// They do not fit the rings, and sockets take them whole.
TEST_F(RoceSteer, RunsAreNoCopies) {
  EXPECT_EQ(verdict_for_copy(to_qpn_v4(kFirstQpn, 200), 100), kNext);
  EXPECT_EQ(verdict_for_copy(to_qpn_v6(kFirstQpn, 200), 100), kNext);
}

TEST_F(RoceSteer, WhatIsNotForUsIsNoCopy) {
  const auto frames = not_for_us();
  for (size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(verdict_for_copy(frames[i]), kNext) << i;
}

TEST_F(RoceSteer, WithoutAWholeQpnThereIsNoCopy) {
  for (auto bytes : {to_qpn_v4(kFirstQpn, 32), to_qpn_v6(kFirstQpn, 32)}) {
    const size_t udp = bytes[kIp] == 0x45 ? kUdpV4 : kUdpV6;
    for (size_t size = udp + kQpn + 3; size >= udp; --size) {
      bytes.resize(size);
      EXPECT_EQ(verdict_for_copy(bytes), size < udp + kQpn + 3 ? kNext : kDrop) << size;
    }
  }
}

}  // namespace
}  // namespace uroce
