// SPDX-License-Identifier: BSD-2-Clause
// What the client tests start from: an open device, and two QPs of it connected to each other.
#pragma once

#include <gtest/gtest.h>

#include "client.h"

class ClientTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(client_open(&client_), 0); }
  void TearDown() override { client_close(&client_); }

  client client_{};
};

class ConnectedTest : public ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    channel_ = ibv_create_comp_channel(client_.context);
    ASSERT_NE(channel_, nullptr);
    cq_ = ibv_create_cq(client_.context, 64, this, channel_, 0);
    ASSERT_NE(cq_, nullptr);
    a_ = client_create_qp(&client_, cq_);
    b_ = client_create_qp(&client_, cq_);
    ASSERT_TRUE(a_ != nullptr && b_ != nullptr);
    ASSERT_EQ(client_connect(&client_, a_, b_->qp_num), 0);
    ASSERT_EQ(client_connect(&client_, b_, a_->qp_num), 0);
  }
  void TearDown() override {
    if (a_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(a_), 0);
    }
    if (b_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(b_), 0);
    }
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    }
    if (channel_ != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    }
    ClientTest::TearDown();
  }

  ibv_sge sge(size_t offset, uint32_t length) {
    return {reinterpret_cast<uintptr_t>(client_.memory) + offset, length, client_.mr->lkey};
  }
  int post_receive(ibv_qp* qp, uint64_t id, size_t offset, uint32_t length) {
    ibv_sge list = sge(offset, length);
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &list;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  static ibv_send_wr send_request(uint64_t id, ibv_sge* list, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = list;
    wr.num_sge = list == nullptr ? 0 : 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
  }
  static int post(ibv_qp* qp, ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }

  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* a_ = nullptr;
  ibv_qp* b_ = nullptr;
};
