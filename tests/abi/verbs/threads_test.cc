// SPDX-License-Identifier: BSD-2-Clause
// All verbs from many threads at once: each makes, uses and destroys objects of its kinds on a device, a protection
// domain and a completion queue that all share, while others poll, wait for events and query. One connection goes on
// through all of it and loses nothing.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <thread>
#include <vector>

#include "alone.h"
#include "fixture.h"

namespace {

constexpr int kRounds = 150;  // of each thread

// A check that says in which thread's work it failed, and goes on.
#define HOLDS(condition) EXPECT_TRUE(condition) << strerror(errno)

class ThreadsTest : public ClientTest {
 public:
  void SetUp() override {
    ClientTest::SetUp();
    channel_ = ibv_create_comp_channel(client_.context);
    cq_ = ibv_create_cq(client_.context, 4096, nullptr, channel_, 0);
    ibv_srq_init_attr init{};
    init.attr.max_wr = 64;
    init.attr.max_sge = 1;
    srq_ = ibv_create_srq(client_.pd, &init);
    ASSERT_TRUE(cq_ != nullptr && srq_ != nullptr);
    for (const int fd : {channel_->fd, client_.context->async_fd}) {
      ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    }
    ASSERT_EQ(ibv_query_gid(client_.context, 1, 0, &gid_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    ClientTest::TearDown();
  }

  ibv_sge sge() { return {reinterpret_cast<uintptr_t>(client_.memory), 64, client_.mr->lkey}; }
  ibv_ah_attr address(const ibv_gid& gid) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid;
    attr.grh.hop_limit = 1;
    return attr;
  }
  ibv_qp* create_qp(ibv_qp_type type, ibv_cq* cq, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr init = client_qp_attributes(cq);
    init.qp_type = type;
    init.srq = srq;
    return ibv_create_qp(client_.pd, &init);
  }

  void reliable_connections();
  void unreliable_connections();
  void datagrams();
  void extended_reliable_connections();
  void memory();
  void completion_queues();
  void shared_receive_queues();
  void contexts();
  void queries();
  void poll_queue();
  void wait_for_completions();
  void wait_for_async_events();
  void steady_connection();

  std::atomic<bool> stop_{false};
  std::atomic<int> events_{0};
  ibv_gid gid_{};
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
};

void ThreadsTest::reliable_connections() {
  for (int i = 0; i < kRounds; ++i) {
    ibv_qp* a = create_qp(IBV_QPT_RC, cq_, i % 2 ? srq_ : nullptr);
    ibv_qp* b = create_qp(IBV_QPT_RC, cq_);
    ASSERT_TRUE(a != nullptr && b != nullptr) << strerror(errno);
    HOLDS(client_connect(&client_, a, b->qp_num) == 0);
    HOLDS(client_connect(&client_, b, a->qp_num) == 0);
    ibv_sge list = sge();
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = list.addr;
    wr.wr.rdma.rkey = client_.mr->rkey;
    ibv_send_wr* bad = nullptr;
    for (int n = 0; n < 8; ++n) HOLDS(ibv_post_send(a, &wr, &bad) == 0);
    if (i % 5 == 0) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      HOLDS(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
    }
    HOLDS(ibv_destroy_qp(i % 2 ? a : b) == 0);  // under way or not
    HOLDS(ibv_destroy_qp(i % 2 ? b : a) == 0);
  }
}

void ThreadsTest::unreliable_connections() {
  for (int i = 0; i < kRounds; ++i) {
    ibv_qp* qp = create_qp(IBV_QPT_UC, cq_);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    HOLDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.ah_attr = address(gid_);
    HOLDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) == 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    HOLDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    ibv_sge list = sge();
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    HOLDS(ibv_post_send(qp, &wr, &bad) == 0);
    HOLDS(ibv_destroy_qp(qp) == 0);
  }
}

void ThreadsTest::datagrams() {
  ibv_gid group{};
  group.raw[10] = group.raw[11] = 0xff;
  group.raw[12] = 239;
  group.raw[13] = 77;
  for (int i = 0; i < kRounds; ++i) {
    ibv_qp* qp = create_qp(IBV_QPT_UD, cq_);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = 0x11;
    HOLDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    attr.qp_state = IBV_QPS_RTR;
    HOLDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    HOLDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    group.raw[15] = static_cast<uint8_t>(i % 4);
    HOLDS(ibv_attach_mcast(qp, &group, 0) == 0);
    ibv_ah_attr to = address(i % 2 ? group : gid_);
    ibv_ah* ah = ibv_create_ah(client_.pd, &to);
    HOLDS(ah != nullptr);
    ibv_sge list = sge();
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, i % 2 ? 0xffffff : qp->qp_num, 0x11};
    ibv_send_wr* bad = nullptr;
    HOLDS(ibv_post_send(qp, &wr, &bad) == 0);
    if (i % 3) {
      HOLDS(ibv_detach_mcast(qp, &group, 0) == 0);
    }
    HOLDS(ibv_destroy_ah(ah) == 0);
    HOLDS(ibv_destroy_qp(qp) == 0);
  }
}

