// SPDX-License-Identifier: BSD-2-Clause
// Routes whose MTU is smaller than the netdev's (`ip route ... mtu`): connections keep within it, datagrams that do not
// are lost, and nothing leaves in fragments.
#include <array>
#include <cerrno>
#include <cstdlib>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "fixture.h"

namespace {

constexpr size_t kPort = ETH_HLEN + 20 + 2;  // of the UDP header, where the destination port is

class RouteMtu : public ConnectedTest {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(std::system("export LD_PRELOAD=; ip neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 dev rdma0 && "
                          "ip route add 203.0.113.0/24 via 192.0.2.9 dev rdma0 mtu 600"),
              0);
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(std::system("export LD_PRELOAD=; ip route delete 203.0.113.0/24; ip neighbour delete 192.0.2.9 dev "
                          "rdma0"),
              0);
  }

  static ibv_ah_attr address() {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    const std::array<uint8_t, 16> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 1};
    std::copy(mapped.begin(), mapped.end(), attr.grh.dgid.raw);
    return attr;
  }
};

TEST_F(RouteMtu, ConnectionKeepsWithinIt) {
  ibv_qp* const qp = client_create_qp(&client_, cq_);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.ah_attr = address();
  attr.path_mtu = IBV_MTU_1024;
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, mask), EINVAL) << "the netdev would allow it";
  attr.path_mtu = IBV_MTU_512;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(RouteMtu, DatagramThatIsLongerIsLost) {
  const int peer = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_IP));  // sees what comes out of the other end of the cable
  ASSERT_GE(peer, 0);
  sockaddr_ll from{};
  from.sll_family = AF_PACKET;
  from.sll_protocol = htons(ETH_P_IP);
  from.sll_ifindex = static_cast<int>(if_nametoindex("other0"));
  ASSERT_EQ(bind(peer, reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);

  ibv_qp_init_attr init = client_qp_attributes(cq_);
  init.qp_type = IBV_QPT_UD;
  ibv_qp* const qp = ibv_create_qp(client_.pd, &init);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  ibv_ah_attr to = address();
  ibv_ah* const ah = ibv_create_ah(client_.pd, &to);
  ASSERT_NE(ah, nullptr);

  // IP, UDP, BTH, DETH and ICRC are 52 bytes.
  for (const uint32_t length : {548u, 552u, 1024u, 100u}) {
    ibv_sge list = sge(0, length);
    ibv_send_wr wr = send_request(length, &list);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = 5;
    ASSERT_EQ(post(qp, wr), 0);
    ibv_wc wc{};
    ASSERT_EQ(client_wait(cq_, &wc), 1);
    EXPECT_EQ(wc.wr_id, length);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  std::vector<ssize_t> sizes;
  while (sizes.empty() || sizes.back() != ETH_HLEN + 52 + 100) {  // the last one
    std::array<uint8_t, 2048> frame;
    const ssize_t size = recv(peer, frame.data(), frame.size(), 0);
    ASSERT_GT(size, 0);
    if (frame[kPort] == 4791 >> 8 && frame[kPort + 1] == (4791 & 0xff)) sizes.push_back(size);
  }
  EXPECT_EQ(sizes, (std::vector<ssize_t>{ETH_HLEN + 52 + 548, ETH_HLEN + 52 + 100}));

  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  close(peer);
}

}  // namespace
