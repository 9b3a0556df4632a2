// SPDX-License-Identifier: BSD-2-Clause
// The filter behind packet sockets, on a real netdev: what still gets to a UDP socket. Verdicts on exact packets are in
// tests/bpf/roce_steer_test.cc.
#include "engine/io/dpdk/copy_filter.h"

#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <memory>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kOurs = 5 << 14, kOther = 6 << 14, kLast = 0xfffff0;  // QPNs
constexpr wire::QpnRange kRange{.first = kOurs, .count = 1 << 14};
constexpr size_t kQpnAt = 5, kIbSize = 16;

std::pair<int, int> kernel_version() {
  utsname name{};
  std::pair<int, int> version;
  EXPECT_EQ(uname(&name), 0);
  EXPECT_EQ(std::sscanf(name.release, "%d.%d", &version.first, &version.second), 2);
  return version;
}

class CopyFilterTest : public testing::Test {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    if (kernel_version() < std::pair(6, 6)) GTEST_SKIP() << "the kernel has no tcx (Linux 6.6)";
    veth_ = std::make_unique<VethPair>();
    VethPair::enter(veth_->a());
    wire_ = UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(wire_);
    VethPair::enter(veth_->b());
    socket_ = UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in port{};
    port.sin_family = AF_INET;
    port.sin_port = htons(wire::kRoceUdpPort);
    ASSERT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&port), sizeof(port)), 0);
    filter_ = open();
    ASSERT_NE(filter_, nullptr);
  }

  std::unique_ptr<CopyFilter> open() const {
    const VethPair::End& end = veth_->b();
    return CopyFilter::open(end.ifindex, end.mac, {&end.v4, 1}, kRange);
  }

  void send(const wire::IpAddress& source, const wire::IpAddress& destination, uint32_t qpn, uint16_t vlan = 0) const {
    wire::Envelope envelope;
    envelope.source = source;
    envelope.destination = destination;
    envelope.source_port = 0xc000;
    envelope.source_mac = veth_->a().mac;
    envelope.destination_mac = veth_->b().mac;
    std::vector<uint8_t> frame(wire::frame_header_size(envelope) + kIbSize);
    const size_t headers = wire::emit_frame_headers(envelope, wire::kUdpSize + kIbSize, frame.data());
    wire::store_be24(&frame[headers + kQpnAt], qpn);
    if (vlan != 0) {
      const uint8_t tag[] = {0x81, 0x00, 0, static_cast<uint8_t>(vlan)};
      frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    }
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = veth_->a().ifindex;
    const auto* const address = reinterpret_cast<const sockaddr*>(&to);
    ASSERT_EQ(sendto(wire_.get(), frame.data(), frame.size(), 0, address, sizeof(to)), ssize_t(frame.size()));
  }
  void send(const wire::IpAddress& destination, uint32_t qpn) const { send(veth_->a().v4, destination, qpn); }

  // The QPNs of the datagrams that have got to the socket. The last packet always does.
  std::vector<uint32_t> arrived() const {
    send(veth_->b().v4, kLast);
    std::vector<uint32_t> qpns;
    std::array<uint8_t, 64> datagram;
    for (;;) {
      pollfd readable{socket_.get(), POLLIN, 0};
      if (poll(&readable, 1, 20'000) != 1 || recv(socket_.get(), datagram.data(), datagram.size(), 0) != kIbSize) {
        ADD_FAILURE() << "the last packet has not come";
        return qpns;
      }
      const uint32_t qpn = wire::load_be24(&datagram[kQpnAt]);
      if (qpn == kLast) return qpns;
      qpns.push_back(qpn);
    }
  }

  std::unique_ptr<VethPair> veth_;
  std::unique_ptr<CopyFilter> filter_;

 private:
  UniqueFd wire_, socket_;
};

TEST_F(CopyFilterTest, DropsWhatIsForTheRangeWhileItIsThere) {
  const wire::IpAddress to = veth_->b().v4;
  send(to, kOurs);
  send(to, kOther);
  EXPECT_THAT(arrived(), ElementsAre(kOther));
  filter_.reset();
  send(to, kOurs);
  EXPECT_THAT(arrived(), ElementsAre(kOurs));
}

TEST_F(CopyFilterTest, SeveralWorkSideBySide) {
  const VethPair::End& end = veth_->b();
  const auto second = CopyFilter::open(end.ifindex, end.mac, {&end.v4, 1}, wire::QpnRange{kOther, 1});
  ASSERT_NE(second, nullptr);
  send(end.v4, kOurs);
  send(end.v4, kOther);
  send(end.v4, kOther + 1);
  EXPECT_THAT(arrived(), ElementsAre(kOther + 1));
}

TEST_F(CopyFilterTest, FollowsAddresses) {
  const wire::IpAddress first = veth_->b().v4, second = ipv4(192, 0, 2, 77);
  VethPair::run(veth_->b(), "ip address add 192.0.2.77/24 dev vb");
  send(second, kOurs);
  EXPECT_THAT(arrived(), ElementsAre(kOurs)) << "not known";
  const wire::IpAddress both[] = {first, second};
  EXPECT_EQ(filter_->set_local_addresses(both), 0);
  send(second, kOurs);
  EXPECT_THAT(arrived(), IsEmpty());
  EXPECT_EQ(filter_->set_local_addresses({&second, 1}), 0);
  send(first, kOurs);
  EXPECT_THAT(arrived(), ElementsAre(kOurs));
}

TEST_F(CopyFilterTest, FollowsTheMacAddress) {
  EXPECT_EQ(filter_->set_mac({2, 0, 0, 0, 0, 9}), 0);
  send(veth_->b().v4, kOurs);
  EXPECT_THAT(arrived(), ElementsAre(kOurs));
  EXPECT_EQ(filter_->set_mac(veth_->b().mac), 0);
  send(veth_->b().v4, kOurs);
  EXPECT_THAT(arrived(), IsEmpty());
}

// The kernel has taken the tag out of the frame when the program sees it. Which packets get by shows a packet socket
// for one protocol, which comes after it.
TEST_F(CopyFilterTest, FramesOfVlansAreOthers) {
  VethPair::enter(veth_->b());
  const UniqueFd behind(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP)));
  ASSERT_TRUE(behind);
  send(veth_->a().v4, veth_->b().v4, kOurs);
  send(veth_->a().v4, veth_->b().v4, kOurs + 1, 5);
  constexpr size_t kHeaders = 20 + wire::kUdpSize;
  std::array<uint8_t, 128> packet;
  pollfd readable{behind.get(), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  ASSERT_EQ(recv(behind.get(), packet.data(), packet.size(), 0), ssize_t(kHeaders + kIbSize));
  EXPECT_EQ(wire::load_be24(&packet[kHeaders + kQpnAt]), kOurs + 1);
}

}  // namespace
}  // namespace uroce::io::test
