// SPDX-License-Identifier: BSD-2-Clause
// ibv_wr_*: each function, by what it does at the other end; XRC and shared receive queues through it.
#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include "fixture.h"

namespace {

constexpr uint64_t kFlushOperation = 1 << 11;  // IBV_QP_EX_WITH_FLUSH, rdma-core 45
constexpr unsigned kFlushAccess = 1 << 8;      // IBV_ACCESS_FLUSH_GLOBAL
constexpr uint32_t kQkey = 0x11111111;
using Flush = void (*)(ibv_qp_ex*, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

// a_ made for all operations of its type, connected to b_.
class WorkRequestTest : public ConnectedTest {
 protected:
  void SetUp() override {
    ConnectedTest::SetUp();
    ASSERT_EQ(ibv_destroy_qp(a_), 0);
    ibv_qp_init_attr plain = client_qp_attributes(cq_);
    ibv_qp_init_attr_ex attr{};
    std::memcpy(&attr, &plain, sizeof(plain));
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = client_.pd;
    attr.send_ops_flags = 0x3ff | kFlushOperation | IBV_QP_EX_WITH_ATOMIC_WRITE;
    attr.send_ops_flags &= ~static_cast<uint64_t>(IBV_QP_EX_WITH_TSO);
    a_ = ibv_create_qp_ex(client_.context, &attr);
    ASSERT_NE(a_, nullptr);
    ASSERT_EQ(ibv_destroy_qp(b_), 0);
    b_ = client_create_qp(&client_, cq_);
    ASSERT_EQ(client_connect(&client_, a_, b_->qp_num), 0);
    ASSERT_EQ(client_connect(&client_, b_, a_->qp_num), 0);
    qp_ = ibv_qp_to_qp_ex(a_);
    ASSERT_NE(qp_, nullptr);
    qp_->wr_flags = IBV_SEND_SIGNALED;
    qp_->wr_id = 7;
  }

  uint64_t address(size_t offset) const { return reinterpret_cast<uintptr_t>(client_.memory) + offset; }
  ibv_wc next() {
    ibv_wc wc{};
    EXPECT_EQ(client_wait(cq_, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    return wc;
  }
  // The completion with this opcode, of one that sends and one that receives.
  ibv_wc of_two(ibv_wc_opcode opcode) {
    const ibv_wc first = next(), second = next();
    return first.opcode == opcode ? first : second;
  }

  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(WorkRequestTest, WriteWithImmediateGathersInlineBuffers) {
  ASSERT_EQ(post_receive(b_, 1, 0, 0), 0);
  char left[] = "left", right[] = "right";
  const ibv_data_buf buffers[] = {{left, 4}, {right, 5}};
  ibv_wr_start(qp_);
  ibv_wr_rdma_write_imm(qp_, client_.mr->rkey, address(4096), 0x12345678);
  ibv_wr_set_inline_data_list(qp_, 2, buffers);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  const ibv_wc wc = of_two(IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 0x12345678u);
  EXPECT_EQ(wc.byte_len, 9u);
  EXPECT_EQ(std::memcmp(client_.memory + 4096, "leftright", 9), 0);
}

TEST_F(WorkRequestTest, CompareAndSwapGivesTheOldValue) {
  const uint64_t old = 42;
  std::memcpy(client_.memory + 512, &old, 8);
  ibv_wr_start(qp_);
  ibv_wr_atomic_cmp_swp(qp_, client_.mr->rkey, address(512), 42, 43);
  ibv_wr_set_sge(qp_, client_.mr->lkey, address(1024), 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(next().opcode, IBV_WC_COMP_SWAP);
  uint64_t now, result;
  std::memcpy(&now, client_.memory + 512, 8);
  std::memcpy(&result, client_.memory + 1024, 8);
  EXPECT_EQ(now, 43u);
  EXPECT_EQ(result, 42u);
}

TEST_F(WorkRequestTest, AtomicWriteThenFlush) {
  ibv_mr* mr = ibv_reg_mr(client_.pd, client_.memory, 4096,
                          static_cast<int>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | kFlushAccess));
  ASSERT_NE(mr, nullptr);
  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | kFlushAccess;
  ASSERT_EQ(ibv_modify_qp(b_, &attr, IBV_QP_ACCESS_FLAGS), 0);
  const uint64_t value = 0x1122334455667788;
  // The function's slot follows the struct as the distribution's header has it.
  Flush flush;
  std::memcpy(&flush, reinterpret_cast<const char*>(qp_) + sizeof(*qp_), sizeof(flush));
  ASSERT_NE(flush, nullptr);
  ibv_wr_start(qp_);
  ibv_wr_atomic_write(qp_, mr->rkey, address(256), &value);
  flush(qp_, mr->rkey, address(256), 8, 1, 0);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  next();
  EXPECT_EQ(std::memcmp(client_.memory + 256, &value, 8), 0);
  next();
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(WorkRequestTest, WindowsAreBoundAndInvalidatedFromEitherSide) {
  ibv_mr* mr = ibv_reg_mr(client_.pd, client_.memory, 4096,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = ibv_alloc_mw(client_.pd, IBV_MW_TYPE_2);
  ASSERT_TRUE(mr != nullptr && mw != nullptr);
  const ibv_mw_bind_info info{mr, address(0), 4096, IBV_ACCESS_REMOTE_WRITE};
  ibv_wr_start(qp_);
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_wr_bind_mw(qp_, mw, key, &info);
  ibv_wr_local_inv(qp_, key);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(next().opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(next().opcode, IBV_WC_LOCAL_INV);

  // b_ binds it anew, a_ takes it away.
  ibv_send_wr bind = send_request(1, nullptr, IBV_WR_BIND_MW);
  const uint32_t second = ibv_inc_rkey(key);
  bind.bind_mw = {mw, second, info};
  ASSERT_EQ(post(b_, bind), 0);
  next();
  ASSERT_EQ(post_receive(b_, 2, 0, 64), 0);
  ibv_wr_start(qp_);
  ibv_wr_send_inv(qp_, second);
  ibv_wr_set_sge(qp_, client_.mr->lkey, address(8192), 4);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  const ibv_wc wc = of_two(IBV_WC_RECV);
  EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_INV);
  EXPECT_EQ(wc.invalidated_rkey, second);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

ibv_qp* make_datagram_qp(ibv_pd* pd, ibv_cq* cq, uint64_t operations) {
  ibv_qp_init_attr plain = client_qp_attributes(cq);
  ibv_qp_init_attr_ex attr{};
  std::memcpy(&attr, &plain, sizeof(plain));
  attr.qp_type = IBV_QPT_UD;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = operations;
  ibv_qp* qp = ibv_create_qp_ex(pd->context, &attr);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = 1;
  state.qkey = kQkey;
  EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  state.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
  state.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  return qp;
}

TEST_F(WorkRequestTest, DatagramsGoWhereTheAddressHandleSays) {
  ibv_qp* qp = make_datagram_qp(client_.pd, cq_, IBV_QP_EX_WITH_SEND);
  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_query_gid(client_.context, 1, 0, &attr.grh.dgid), 0);
  attr.is_global = 1;
  attr.port_num = 1;
  ibv_ah* ah = ibv_create_ah(client_.pd, &attr);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(post_receive(qp, 1, 0, 256), 0);
  std::memcpy(client_.memory + 1024, "datagram", 8);
  ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp);
  extended->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_start(extended);
  ibv_wr_send(extended);
  ibv_wr_set_ud_addr(extended, ah, qp->qp_num, kQkey);
  ibv_wr_set_sge(extended, client_.mr->lkey, address(1024), 8);
  ASSERT_EQ(ibv_wr_complete(extended), 0);
  const ibv_wc wc = of_two(IBV_WC_RECV);
  EXPECT_EQ(wc.src_qp, qp->qp_num);
  EXPECT_EQ(std::memcmp(client_.memory + 40, "datagram", 8), 0);

  ibv_gid group{};
  group.raw[10] = group.raw[11] = 0xff;
  group.raw[12] = 239;
  group.raw[15] = 1;
  EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), EINVAL) << "not in it";
  group.raw[10] = 0;
  EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), EINVAL) << "not a group";
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(ConnectedTest, SharedReceiveQueuesTellAndChangeTheirSize) {
  ibv_srq_init_attr attr{nullptr, {10, 2, 0}};
  ibv_srq* srq = ibv_create_srq(client_.pd, &attr);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr now{};
  ASSERT_EQ(ibv_query_srq(srq, &now), 0);
  EXPECT_GE(now.max_wr, 10u);
  EXPECT_GE(now.max_sge, 2u);
  EXPECT_EQ(now.srq_limit, 0u);
  ibv_srq_attr wanted{100, 0, 5};
  EXPECT_EQ(ibv_modify_srq(srq, &wanted, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq, &now), 0);
  EXPECT_GE(now.max_wr, 100u);
  EXPECT_EQ(now.srq_limit, 5u);
  EXPECT_EQ(ibv_modify_srq(srq, &wanted, 1 << 7), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

ibv_qp* make_xrc_qp(ibv_pd* pd, ibv_cq* cq, ibv_xrcd* xrcd, ibv_qp_type type) {
  ibv_qp_init_attr plain = client_qp_attributes(cq);
  ibv_qp_init_attr_ex attr{};
  std::memcpy(&attr, &plain, sizeof(plain));
  attr.qp_type = type;
  attr.pd = pd;
  attr.xrcd = xrcd;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  attr.comp_mask = type == IBV_QPT_XRC_RECV ? static_cast<uint32_t>(IBV_QP_INIT_ATTR_XRCD)
                                            : IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  return ibv_create_qp_ex(pd->context, &attr);
}

TEST_F(ConnectedTest, XrcDeliversToTheQueueThatTheRequestNames) {
  ibv_xrcd_init_attr domain{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* xrcd = ibv_open_xrcd(client_.context, &domain);
  ASSERT_NE(xrcd, nullptr);
  ibv_srq_init_attr_ex attr{};
  attr.attr = {8, 1, 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = client_.pd;
  attr.xrcd = xrcd;
  attr.cq = cq_;
  ibv_srq* srq = ibv_create_srq_ex(client_.context, &attr);
  ASSERT_NE(srq, nullptr);
  uint32_t number = 0;
  ASSERT_EQ(ibv_get_srq_num(srq, &number), 0);
  ibv_qp* initiator = make_xrc_qp(client_.pd, cq_, nullptr, IBV_QPT_XRC_SEND);
  ibv_qp* target = make_xrc_qp(client_.pd, cq_, xrcd, IBV_QPT_XRC_RECV);
  ASSERT_TRUE(initiator != nullptr && target != nullptr);
  ASSERT_EQ(client_connect(&client_, initiator, target->qp_num), 0);
  ASSERT_EQ(client_connect(&client_, target, initiator->qp_num), 0);

  ibv_sge list = sge(0, 64);
  ibv_recv_wr receive{5, nullptr, &list, 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad), 0);
  std::memcpy(client_.memory + 1024, "to the queue", 12);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(initiator);
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(qp);
  ibv_wr_set_xrc_srqn(qp, number);
  ibv_wr_set_sge(qp, client_.mr->lkey, reinterpret_cast<uintptr_t>(client_.memory) + 1024, 12);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ibv_wc wcs[2];
  ASSERT_EQ(client_wait(cq_, &wcs[0]), 1);
  ASSERT_EQ(client_wait(cq_, &wcs[1]), 1);
  EXPECT_EQ(wcs[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(wcs[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(client_.memory, "to the queue", 12), 0);

  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = target->qp_num;
  open.xrcd = xrcd;
  open.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* second = ibv_open_qp(client_.context, &open);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->qp_num, target->qp_num);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(second), 0);
  errno = 0;
  EXPECT_EQ(ibv_open_qp(client_.context, &open), nullptr) << "gone with the last handle";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_qp(initiator), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace
