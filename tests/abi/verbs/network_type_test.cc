// SPDX-License-Identifier: BSD-2-Clause
// Completions of datagrams tell the IP version in the place of the service level, as ConnectX does; UCX finds the
// destination address by it.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "fixture.h"

namespace {

constexpr uint32_t kQkey = 0x1234;
constexpr uint8_t kIpv4 = 10, kIpv6 = 9;

class NetworkType : public ClientTest {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(std::system("export LD_PRELOAD=; ip address add fd00:5::1/64 dev rdma0 nodad"), 0);
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(std::system("export LD_PRELOAD=; ip address delete fd00:5::1/64 dev rdma0"), 0);
  }

  void SetUp() override {
    ClientTest::SetUp();
    ibv_cq_init_attr_ex cq{};
    cq.cqe = 16;
    cq.wc_flags = IBV_WC_EX_WITH_SL;
    extended_ = ibv_create_cq_ex(client_.context, &cq);
    ASSERT_NE(extended_, nullptr);
    ibv_qp_init_attr init = client_qp_attributes(ibv_cq_ex_to_cq(extended_));
    init.qp_type = IBV_QPT_UD;
    qp_ = ibv_create_qp(client_.pd, &init);
    ASSERT_NE(qp_, nullptr);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  void TearDown() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp_), 0);
    }
    if (extended_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(extended_)), 0);
    }
    ClientTest::TearDown();
  }

  ibv_sge whole(size_t offset, uint32_t length) {
    return {reinterpret_cast<uintptr_t>(client_.memory) + offset, length, client_.mr->lkey};
  }

  // A datagram from this QP to itself, through GID `index`. What it leaves are two completions.
  void send_through(int index) {
    ibv_sge receive_list = whole(0, 256), send_list = whole(4096, 100);
    ibv_recv_wr receive{}, *bad_receive = nullptr;
    receive.sg_list = &receive_list;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(qp_, &receive, &bad_receive), 0);
    ibv_ah_attr address{};
    ASSERT_EQ(ibv_query_gid(client_.context, 1, index, &address.grh.dgid), 0);
    address.grh.sgid_index = static_cast<uint8_t>(index);
    address.grh.hop_limit = 1;
    address.is_global = 1;
    address.port_num = 1;
    ah_ = ibv_create_ah(client_.pd, &address);
    ASSERT_NE(ah_, nullptr);
    ibv_send_wr send{}, *bad_send = nullptr;
    send.sg_list = &send_list;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.ud.ah = ah_;
    send.wr.ud.remote_qpn = qp_->qp_num;
    send.wr.ud.remote_qkey = kQkey;
    ASSERT_EQ(ibv_post_send(qp_, &send, &bad_send), 0);
  }

  // Of the receive among the two completions.
  int polled_sl() {
    int sl = -1;
    for (int i = 0; i < 2; ++i) {
      ibv_wc wc{};
      EXPECT_EQ(client_wait(ibv_cq_ex_to_cq(extended_), &wc), 1);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.opcode == IBV_WC_RECV) sl = wc.sl;
    }
    EXPECT_EQ(ibv_destroy_ah(ah_), 0);
    return sl;
  }

  int index_of(uint8_t first_byte) {
    for (int index = 0; index < 16; ++index) {
      ibv_gid gid{};
      if (ibv_query_gid(client_.context, 1, index, &gid) == 0 && gid.raw[0] == first_byte) return index;
    }
    return -1;
  }

  ibv_cq_ex* extended_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_ah* ah_ = nullptr;
};

TEST_F(NetworkType, Ipv4) {
  send_through(0);
  EXPECT_EQ(polled_sl(), kIpv4);
}

TEST_F(NetworkType, Ipv6) {
  // The kernel lets the address be used a moment after it is there, and tells of that a moment later still.
  int index = -1;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((index = index_of(0xfd)) < 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "the device has not got the address";
    std::this_thread::yield();
  }
  send_through(index);
  EXPECT_EQ(polled_sl(), kIpv6);
}

TEST_F(NetworkType, ThroughTheExtendedInterface) {
  send_through(0);
  ibv_poll_cq_attr attr{};
  int seen = 0;
  for (int tries = 0; seen < 2 && tries < 100'000'000; ++tries) {
    if (ibv_start_poll(extended_, &attr) != 0) continue;
    if (ibv_wc_read_opcode(extended_) == IBV_WC_RECV) {
      EXPECT_EQ(ibv_wc_read_sl(extended_), kIpv4);
    } else {
      EXPECT_EQ(ibv_wc_read_sl(extended_), 0);
    }
    ++seen;
    ibv_end_poll(extended_);
  }
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(ibv_destroy_ah(ah_), 0);
}

}  // namespace