// Two handles of one target, destroyed by two threads.
void ThreadsTest::extended_reliable_connections() {
  ibv_xrcd_init_attr xrcd_init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  for (int i = 0; i < kRounds; ++i) {
    ibv_xrcd* xrcd = ibv_open_xrcd(client_.context, &xrcd_init);
    ASSERT_NE(xrcd, nullptr);
    ibv_srq_init_attr_ex srq_init{};
    srq_init.attr = {4, 1, 0};
    srq_init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    srq_init.srq_type = IBV_SRQT_XRC;
    srq_init.pd = client_.pd;
    srq_init.xrcd = xrcd;
    srq_init.cq = cq_;
    ibv_srq* srq = ibv_create_srq_ex(client_.context, &srq_init);
    HOLDS(srq != nullptr);
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = xrcd;
    ibv_qp* target = ibv_create_qp_ex(client_.context, &init);
    ASSERT_NE(target, nullptr) << strerror(errno);
    ibv_qp_open_attr open{};
    open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    open.qp_num = target->qp_num;
    open.xrcd = xrcd;
    open.qp_type = IBV_QPT_XRC_RECV;
    ibv_qp* second = nullptr;
    // It is there or gone, never in between.
    std::thread opener([&] {
      second = ibv_open_qp(client_.context, &open);
      EXPECT_TRUE(second != nullptr || errno == EINVAL) << strerror(errno);
    });
    HOLDS(ibv_destroy_qp(target) == 0);
    opener.join();
    if (second != nullptr) {
      ibv_qp_attr attr{};
      ibv_qp_init_attr queried{};
      HOLDS(ibv_query_qp(second, &attr, IBV_QP_STATE, &queried) == 0);
      HOLDS(ibv_destroy_qp(second) == 0);
    }
    ibv_qp* initiator = create_qp(IBV_QPT_XRC_SEND, cq_);
    HOLDS(initiator != nullptr && ibv_destroy_qp(initiator) == 0);
    HOLDS(ibv_destroy_srq(srq) == 0);
    HOLDS(ibv_close_xrcd(xrcd) == 0);
  }
}

void ThreadsTest::memory() {
  std::vector<unsigned char> buffer(1 << 16);
  const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
  for (int i = 0; i < kRounds; ++i) {
    ibv_mr* mr = ibv_reg_mr(client_.pd, buffer.data(), buffer.size(), rights);
    ibv_mr* null = ibv_alloc_null_mr(client_.pd);
    ibv_mw* mw = ibv_alloc_mw(client_.pd, i % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
    ibv_alloc_dm_attr dm_init{};
    dm_init.length = 4096;
    ibv_dm* dm = ibv_alloc_dm(client_.context, &dm_init);
    ASSERT_TRUE(mr && null && mw && dm) << strerror(errno);
    ibv_mr* second = ibv_import_mr(client_.pd, mr->handle);
    HOLDS(second != nullptr);
    ibv_unimport_mr(second);
    HOLDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
    ibv_pd* pd = ibv_alloc_pd(client_.context);
    HOLDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0) == 0);
    HOLDS(ibv_dereg_mr(mr) == 0);
    HOLDS(ibv_dealloc_pd(pd) == 0);
    HOLDS(ibv_dealloc_mw(mw) == 0);
    HOLDS(ibv_dereg_mr(null) == 0);
    HOLDS(ibv_free_dm(dm) == 0);
  }
}

