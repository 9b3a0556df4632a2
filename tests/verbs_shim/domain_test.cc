// Protection domains, thread domains, parent domains, and the import of devices and protection domains.
#include <cerrno>
#include <fcntl.h>
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
  EXPECT_EQ(ibv_alloc_parent_domain(client_.context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.comp_mask = 1u << 20;
  EXPECT_EQ(ibv_alloc_parent_domain(client_.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_td_init_attr td{};
  td.comp_mask = 1;
  EXPECT_EQ(ibv_alloc_td(client_.context, &td), nullptr);
  EXPECT_EQ(errno, EINVAL);
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
  EXPECT_EQ(ibv_query_qp_data_in_order(a_, IBV_WR_RDMA_WRITE, 0), 0);
}

}  // namespace
