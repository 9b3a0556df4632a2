// SPDX-License-Identifier: BSD-2-Clause
// Life and death of verbs objects: what create functions refuse, what is busy, what a query says.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <string>
#include <sys/mman.h>

#include "fixture.h"

namespace {

TEST(Devices, AreTheSamePointersInEveryList) {
  int count = 0;
  ibv_device** first = ibv_get_device_list(&count);
  ASSERT_EQ(count, 1);
  ibv_device** second = ibv_get_device_list(nullptr);
  EXPECT_EQ(first[0], second[0]);
  EXPECT_EQ(first[1], nullptr);
  ibv_device* device = first[0];
  ibv_free_device_list(first);
  ibv_free_device_list(second);
  EXPECT_STREQ(ibv_get_device_name(device), "uroce_rdma0");
  EXPECT_GT(ibv_get_device_index(device), 0);
  EXPECT_NE(ibv_get_device_guid(device), 0u);
  EXPECT_EQ(device->node_type, IBV_NODE_CA);
  EXPECT_EQ(device->transport_type, IBV_TRANSPORT_IB);
}

TEST_F(ClientTest, ContextIsExtendedAndHasDescriptors) {
  EXPECT_EQ(client_.context->abi_compat, __VERBS_ABI_IS_EXTENDED);
  EXPECT_EQ(verbs_get_ctx(client_.context)->sz, 696u);
  EXPECT_EQ(client_.context->num_comp_vectors, 1);
  EXPECT_GE(fcntl(client_.context->cmd_fd, F_GETFD), 0);
  EXPECT_GE(fcntl(client_.context->async_fd, F_GETFD), 0);
}

TEST_F(ClientTest, DeviceAttributesFitTheCallersStruct) {
  ibv_device_attr_ex full;
  ASSERT_EQ(ibv_query_device_ex(client_.context, nullptr, &full), 0);
  EXPECT_EQ(full.orig_attr.phys_port_cnt, 1);
  EXPECT_EQ(full.phys_port_cnt_ex, 1u);
  EXPECT_EQ(full.hca_core_clock, 1'000'000u);
  EXPECT_EQ(full.orig_attr.node_guid, ibv_get_device_guid(client_.context->device));

  // An application with an older, shorter struct.
  ibv_device_attr_ex older;
  std::memset(static_cast<void*>(&older), 0x5a, sizeof(older));
  constexpr size_t kOlder = offsetof(ibv_device_attr_ex, odp_caps);
  ASSERT_EQ(verbs_get_ctx(client_.context)->query_device_ex(client_.context, nullptr, &older, kOlder), 0);
  EXPECT_EQ(reinterpret_cast<unsigned char*>(&older)[kOlder - 1], 0);
  EXPECT_EQ(reinterpret_cast<unsigned char*>(&older)[kOlder], 0x5a);
}

TEST_F(ClientTest, ForkNeedsNoPreparation) {
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

TEST_F(ClientTest, MemoryHasToExistAndRightsToMakeSense) {
  char buffer[64];
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(client_.pd, buffer, sizeof(buffer), IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(client_.pd, buffer, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);

  constexpr size_t kLength = 1 << 20;
  void* area = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(area, MAP_FAILED);
  ibv_mr* mr = ibv_reg_mr(client_.pd, area, kLength, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, mr->rkey);
  EXPECT_EQ(mr->addr, area);
  EXPECT_EQ(mr->length, kLength);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(static_cast<char*>(area) + kLength / 2, kLength / 4);
  EXPECT_EQ(ibv_reg_mr(client_.pd, area, kLength, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  munmap(area, kLength);
}

TEST_F(ClientTest, BusyObjectsCannotBeDestroyed) {
  ibv_comp_channel* channel = ibv_create_comp_channel(client_.context);
  ibv_cq* cq = ibv_create_cq(client_.context, 10, nullptr, channel, 0);
  ibv_qp* qp = client_create_qp(&client_, cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(client_.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(ClientTest, CompletionQueueSizes) {
  EXPECT_EQ(ibv_create_cq(client_.context, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_create_cq(client_.context, -1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_create_cq(client_.context, 1 << 30, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_create_cq(client_.context, 10, nullptr, nullptr, 1), nullptr) << "one completion vector: number 0";
  ibv_cq* cq = ibv_create_cq(client_.context, 30000, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_GE(cq->cqe, 30000);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// What fits where the SGEs are, as rdma_xclient takes it for granted.
TEST_F(ClientTest, RoomForSgesIsRoomForInlineData) {
  ibv_cq* cq = ibv_create_cq(client_.context, 10, nullptr, nullptr, 0);
  for (const uint32_t sges : {1u, 4u}) {
    ibv_qp_init_attr attr = client_qp_attributes(cq);
    attr.cap.max_send_sge = sges;
    attr.cap.max_inline_data = 0;
    ibv_qp* qp = ibv_create_qp(client_.pd, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_GE(attr.cap.max_inline_data, sges * sizeof(ibv_sge));
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(ClientTest, QueuePairsAreRefusedForWhatTheyCannotBe) {
  ibv_cq* cq = ibv_create_cq(client_.context, 10, nullptr, nullptr, 0);
  const auto error_of = [&](auto&& change) {
    ibv_qp_init_attr attr = client_qp_attributes(cq);
    change(attr);
    errno = 0;
    EXPECT_EQ(ibv_create_qp(client_.pd, &attr), nullptr);
    return errno;
  };
  EXPECT_EQ(error_of([](ibv_qp_init_attr& attr) { attr.cap.max_inline_data = 1 << 30; }), EINVAL);
  EXPECT_EQ(error_of([](ibv_qp_init_attr& attr) { attr.cap.max_send_wr = 1 << 20; }), EINVAL);
  EXPECT_EQ(error_of([](ibv_qp_init_attr& attr) { attr.cap.max_recv_sge = 1000; }), EINVAL);
  EXPECT_EQ(error_of([](ibv_qp_init_attr& attr) { attr.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(error_of([](ibv_qp_init_attr& attr) { attr.qp_type = IBV_QPT_RAW_PACKET; }), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(ClientTest, CapabilitiesAreWrittenBack) {
  ibv_cq* cq = ibv_create_cq(client_.context, 10, nullptr, nullptr, 0);
  ibv_qp_init_attr attr = client_qp_attributes(cq);
  attr.cap.max_recv_sge = 0;
  ibv_qp* qp = ibv_create_qp(client_.pd, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(attr.cap.max_recv_sge, 1u);
  EXPECT_GE(attr.cap.max_send_wr, 16u);
  ibv_qp_attr queried;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(qp, &queried, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(std::memcmp(&queried.cap, &attr.cap, sizeof(attr.cap)), 0);
  EXPECT_EQ(std::memcmp(&init.cap, &attr.cap, sizeof(attr.cap)), 0);
  EXPECT_EQ(init.send_cq, cq);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(queried.cur_qp_state, IBV_QPS_RESET);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(ConnectedTest, QueryReturnsWhatModifySet) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a_, &attr, -1, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(a_->state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, b_->qp_num);
  EXPECT_EQ(attr.rq_psn, 0x123456u);
  EXPECT_EQ(attr.sq_psn, 0x123456u);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.min_rnr_timer, 12);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 4);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
}

TEST_F(ConnectedTest, ModifyRefusesWhatTheFormCannotSay) {
  ibv_qp_attr attr{};
  attr.qp_state = static_cast<ibv_qp_state>(9);
  EXPECT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), EINVAL);
  EXPECT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE | IBV_QP_AV), EINVAL) << "without a GRH";
  EXPECT_EQ(a_->state, IBV_QPS_RTS);
}

// The kernel destroys what an application forgot, and perftest does forget.
TEST(Closing, TakesForgottenObjectsFromTheEngine) {
  client client{};
  ASSERT_EQ(client_open(&client), 0);
  ibv_cq* cq = ibv_create_cq(client.context, 10, nullptr, nullptr, 0);
  ibv_qp* qp = client_create_qp(&client, cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_close_device(client.context), 0);
  // Too late, but harmless.
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dereg_mr(client.mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(client.pd), 0);
  free(client.memory);
}

}  // namespace