void ThreadsTest::completion_queues() {
  for (int i = 0; i < kRounds; ++i) {
    ibv_comp_channel* channel = ibv_create_comp_channel(client_.context);
    ibv_cq* cq = ibv_create_cq(client_.context, 4, nullptr, i % 2 ? channel : channel_, 0);
    ASSERT_NE(cq, nullptr);
    ibv_qp* qp = create_qp(IBV_QPT_RC, cq);
    ASSERT_NE(qp, nullptr);
    HOLDS(client_connect(&client_, qp, qp->qp_num) == 0);  // to itself
    HOLDS(ibv_req_notify_cq(cq, 0) == 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.rkey = client_.mr->rkey;
    wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(client_.memory);
    ibv_send_wr* bad = nullptr;
    HOLDS(ibv_post_send(qp, &wr, &bad) == 0);
    HOLDS(ibv_resize_cq(cq, 100) == 0);
    if (i % 2) {
      ibv_cq* from = nullptr;
      void* context = nullptr;
      HOLDS(ibv_get_cq_event(channel, &from, &context) == 0 && from == cq);
      ibv_ack_cq_events(cq, 1);
    }
    ibv_wc wc{};
    HOLDS(client_wait(cq, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    HOLDS(ibv_destroy_qp(qp) == 0);
    HOLDS(ibv_destroy_cq(cq) == 0);  // of the shared channel: while another thread takes its events
    HOLDS(ibv_destroy_comp_channel(channel) == 0);
  }
}

void ThreadsTest::shared_receive_queues() {
  for (int i = 0; i < kRounds; ++i) {
    ibv_sge list = sge();
    ibv_recv_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_srq_recv(srq_, &wr, &bad);
    HOLDS(error == 0 || error == ENOMEM);
    ibv_srq_attr attr{};
    attr.max_wr = 1000;
    HOLDS(ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR) == 0);
    attr.srq_limit = 1;
    HOLDS(ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT) == 0);
    HOLDS(ibv_query_srq(srq_, &attr) == 0);
    ibv_srq_init_attr init{};
    init.attr = {16, 2, 0};
    ibv_srq* own = ibv_create_srq(client_.pd, &init);
    ibv_qp* qp = create_qp(IBV_QPT_RC, cq_, own);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(ibv_destroy_srq(own), EBUSY);
    HOLDS(ibv_destroy_qp(qp) == 0);
    HOLDS(ibv_destroy_srq(own) == 0);
  }
}

// Every other one is closed with everything in it.
void ThreadsTest::contexts() {
  for (int i = 0; i < kRounds; ++i) {
    client own{};
    ASSERT_EQ(client_open(&own), 0);
    ibv_cq* cq = ibv_create_cq(own.context, 16, nullptr, nullptr, 0);
    ibv_qp* qp = client_create_qp(&own, cq);
    ASSERT_NE(qp, nullptr);
    HOLDS(client_connect(&own, qp, qp->qp_num) == 0);
    if (i % 2) {
      ibv_context* context = own.context;
      own.context = nullptr;
      HOLDS(ibv_close_device(context) == 0);
    }
    HOLDS(ibv_destroy_qp(qp) == 0);
    HOLDS(ibv_destroy_cq(cq) == 0);
    client_close(&own);
  }
}

void ThreadsTest::queries() {
  while (!stop_) {
    ibv_port_attr port;
    HOLDS(ibv_query_port(client_.context, 1, &port) == 0);
    ibv_gid_entry table[64];
    HOLDS(ibv_query_gid_table(client_.context, table, 64, 0) > 0);
    ibv_device_attr device;
    HOLDS(ibv_query_device(client_.context, &device) == 0);
    int count = 0;
    ibv_free_device_list(ibv_get_device_list(&count));
    HOLDS(count == 1);
  }
}

void ThreadsTest::poll_queue() {
  ibv_wc wc[8];
  while (!stop_) HOLDS(ibv_poll_cq(cq_, 8, wc) >= 0);
}

void ThreadsTest::wait_for_completions() {
  while (!stop_) {
    HOLDS(ibv_req_notify_cq(cq_, 0) == 0);
    pollfd entry{channel_->fd, POLLIN, 0};
    if (poll(&entry, 1, 10) != 1) continue;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &context) != 0) continue;
    ibv_ack_cq_events(cq, 1);
    ++events_;
  }
}

void ThreadsTest::wait_for_async_events() {
  while (!stop_) {
    pollfd entry{client_.context->async_fd, POLLIN, 0};
    ibv_async_event event;
    if (poll(&entry, 1, 10) == 1 && ibv_get_async_event(client_.context, &event) == 0) ibv_ack_async_event(&event);
  }
}

