// SPDX-License-Identifier: BSD-2-Clause
// Protection domains, thread domains, parent domains, and the import of devices and protection domains.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <unistd.h>

#include "fixture.h"

namespace {

using DomainTest = ClientTest;

ibv_td* create_td(ibv_context* context) {
  ibv_td_init_attr attr{};
  return ibv_alloc_td(context, &attr);
}

TEST_F(DomainTest, ParentDomainKeepsItsPartsBusy) {
  ibv_pd* pd = ibv_alloc_pd(client_.context);
  ibv_td* td = create_td(client_.context);
  ASSERT_TRUE(pd != nullptr && td != nullptr);
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd;
  attr.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(client_.context, &attr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// Interchangeable with the PD: a region of the one serves a QP of the other.
TEST_F(DomainTest, ParentDomainIsItsProtectionDomain) {
  ibv_parent_domain_init_attr attr{};
  attr.pd = client_.pd;
  client extended = client_;
  extended.pd = ibv_alloc_parent_domain(client_.context, &attr);
  ASSERT_NE(extended.pd, nullptr);
  ibv_cq* cq = ibv_create_cq(client_.context, 16, nullptr, nullptr, 0);
  ibv_qp* a = client_create_qp(&extended, cq);
  ibv_qp* b = client_create_qp(&client_, cq);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(ibv_dealloc_pd(extended.pd), EBUSY);
  ASSERT_EQ(client_connect(&client_, a, b->qp_num), 0);
  ASSERT_EQ(client_connect(&client_, b, a->qp_num), 0);
  ibv_sge list{reinterpret_cast<uintptr_t>(client_.memory), 8, client_.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<uintptr_t>(client_.memory) + 64, client_.mr->rkey};
  ibv_send_wr* bad;
  client_.memory[0] = 77;
  ASSERT_EQ(ibv_post_send(a, &wr, &bad), 0);
  ibv_wc wc;
  ASSERT_EQ(client_wait(cq, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(client_.memory[64], 77);
  EXPECT_EQ(ibv_destroy_qp(a), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(extended.pd), 0);
}

TEST_F(DomainTest, ParentDomainsAreRefusedForWhatTheyCannotBe) {
  ibv_parent_domain_init_attr attr{};
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(client_.context, &attr), nullptr) << "without a PD";
  EXPECT_EQ(errno, EINVAL);
  attr.pd = client_.pd;
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  EXPECT_EQ(ibv_alloc_parent_domain(client_.context, &attr), nullptr) << "without the functions";
  EXPECT_EQ(errno, EINVAL);
  attr.comp_mask = 1u << 20;
  EXPECT_EQ(ibv_alloc_parent_domain(client_.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_td_init_attr td{};
  td.comp_mask = 1;
  EXPECT_EQ(ibv_alloc_td(client_.context, &td), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// What a lock would make wait for itself: two ways to post at the same time, from one thread.
TEST_F(DomainTest, QueuesOfAThreadDomainHaveNoLocks) {
  ibv_td* td = create_td(client_.context);
  ibv_parent_domain_init_attr parent{};
  parent.pd = client_.pd;
  parent.td = td;
  ibv_pd* pd = ibv_alloc_parent_domain(client_.context, &parent);
  ASSERT_NE(pd, nullptr);
  ibv_cq* cq = ibv_create_cq(client_.context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr plain = client_qp_attributes(cq);
  ibv_qp_init_attr_ex attr{};
  std::memcpy(&attr, &plain, sizeof(plain));
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  ibv_qp* qp = ibv_create_qp_ex(client_.context, &attr);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(client_connect(&client_, qp, qp->qp_num), 0);
  ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(extended);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  ibv_wr_abort(extended);
  ibv_wc wc{};
  EXPECT_EQ(client_wait(cq, &wc), 1);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

// An application's allocator, as libmlx5 calls it: asked for the memory of each queue made on its parent domain.
struct Allocator {
  static void* allocate(ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t kind) {
    auto& self = *static_cast<Allocator*>(context);
    EXPECT_EQ(pd, self.pd);
    ++self.asked;
    if (self.answer != self.kOwn) return self.answer;
    void* memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    std::memset(memory, kRubbish, size);
    self.live[memory] = kind;
    return memory;
  }
  static void release(ibv_pd* pd, void* context, void* memory, uint64_t kind) {
    auto& self = *static_cast<Allocator*>(context);
    EXPECT_EQ(pd, self.pd);
    const auto found = self.live.find(memory);
    ASSERT_NE(found, self.live.end());
    EXPECT_EQ(found->second, kind);
    self.live.erase(found);
    free(memory);
  }

  // The queues make use of all that they have asked for: none of it begins with what was there.
  bool in_use() const {
    return std::all_of(live.begin(), live.end(), [](const auto& one) {
      const auto* bytes = static_cast<const unsigned char*>(one.first);
      return std::any_of(bytes, bytes + 16, [](unsigned char byte) { return byte != kRubbish; });
    });
  }

  static constexpr unsigned char kRubbish = 0xa5;
  void* const kOwn = this;
  void* answer = kOwn;
  ibv_pd* pd = nullptr;
  int asked = 0;
  std::map<void*, uint64_t> live;
};

TEST_F(DomainTest, QueuesOnAParentDomainLieWhereTheApplicationSays) {
  Allocator allocator;
  ibv_parent_domain_init_attr attr{};
  attr.pd = client_.pd;
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  attr.alloc = Allocator::allocate;
  attr.free = Allocator::release;
  attr.pd_context = &allocator;
  ibv_pd* pd = ibv_alloc_parent_domain(client_.context, &attr);
  ASSERT_NE(pd, nullptr);
  allocator.pd = pd;

  for (void* const answer : {allocator.kOwn, IBV_ALLOCATOR_USE_DEFAULT}) {
    allocator.answer = answer;
    allocator.asked = 0;
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = 64;
    cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    cq_attr.parent_domain = pd;
    ibv_cq_ex* extended = ibv_create_cq_ex(client_.context, &cq_attr);
    ASSERT_NE(extended, nullptr);
    ibv_cq* cq = ibv_cq_ex_to_cq(extended);
    ibv_srq_init_attr srq_attr{nullptr, {8, 2, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(allocator.asked, 2);
    client on_parent = client_;
    on_parent.pd = pd;
    ibv_qp* a = client_create_qp(&on_parent, cq);
    ibv_qp* b = client_create_qp(&on_parent, cq);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(allocator.asked, 6) << "a send and a receive queue each";
    EXPECT_EQ(allocator.live.size(), answer == allocator.kOwn ? 6u : 0u);
    ASSERT_EQ(client_connect(&client_, a, b->qp_num), 0);
    ASSERT_EQ(client_connect(&client_, b, a->qp_num), 0);

    // More messages than slots, so that every slot is used.
    client_.memory[4096] = 77;
    for (int i = 0; i < 100; ++i) {
      ibv_qp *const sender = i % 2 == 0 ? a : b, *const receiver = i % 2 == 0 ? b : a;
      ibv_sge to{reinterpret_cast<uintptr_t>(client_.memory) + 64, 1, client_.mr->lkey};
      ibv_recv_wr receive{};
      receive.sg_list = &to;
      receive.num_sge = 1;
      ibv_recv_wr* bad_receive = nullptr;
      ASSERT_EQ(ibv_post_recv(receiver, &receive, &bad_receive), 0);
      ibv_sge from{reinterpret_cast<uintptr_t>(client_.memory) + 4096, 1, client_.mr->lkey};
      ibv_send_wr send{};
      send.sg_list = &from;
      send.num_sge = 1;
      send.opcode = IBV_WR_SEND;
      send.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(sender, &send, &bad), 0);
      for (int completion = 0; completion < 2; ++completion) {
        ibv_wc wc{};
        ASSERT_EQ(client_wait(cq, &wc), 1);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      }
    }
    EXPECT_EQ(client_.memory[64], 77);
    client_.memory[64] = 0;
    EXPECT_TRUE(allocator.in_use());
    EXPECT_EQ(ibv_resize_cq(cq, 1000), 0);
    EXPECT_EQ(ibv_destroy_qp(a), 0);
    EXPECT_EQ(ibv_destroy_qp(b), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_TRUE(allocator.live.empty()) << "each was given back once";
  }

  allocator.answer = nullptr;
  errno = 0;
  ibv_srq_init_attr srq_attr{nullptr, {8, 2, 0}};
  EXPECT_EQ(ibv_create_srq(pd, &srq_attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "what failed holds nothing";
}

// --- import ----------------------------------------------------------------------------------------------------------

TEST_F(DomainTest, ImportedDeviceIsAContextOfTheSameDevice) {
  const int fd = fcntl(client_.context->cmd_fd, F_DUPFD_CLOEXEC, 100);
  ASSERT_GE(fd, 100);
  ibv_context* imported = ibv_import_device(fd);
  ASSERT_NE(imported, nullptr);
  EXPECT_NE(imported, client_.context);
  EXPECT_EQ(imported->device, client_.context->device);
  EXPECT_EQ(imported->cmd_fd, fd);
  EXPECT_NE(imported->async_fd, client_.context->async_fd);
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(imported, 1, &port), 0);
  // A copy of a copy.
  ibv_context* again = ibv_import_device(dup(imported->cmd_fd));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(ibv_close_device(again), 0);
  EXPECT_EQ(ibv_close_device(imported), 0);
  EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "closing closes the descriptor";
  EXPECT_GE(fcntl(client_.context->cmd_fd, F_GETFD), 0);
}

TEST_F(DomainTest, ImportNeedsADescriptorOfADevice) {
  errno = 0;
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const int other = open("/dev/null", O_RDONLY);
  EXPECT_EQ(ibv_import_device(other), nullptr);
  EXPECT_EQ(errno, EINVAL);
  close(other);
  errno = 0;
  EXPECT_EQ(ibv_import_pd(client_.context, 0xffffffff), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(DomainTest, ImportedPdIsTheSameDomain) {
  client imported = client_;
  imported.context = ibv_import_device(dup(client_.context->cmd_fd));
  ASSERT_NE(imported.context, nullptr);
  imported.pd = ibv_import_pd(imported.context, client_.pd->handle);
  ASSERT_NE(imported.pd, nullptr);
  EXPECT_EQ(imported.pd->context, imported.context);
  EXPECT_EQ(imported.pd->handle, client_.pd->handle);
  ibv_cq* cq = ibv_create_cq(imported.context, 16, nullptr, nullptr, 0);
  ibv_qp* qp = client_create_qp(&imported, cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dereg_mr(client_.mr), 0);
  client_.mr = nullptr;
  EXPECT_EQ(ibv_dealloc_pd(client_.pd), EBUSY) << "the QP counts for the domain";
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  ibv_unimport_pd(imported.pd);
  EXPECT_EQ(ibv_dealloc_pd(client_.pd), 0);
  client_.pd = nullptr;
  EXPECT_EQ(ibv_close_device(imported.context), 0);
}

TEST_F(DomainTest, ImportedContextsShareTheirRegions) {
  ibv_context* context = ibv_import_device(dup(client_.context->cmd_fd));
  ASSERT_NE(context, nullptr);
  ibv_pd* pd = ibv_import_pd(context, client_.pd->handle);
  ASSERT_NE(pd, nullptr);
  ibv_mr* mr = ibv_import_mr(pd, client_.mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, client_.mr->lkey);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  EXPECT_EQ(ibv_close_device(context), 0);
  // What is left belongs to both: it goes with the last.
  context = ibv_import_device(dup(client_.context->cmd_fd));
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(ibv_close_device(client_.context), 0);
  pd = ibv_import_pd(context, client_.pd->handle);
  ASSERT_NE(pd, nullptr);
  mr = ibv_import_mr(pd, client_.mr->handle);
  EXPECT_NE(mr, nullptr);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(ibv_dereg_mr(client_.mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(client_.pd), 0);
  client_.mr = nullptr;
  client_.pd = nullptr;
  client_.context = nullptr;
}

// One of the pointers ends the domain, whichever; the others are only let go.
TEST_F(DomainTest, ImportedPdMayBeTheOneThatIsDeallocated) {
  ibv_pd* pd = ibv_alloc_pd(client_.context);
  const uint32_t handle = pd->handle;
  ibv_pd* imported = ibv_import_pd(client_.context, handle);
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(imported), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), ENOENT) << "has been";
  EXPECT_EQ(ibv_import_pd(client_.context, handle), nullptr);
  ibv_unimport_pd(pd);
}

TEST_F(DomainTest, AStrangersPdCannotBeImported) {
  client other{};
  ASSERT_EQ(client_open(&other), 0);
  EXPECT_EQ(ibv_import_pd(other.context, client_.pd->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  client_close(&other);
}

// --- enhanced connection establishment -------------------------------------------------------------------------------

TEST_F(ConnectedTest, EceIsTakenNoteOfAndOffersNothing) {
  ibv_ece ece;
  ASSERT_EQ(ibv_query_ece(a_, &ece), 0);
  EXPECT_EQ(ece.vendor_id, 0u);
  EXPECT_EQ(ece.options, 0u);
  EXPECT_EQ(ece.comp_mask, 0u);
  ece.vendor_id = 0x15b3;
  ece.options = 0x30000002;
  EXPECT_EQ(ibv_set_ece(a_, &ece), 0);
  ASSERT_EQ(ibv_query_ece(a_, &ece), 0);
  EXPECT_EQ(ece.options, 0u);
  ece.comp_mask = 1;
  EXPECT_EQ(ibv_set_ece(a_, &ece), EINVAL);
}

// --- order of data ---------------------------------------------------------------------------------------------------

// tests/e2e/data_in_order.py watches whether that is true.
TEST_F(ConnectedTest, DataComesInOrder) {
  constexpr uint32_t kReturnCaps = 1, kUnknown = 1u << 31;  // newer than the header
  constexpr int kWholeMessage = 1, kAligned128Bytes = 2;
#if defined(__x86_64__)
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                     IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_READ}) {
    EXPECT_EQ(ibv_query_qp_data_in_order(a_, opcode, 0), kWholeMessage);
    EXPECT_EQ(ibv_query_qp_data_in_order(a_, opcode, kReturnCaps), kWholeMessage | kAligned128Bytes);
    EXPECT_EQ(ibv_query_qp_data_in_order(a_, opcode, kReturnCaps | kUnknown), 0);
  }
#else
  EXPECT_EQ(ibv_query_qp_data_in_order(a_, IBV_WR_RDMA_WRITE, kReturnCaps), 0);
#endif
  EXPECT_EQ(ibv_query_qp_data_in_order(a_, IBV_WR_ATOMIC_FETCH_AND_ADD, 0), 0) << "not asked for other operations";
}

}  // namespace
