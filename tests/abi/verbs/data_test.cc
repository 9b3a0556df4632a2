// SPDX-License-Identifier: BSD-2-Clause
// Posting and polling: both ways of posting, both ways of polling, and every refusal with its errno value.
#include <cerrno>
#include <cstring>
#include <numeric>

#include "fixture.h"

namespace {

class DataTest : public ConnectedTest {
 protected:
  void SetUp() override {
    ConnectedTest::SetUp();
    std::iota(client_.memory, client_.memory + 4096, static_cast<unsigned char>(0));
  }
  unsigned char* memory(size_t offset) { return client_.memory + offset; }
  uint64_t address(size_t offset) { return reinterpret_cast<uintptr_t>(memory(offset)); }
  // The completion of a request of this id; fails the test when another one comes.
  ibv_wc completion(uint64_t id) {
    ibv_wc wc{};
    EXPECT_EQ(client_wait(cq_, &wc), 1);
    EXPECT_EQ(wc.wr_id, id);
    return wc;
  }
};

TEST_F(DataTest, SendWithImmediate) {
  ASSERT_EQ(post_receive(b_, 1, 65536, 4096), 0);
  ibv_sge list = sge(0, 3000);
  ibv_send_wr wr = send_request(2, &list, IBV_WR_SEND_WITH_IMM);
  wr.send_flags = 0;
  wr.imm_data = 0x01020304;
  ASSERT_EQ(post(a_, wr), 0);
  const ibv_wc wc = completion(1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 3000u);
  EXPECT_EQ(wc.qp_num, b_->qp_num);
  EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 0x01020304u);
  EXPECT_EQ(std::memcmp(memory(65536), memory(0), 3000), 0);
}

TEST_F(DataTest, InlineDataIsTakenAtOnce) {
  ASSERT_EQ(post_receive(b_, 1, 65536, 64), 0);
  char unregistered[] = "inline data needs no lkey";
  ibv_sge list{reinterpret_cast<uintptr_t>(unregistered), sizeof(unregistered), 0};
  ibv_send_wr wr = send_request(2, &list);
  wr.send_flags = IBV_SEND_INLINE;
  ASSERT_EQ(post(a_, wr), 0);
  std::memset(unregistered, 0, sizeof(unregistered));
  EXPECT_EQ(completion(1).status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(memory(65536)), "inline data needs no lkey");
}

TEST_F(DataTest, WriteAndRead) {
  ibv_sge list = sge(0, 4096);
  ibv_send_wr wr = send_request(1, &list, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = address(65536);
  wr.wr.rdma.rkey = client_.mr->rkey;
  ASSERT_EQ(post(a_, wr), 0);
  EXPECT_EQ(completion(1).opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(memory(65536), memory(0), 4096), 0);

  list = sge(131072, 4096);
  wr = send_request(2, &list, IBV_WR_RDMA_READ);
  wr.wr.rdma.remote_addr = address(65536);
  wr.wr.rdma.rkey = client_.mr->rkey;
  ASSERT_EQ(post(a_, wr), 0);
  EXPECT_EQ(completion(2).opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(memory(131072), memory(0), 4096), 0);
}

TEST_F(DataTest, Atomics) {
  const uint64_t before = 40;
  std::memcpy(memory(65536), &before, 8);
  ibv_sge list = sge(131072, 8);
  ibv_send_wr wr = send_request(1, &list, IBV_WR_ATOMIC_FETCH_AND_ADD);
  wr.wr.atomic = {address(65536), 2, 0, client_.mr->rkey};
  ASSERT_EQ(post(a_, wr), 0);
  EXPECT_EQ(completion(1).opcode, IBV_WC_FETCH_ADD);
  wr = send_request(2, &list, IBV_WR_ATOMIC_CMP_AND_SWP);
  wr.wr.atomic = {address(65536), 42, 7, client_.mr->rkey};
  ASSERT_EQ(post(a_, wr), 0);
  EXPECT_EQ(completion(2).opcode, IBV_WC_COMP_SWAP);
  uint64_t value;
  std::memcpy(&value, memory(131072), 8);
  EXPECT_EQ(value, 42u);
  std::memcpy(&value, memory(65536), 8);
  EXPECT_EQ(value, 7u);
}

TEST_F(DataTest, ABadRequestStopsTheListExactlyThere) {
  ASSERT_EQ(post_receive(b_, 1, 65536, 64), 0);
  ibv_sge good = sge(0, 8);
  ibv_sge too_many[5] = {good, good, good, good, good};
  ibv_send_wr first = send_request(2, &good);
  ibv_send_wr second = send_request(3, too_many);
  second.num_sge = 5;
  ibv_send_wr third = send_request(4, &good);
  first.next = &second;
  second.next = &third;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a_, &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  ibv_wc wc;
  ASSERT_EQ(client_wait(cq_, &wc), 1);
  ASSERT_EQ(client_wait(cq_, &wc), 1);
  EXPECT_EQ(ibv_poll_cq(cq_, 1, &wc), 0) << "only the first was posted";
}

TEST_F(DataTest, RefusesMalformedSends) {
  ibv_sge list = sge(0, 65);
  ibv_send_wr wr = send_request(1, &list);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(post(a_, wr), EINVAL) << "more than max_inline_data";
  list.length = 8;
  wr.opcode = IBV_WR_RDMA_READ;
  EXPECT_EQ(post(a_, wr), EINVAL) << "an inline READ";
  wr = send_request(1, &list, IBV_WR_ATOMIC_FETCH_AND_ADD);
  list.length = 4;
  EXPECT_EQ(post(a_, wr), EINVAL) << "an atomic operand of 4 bytes";
  wr = send_request(1, &list, IBV_WR_BIND_MW);
  EXPECT_EQ(post(a_, wr), EINVAL);
  wr = send_request(1, &list, IBV_WR_TSO);
  EXPECT_EQ(post(a_, wr), EINVAL);
  wr = send_request(1, &list);
  wr.num_sge = -1;
  EXPECT_EQ(post(a_, wr), EINVAL);
}

TEST_F(DataTest, ReceiveQueueFillsUp) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(b_, &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < init.cap.max_recv_wr; ++i) ASSERT_EQ(post_receive(b_, i, 0, 64), 0);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(b_, &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
  ibv_sge list[5] = {};
  wr.sg_list = list;
  wr.num_sge = 5;
  EXPECT_EQ(ibv_post_recv(b_, &wr, &bad), EINVAL);
}

TEST_F(DataTest, StatesDecideWhatCanBePosted) {
  ibv_qp* qp = client_create_qp(&client_, cq_);
  ASSERT_NE(qp, nullptr);
  ibv_send_wr wr = send_request(1, nullptr);
  EXPECT_EQ(post(qp, wr), EINVAL) << "RESET";
  EXPECT_EQ(post_receive(qp, 1, 0, 64), EINVAL) << "RESET";
  ASSERT_EQ(client_init(qp), 0);
  EXPECT_EQ(post(qp, wr), EINVAL) << "INIT";
  EXPECT_EQ(post_receive(qp, 1, 0, 64), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(completion(1).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(post_receive(qp, 2, 0, 64), 0);
  EXPECT_EQ(completion(2).status, IBV_WC_WR_FLUSH_ERR);
  wr = send_request(3, nullptr);
  EXPECT_EQ(post(qp, wr), 0);
  EXPECT_EQ(completion(3).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(DataTest, ProtectionErrorsAreCompletions) {
  ibv_sge list = sge(0, 8);
  list.lkey ^= 1;
  ibv_send_wr wr = send_request(1, &list);
  ASSERT_EQ(post(a_, wr), 0);
  EXPECT_EQ(completion(1).status, IBV_WC_LOC_PROT_ERR);
}

// --- ibv_wr_* and extended CQs ---

class ExtendedTest : public DataTest {
 protected:
  static constexpr uint64_t kSendOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                                       IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

  void SetUp() override {
    DataTest::SetUp();
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    extended_cq_ = ibv_create_cq_ex(client_.context, &attr);
    ASSERT_NE(extended_cq_, nullptr);
    c_ = create_extended_qp(kSendOps);
    ASSERT_NE(c_, nullptr);
    d_ = client_create_qp(&client_, ibv_cq_ex_to_cq(extended_cq_));
    ASSERT_EQ(client_connect(&client_, &c_->qp_base, d_->qp_num), 0);
    ASSERT_EQ(client_connect(&client_, d_, c_->qp_base.qp_num), 0);
  }
  void TearDown() override {
    if (c_ != nullptr) ibv_destroy_qp(&c_->qp_base);
    if (d_ != nullptr) ibv_destroy_qp(d_);
    if (extended_cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(extended_cq_)), 0);
    }
    DataTest::TearDown();
  }
  ibv_qp_ex* create_extended_qp(uint64_t send_ops) {
    const ibv_qp_init_attr plain = client_qp_attributes(ibv_cq_ex_to_cq(extended_cq_));
    ibv_qp_init_attr_ex attr{};
    std::memcpy(static_cast<void*>(&attr), &plain, sizeof(plain));
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = client_.pd;
    attr.send_ops_flags = send_ops;
    ibv_qp* qp = ibv_create_qp_ex(client_.context, &attr);
    return qp == nullptr ? nullptr : ibv_qp_to_qp_ex(qp);
  }
  // Polls until a completion is there; the caller ends the poll.
  bool start_poll() {
    ibv_poll_cq_attr attr{};
    for (const time_t give_up = time(nullptr) + 10; time(nullptr) < give_up;) {
      const int result = ibv_start_poll(extended_cq_, &attr);
      if (result != ENOENT) return result == 0;
    }
    return false;
  }

  ibv_cq_ex* extended_cq_ = nullptr;
  ibv_qp_ex* c_ = nullptr;
  ibv_qp* d_ = nullptr;
};

TEST_F(ExtendedTest, OnlyQpsWithSendOpsAreExtended) {
  EXPECT_EQ(ibv_qp_to_qp_ex(a_), nullptr);
  EXPECT_EQ(c_->wr_bind_mw, nullptr);
  EXPECT_EQ(create_extended_qp(IBV_QP_EX_WITH_TSO), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(ExtendedTest, ABatchIsPublishedAsAWhole) {
  ASSERT_EQ(post_receive(d_, 1, 65536, 4096), 0);
  ibv_wr_start(c_);
  c_->wr_id = 10;
  c_->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(c_, client_.mr->rkey, address(131072));
  ibv_wr_set_sge(c_, client_.mr->lkey, address(0), 4096);
  c_->wr_id = 11;
  ibv_wr_send_imm(c_, 0x0a0b0c0d);
  const ibv_sge list[2] = {sge(0, 100), sge(200, 50)};
  ibv_wr_set_sge_list(c_, 2, list);
  ASSERT_EQ(ibv_wr_complete(c_), 0);

  ibv_wc wc;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(client_wait(ibv_cq_ex_to_cq(extended_cq_), &wc), 1);
  EXPECT_EQ(std::memcmp(memory(131072), memory(0), 4096), 0);
  EXPECT_EQ(std::memcmp(memory(65536 + 100), memory(200), 50), 0);
}

TEST_F(ExtendedTest, CompletionsAreReadFieldByField) {
  ASSERT_EQ(post_receive(d_, 1, 65536, 4096), 0);
  ibv_wr_start(c_);
  c_->wr_id = 2;
  c_->wr_flags = 0;
  ibv_wr_send_imm(c_, 0x0a0b0c0d);
  char text[] = "inline";
  ibv_wr_set_inline_data(c_, text, sizeof(text));
  ASSERT_EQ(ibv_wr_complete(c_), 0);

  ASSERT_TRUE(start_poll());
  EXPECT_EQ(extended_cq_->wr_id, 1u);
  EXPECT_EQ(extended_cq_->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(extended_cq_), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(extended_cq_), sizeof(text));
  EXPECT_EQ(ibv_wc_read_imm_data(extended_cq_), 0x0a0b0c0du);
  EXPECT_EQ(ibv_wc_read_wc_flags(extended_cq_), static_cast<unsigned int>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_qp_num(extended_cq_), d_->qp_num);
  ibv_values_ex now{};
  now.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(client_.context, &now), 0);
  EXPECT_LE(ibv_wc_read_completion_ts(extended_cq_), static_cast<uint64_t>(now.raw_clock.tv_nsec));
  EXPECT_NE(ibv_wc_read_completion_ts(extended_cq_), 0u);
  EXPECT_GT(ibv_wc_read_completion_wallclock_ns(extended_cq_), ibv_wc_read_completion_ts(extended_cq_));
  EXPECT_EQ(ibv_next_poll(extended_cq_), ENOENT);
  ibv_end_poll(extended_cq_);
}

TEST_F(ExtendedTest, AFailedBatchPostsNothing) {
  ibv_wr_start(c_);
  c_->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(c_);
  ibv_wr_atomic_fetch_add(c_, client_.mr->rkey, address(65536), 1);
  ibv_wr_set_sge(c_, client_.mr->lkey, address(0), 4);
  EXPECT_EQ(ibv_wr_complete(c_), EINVAL);

  ibv_wr_start(c_);
  for (int i = 0; i < 17; ++i) ibv_wr_rdma_read(c_, client_.mr->rkey, address(0));
  EXPECT_EQ(ibv_wr_complete(c_), ENOMEM);

  ibv_wr_start(c_);
  ibv_wr_send(c_);
  char too_long[65] = {};
  ibv_wr_set_inline_data(c_, too_long, sizeof(too_long));
  EXPECT_EQ(ibv_wr_complete(c_), EINVAL);

  ibv_wr_start(c_);
  ibv_wr_send(c_);
  ibv_wr_abort(c_);

  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(extended_cq_, &attr), ENOENT);
}

TEST_F(ExtendedTest, RefusesFieldsThatDoNotExist) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 8;
  attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  EXPECT_EQ(ibv_create_cq_ex(client_.context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