// As many receives as sends, each completed once and in order.
void ThreadsTest::steady_connection() {
  ibv_cq* cq = ibv_create_cq(client_.context, 64, nullptr, nullptr, 0);
  ibv_qp* a = create_qp(IBV_QPT_RC, cq);
  ibv_qp* b = create_qp(IBV_QPT_RC, cq);
  HOLDS(client_connect(&client_, a, b->qp_num) == 0);
  HOLDS(client_connect(&client_, b, a->qp_num) == 0);
  for (uint64_t i = 0; !stop_; ++i) {
    ibv_sge to = sge();
    to.addr += 8192;
    ibv_recv_wr receive{};
    receive.wr_id = i;
    receive.sg_list = &to;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(b, &receive, &bad_receive), 0);
    uint64_t number = i;
    ibv_sge from{reinterpret_cast<uintptr_t>(&number), sizeof(number), 0};
    ibv_send_wr send{};
    send.wr_id = i;
    send.sg_list = &from;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    ibv_send_wr* bad_send = nullptr;
    ASSERT_EQ(ibv_post_send(a, &send, &bad_send), 0);
    for (int n = 0; n < 2; ++n) {
      ibv_wc wc{};
      ASSERT_EQ(client_wait(cq, &wc), 1);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, i);
    }
    ASSERT_EQ(std::memcmp(client_.memory + 8192, &number, sizeof(number)), 0);
  }
  HOLDS(ibv_destroy_qp(a) == 0);
  HOLDS(ibv_destroy_qp(b) == 0);
  HOLDS(ibv_destroy_cq(cq) == 0);
}

// As rping does to its threads. Verbs of libibverbs that wait for nothing are done before the thread ends.
TEST_F(ThreadsTest, IsCancelledOutsideOfVerbsOnly) {
  bool finished = false;
  std::thread thread([&] {
    pthread_cancel(pthread_self());  // acts at the next cancellation point
    client other{};
    HOLDS(client_open(&other) == 0);
    ibv_comp_channel* channel = ibv_create_comp_channel(other.context);
    ibv_cq* cq = ibv_create_cq(other.context, 64, nullptr, channel, 0);
    ibv_qp* qp = client_create_qp(&other, cq);
    HOLDS(qp != nullptr);
    HOLDS(client_connect(&other, qp, qp->qp_num) == 0);
    ibv_port_attr port{};
    HOLDS(ibv_query_port(other.context, 1, &port) == 0);
    ibv_ah_attr attr = address(gid_);
    ibv_ah* ah = ibv_create_ah(other.pd, &attr);
    HOLDS(ah != nullptr && ibv_destroy_ah(ah) == 0);
    HOLDS(ibv_destroy_qp(qp) == 0);
    HOLDS(ibv_destroy_cq(cq) == 0);
    HOLDS(ibv_destroy_comp_channel(channel) == 0);
    client_close(&other);
    finished = true;
    pthread_testcancel();
    finished = false;
  });
  thread.join();
  EXPECT_TRUE(finished);
}

TEST_F(ThreadsTest, DoEverythingAtOnce) {
  std::vector<std::thread> steady, workers;
  const auto start = [this](std::vector<std::thread>& threads, void (ThreadsTest::*body)()) {
    threads.emplace_back([this, body] { (this->*body)(); });
  };
  using T = ThreadsTest;
  for (auto body :
       {&T::queries, &T::poll_queue, &T::wait_for_completions, &T::wait_for_async_events, &T::steady_connection}) {
    start(steady, body);
  }
  for (auto body : {&T::reliable_connections, &T::reliable_connections, &T::unreliable_connections, &T::datagrams,
                    &T::datagrams, &T::extended_reliable_connections, &T::memory, &T::completion_queues,
                    &T::completion_queues, &T::shared_receive_queues, &T::contexts}) {
    start(workers, body);
  }
  for (int i = 0; i < 5; ++i) {
    run("ip addr add 203.0.113.50/24 dev rdma0");
    run("ip addr del 203.0.113.50/24 dev rdma0");
  }
  for (std::thread& thread : workers) thread.join();
  stop_ = true;
  for (std::thread& thread : steady) thread.join();
}

}  // namespace
