// SPDX-License-Identifier: BSD-2-Clause
// fork(): whatever a child does with what it inherited, the parent goes on; and a child may use the device itself, with
// a context of its own. Children report by their exit status: 0, or the line of the check that failed.
#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "fixture.h"
#include "wire_fixture.h"

extern char** environ;

namespace {

// In a child: GoogleTest's own assertions are the parent's.
#define CHILD_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                       \
    }                                                                 \
  } while (false)

pid_t start_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(30);  // a child that hangs is a failure, not a test that hangs
  body();
  _exit(0);
}

int outcome(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_child(const std::function<void()>& body) {
  return outcome(start_child(body));
}

// --- what the child inherited ----------------------------------------------------------------------------------------

class ForkTest : public ConnectedTest {
 protected:
  // A message from a_ to b_, polled for.
  void expect_traffic() {
    ASSERT_EQ(post_receive(b_, 1, 0, 64), 0);
    ibv_sge list = sge(4096, 8);
    ibv_send_wr wr = send_request(2, &list);
    ASSERT_EQ(post(a_, wr), 0);
    ibv_wc wc;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(client_wait(cq_, &wc), 1);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
  }
  // The parent is as it was: also what comes by the completion channel.
  void expect_intact() {
    expect_traffic();
    ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
    expect_traffic();
    pollfd entry{channel_->fd, POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 5000), 1);
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
  }
};

TEST_F(ForkTest, ChildThatExits) {
  EXPECT_EQ(run_child([] {}), 0);
  expect_intact();
  EXPECT_EQ(run_child([] { exit(0); }), 0);  // with destructors and exit handlers
  expect_intact();
}

TEST_F(ForkTest, ChildThatExecs) {
  EXPECT_EQ(run_child([] {
              execl("/bin/true", "true", nullptr);
              _exit(127);
            }),
            0);
  expect_intact();
  EXPECT_EQ(system("true"), 0);
  std::array<const char*, 2> arguments{"true", nullptr};
  pid_t spawned = 0;
  ASSERT_EQ(posix_spawn(&spawned, "/bin/true", nullptr, nullptr, const_cast<char**>(arguments.data()), environ), 0);
  EXPECT_EQ(outcome(spawned), 0);
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "true", nullptr);
    _exit(127);
  }
  EXPECT_EQ(outcome(child), 0);
  expect_intact();
}

TEST_F(ForkTest, NothingWorksOnInheritedObjects) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  ASSERT_EQ(post_receive(b_, 1, 0, 64), 0);
  ibv_sge list = sge(4096, 8);
  ibv_send_wr send = send_request(2, &list);
  ASSERT_EQ(post(a_, send), 0);
  pollfd entry{channel_->fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 5000), 1);
  EXPECT_EQ(run_child([&] {
              ibv_wc wc;
              CHILD_CHECK(ibv_poll_cq(cq_, 1, &wc) == 0);
              CHILD_CHECK(ibv_req_notify_cq(cq_, 0) == EIO);
              ibv_send_wr* bad_send = nullptr;
              CHILD_CHECK(ibv_post_send(a_, &send, &bad_send) == EIO && bad_send == &send);
              ibv_recv_wr receive{};
              ibv_recv_wr* bad_receive = nullptr;
              CHILD_CHECK(ibv_post_recv(a_, &receive, &bad_receive) == EIO && bad_receive == &receive);
              ibv_cq* cq = nullptr;
              void* context = nullptr;
              CHILD_CHECK(ibv_get_cq_event(channel_, &cq, &context) == -1 && errno == EIO);
              ibv_async_event event;
              CHILD_CHECK(ibv_get_async_event(client_.context, &event) == -1 && errno == EIO);
              ibv_qp_attr attr{};
              ibv_qp_init_attr init{};
              attr.qp_state = IBV_QPS_ERR;
              CHILD_CHECK(ibv_modify_qp(a_, &attr, IBV_QP_STATE) == EIO);
              CHILD_CHECK(ibv_query_qp(a_, &attr, IBV_QP_STATE, &init) == EIO);
              CHILD_CHECK(ibv_resize_cq(cq_, 100) == EIO);
              CHILD_CHECK(client_create_qp(&client_, cq_) == nullptr && errno == EIO);
              CHILD_CHECK(ibv_alloc_pd(client_.context) == nullptr && errno == EIO);
              CHILD_CHECK(ibv_create_cq(client_.context, 1, nullptr, nullptr, 0) == nullptr && errno == EIO);
              CHILD_CHECK(ibv_create_comp_channel(client_.context) == nullptr && errno == EIO);
              CHILD_CHECK(ibv_reg_mr(client_.pd, client_.memory, 4096, 0) == nullptr && errno == EIO);
              CHILD_CHECK(ibv_alloc_mw(client_.pd, IBV_MW_TYPE_2) == nullptr && errno == EIO);
              CHILD_CHECK(ibv_rereg_mr(client_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1) != 0);
              ibv_srq_init_attr srq{};
              srq.attr.max_wr = 1;
              CHILD_CHECK(ibv_create_srq(client_.pd, &srq) == nullptr && errno == EIO);
              ibv_ah_attr address{};
              address.is_global = 1;
              address.port_num = 1;
              CHILD_CHECK(ibv_create_ah(client_.pd, &address) == nullptr && errno == EIO);
              ibv_port_attr port;
              CHILD_CHECK(ibv_query_port(client_.context, 1, &port) == EIO);
              ibv_gid gid;
              CHILD_CHECK(ibv_query_gid(client_.context, 1, 0, &gid) == -1 && errno == EIO);
              ibv_device_attr device;
              CHILD_CHECK(ibv_query_device(client_.context, &device) == 0);
              CHILD_CHECK(ibv_attach_mcast(a_, &gid, 0) == EIO);
              CHILD_CHECK(ibv_import_device(client_.context->cmd_fd) == nullptr && errno == EINVAL);
            }),
            0);
  // The event that the child asked for is still there.
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(poll(&entry, 1, 0), 1);
  ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
  ibv_wc wc;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(client_wait(cq_, &wc), 1);
  expect_intact();
}

// One of each kind, destroyed in an order that the parent could not use, while the parent has not acknowledged an
// event.
TEST_F(ForkTest, InheritedObjectsCanBeDestroyedInAnyOrder) {
  ibv_context* context = client_.context;
  ibv_srq_init_attr srq_init{};
  srq_init.attr.max_wr = 4;
  srq_init.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(client_.pd, &srq_init);
  ibv_ah_attr address{};
  address.is_global = 1;
  address.port_num = 1;
  ASSERT_EQ(ibv_query_gid(context, 1, 0, &address.grh.dgid), 0);
  ibv_ah* ah = ibv_create_ah(client_.pd, &address);
  ibv_mw* mw = ibv_alloc_mw(client_.pd, IBV_MW_TYPE_2);
  ibv_alloc_dm_attr dm_init{};
  dm_init.length = 4096;
  ibv_dm* dm = ibv_alloc_dm(context, &dm_init);
  ibv_mr* dm_mr = ibv_reg_dm_mr(client_.pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
  ibv_xrcd_init_attr xrcd_init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* xrcd = ibv_open_xrcd(context, &xrcd_init);
  ASSERT_TRUE(srq && ah && mw && dm && dm_mr && xrcd);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  expect_traffic();
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
  EXPECT_EQ(run_child([&] {
              ibv_ack_cq_events(cq, 1);
              CHILD_CHECK(ibv_close_device(context) == 0);
              CHILD_CHECK(ibv_dealloc_pd(client_.pd) == 0);
              CHILD_CHECK(ibv_destroy_cq(cq_) == 0);
              CHILD_CHECK(ibv_destroy_comp_channel(channel_) == 0);
              CHILD_CHECK(ibv_destroy_qp(a_) == 0);
              CHILD_CHECK(ibv_destroy_qp(b_) == 0);
              CHILD_CHECK(ibv_free_dm(dm) == 0);
              CHILD_CHECK(ibv_dereg_mr(dm_mr) == 0);
              CHILD_CHECK(ibv_dereg_mr(client_.mr) == 0);
              CHILD_CHECK(ibv_dealloc_mw(mw) == 0);
              CHILD_CHECK(ibv_destroy_ah(ah) == 0);
              CHILD_CHECK(ibv_close_xrcd(xrcd) == 0);
              CHILD_CHECK(ibv_destroy_srq(srq) == 0);
              exit(0);
            }),
            0);
  ibv_ack_cq_events(cq, 1);
  expect_intact();
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dereg_mr(dm_mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// --- the child's own use of the device -------------------------------------------------------------------------------

TEST_F(ForkTest, ChildOpensTheDeviceAnew) {
  ibv_device* const device = client_.context->device;
  EXPECT_EQ(run_child([&] {
              client own{};
              CHILD_CHECK(client_open(&own) == 0);
              ibv_context* again = ibv_open_device(device);  // the pointer it inherited
              CHILD_CHECK(again != nullptr);
              ibv_port_attr port;
              CHILD_CHECK(ibv_query_port(own.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
              ibv_cq* cq = ibv_create_cq(own.context, 16, nullptr, nullptr, 0);
              CHILD_CHECK(cq != nullptr);
              // The parent has the netdev.
              CHILD_CHECK(client_create_qp(&own, cq) == nullptr && (errno == EADDRINUSE || errno == EBUSY));
              CHILD_CHECK(ibv_destroy_cq(cq) == 0);
              CHILD_CHECK(ibv_close_device(again) == 0);
              client_close(&own);
              exit(0);
            }),
            0);
  expect_intact();
}

TEST_F(ForkTest, GrandchildrenAreOnTheirOwnAsWell) {
  EXPECT_EQ(run_child([] {
              client own{};
              CHILD_CHECK(client_open(&own) == 0);
              const int grandchild = run_child([&own] {
                CHILD_CHECK(ibv_alloc_pd(own.context) == nullptr && errno == EIO);
                client third{};
                CHILD_CHECK(client_open(&third) == 0);
                client_close(&third);
                client_close(&own);
              });
              CHILD_CHECK(grandchild == 0);
              CHILD_CHECK(ibv_dealloc_pd(ibv_alloc_pd(own.context)) == 0);
              client_close(&own);
            }),
            0);
  expect_intact();
}

// --- over the wire ---------------------------------------------------------------------------------------------------

class ForkOverWire : public testing::TestWithParam<const char*> {
 protected:
  static bool alone_with_io() { return alone(std::string(kAllNetdevs) + " UROCE_IO=" + GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Io, ForkOverWire, testing::Values("udp", "af_xdp"),
                         [](const auto& io) { return std::string(io.param); });

// Uses inherited and own objects, as long as the parent's traffic takes.
void busy_child(Side& side, const std::string& free_netdev) {
  ibv_wc wc;
  CHILD_CHECK(ibv_poll_cq(side.cq, 1, &wc) == 0);
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  CHILD_CHECK(ibv_post_send(side.qp, &wr, &bad) == EIO);
  CHILD_CHECK(ibv_destroy_qp(side.qp) == 0);
  CHILD_CHECK(ibv_destroy_cq(side.cq) == 0);
  CHILD_CHECK(ibv_destroy_comp_channel(side.channel) == 0);
  CHILD_CHECK(ibv_close_device(side.context) == 0);
  ibv_context* context = open_device(free_netdev);
  CHILD_CHECK(context != nullptr);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  CHILD_CHECK(pd != nullptr && cq != nullptr);
  ibv_qp_init_attr attr = client_qp_attributes(cq);
  ibv_qp* qp = ibv_create_qp(pd, &attr);
  CHILD_CHECK(qp != nullptr);
  CHILD_CHECK(ibv_destroy_qp(qp) == 0);
  CHILD_CHECK(ibv_destroy_cq(cq) == 0);
  CHILD_CHECK(ibv_dealloc_pd(pd) == 0);
  CHILD_CHECK(ibv_close_device(context) == 0);
  exit(0);
}

// What two processes tell each other before they connect.
struct Place {
  uint32_t qpn, rkey;
  uint64_t address;
};

// WRITEs of one byte at the peer, `value` after the other; the peer's are awaited in memory.
class PingPong {
 public:
  PingPong(Side& side, int told, int tell) : side_(side) {
    const Place own{side.qp->qp_num, side.mr->rkey, reinterpret_cast<uintptr_t>(side.memory.data())};
    CHILD_CHECK(::write(tell, &own, sizeof(own)) == sizeof(own));
    CHILD_CHECK(::read(told, &peer_, sizeof(peer_)) == sizeof(peer_));
  }
  uint32_t peer_qpn() const { return peer_.qpn; }
  // Polls, as a program does that expects the completion of its own WRITE meanwhile.
  void await(unsigned char value) {
    ibv_wc wc;
    while (static_cast<volatile unsigned char&>(side_.memory[0]) != value)
      CHILD_CHECK(ibv_poll_cq(side_.cq, 1, &wc) == 0);
  }
  // The status of its completion; -1: none came.
  int write(unsigned char value) {
    side_.memory[1] = value;
    ibv_sge list{reinterpret_cast<uintptr_t>(&side_.memory[1]), 1, side_.mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = peer_.address, .rkey = peer_.rkey};
    ibv_send_wr* bad = nullptr;
    CHILD_CHECK(ibv_post_send(side_.qp, &wr, &bad) == 0);
    ibv_wc wc{};
    return client_wait(side_.cq, &wc) == 1 ? static_cast<int>(wc.status) : -1;
  }

 private:
  Side& side_;
  Place peer_{};
};

// The last WRITE tells a program to exit, which it does without destroying its QP. The ACK has waited for an answer, as
// the WRITEs before it had one.
TEST_P(ForkOverWire, AProgramThatExitsHasAcknowledgedWhatTellsItTo) {
  if (!alone_with_io()) return;
  set_up_wire();
  constexpr unsigned char kLast = 50;
  std::array<int, 2> there, back;
  ASSERT_EQ(pipe(there.data()) | pipe(back.data()), 0);
  const pid_t child = start_child([&] {
    auto* const side = new Side("other0");
    PingPong game(*side, there[0], back[1]);
    CHILD_CHECK(side->connect(game.peer_qpn(), "192.0.2.2", "192.0.2.1") == 0);
    CHILD_CHECK(::write(back[1], "", 1) == 1);
    for (unsigned char i = 1; i < kLast; ++i) {
      game.await(i);
      CHILD_CHECK(game.write(i) == IBV_WC_SUCCESS);
    }
    game.await(kLast);
    exit(0);
  });
  Side side("rdma0");
  PingPong game(side, back[0], there[1]);
  ASSERT_EQ(side.connect(game.peer_qpn(), "192.0.2.1", "192.0.2.2"), 0);
  char ready;
  ASSERT_EQ(::read(back[0], &ready, 1), 1);
  for (unsigned char i = 1; i < kLast; ++i) {
    ASSERT_EQ(game.write(i), IBV_WC_SUCCESS) << int{i};
    game.await(i);
  }
  EXPECT_EQ(game.write(kLast), IBV_WC_SUCCESS);
  EXPECT_EQ(outcome(child), 0);
  for (const int end : {there[0], there[1], back[0], back[1]}) close(end);
}

// Children are forked while threads send, and make and destroy objects: they may find any lock taken.
TEST_P(ForkOverWire, UnderTraffic) {
  if (!alone_with_io()) return;
  set_up_wire();
  run("ip link add free0 type veth peer name free1 && ip addr add 198.18.0.1/24 dev free0 && ip link set free0 up && "
      "ip link set free1 up");
  Side near("rdma0"), far("other0");
  ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread traffic([&] {
    for (int i = 0; !stop; ++i) {
      ASSERT_EQ(near.write(far, static_cast<unsigned char>(i), 100000), IBV_WC_SUCCESS);
      ++rounds;
    }
  });
  std::thread churn([&] {
    while (!stop) {
      ibv_context* context = open_device("rdma0");
      ASSERT_NE(context, nullptr);
      ibv_pd* pd = ibv_alloc_pd(context);
      ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
      ibv_qp_init_attr attr = client_qp_attributes(cq);
      ibv_qp* qp = ibv_create_qp(pd, &attr);
      ASSERT_NE(qp, nullptr);
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
      EXPECT_EQ(ibv_destroy_cq(cq), 0);
      EXPECT_EQ(ibv_dealloc_pd(pd), 0);
      EXPECT_EQ(ibv_close_device(context), 0);
    }
  });
  for (int i = 0; i < 30; ++i) {
    const int before = rounds;
    EXPECT_EQ(run_child([&] { busy_child(i % 2 ? near : far, "free0"); }), 0) << i;
    if (i % 10 == 0) {
      EXPECT_EQ(system("true"), 0);
    }
    while (rounds == before && !testing::Test::HasFailure()) std::this_thread::yield();
  }
  stop = true;
  traffic.join();
  churn.join();
}

// The parent takes all RoCE packets of the netdev with AF_XDP: a child that fell back to UDP sockets would wait for
// ever.
TEST(ForkOverWire, ChildDoesNotShareTheNetdevByUdp) {
  if (!alone(std::string(kAllNetdevs) + " UROCE_IO=af_xdp")) return;
  Side parent("rdma0");
  for (const char* io : {"auto", "udp", "af_xdp"}) {
    EXPECT_EQ(run_child([io] {
                setenv("UROCE_IO", io, 1);
                ibv_context* context = open_device("rdma0");
                CHILD_CHECK(context != nullptr);
                ibv_pd* pd = ibv_alloc_pd(context);
                ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
                ibv_qp_init_attr attr = client_qp_attributes(cq);
                CHILD_CHECK(ibv_create_qp(pd, &attr) == nullptr && errno == EBUSY);
              }),
              0)
        << io;
  }
}

// The parent goes while the child lives: the netdev is free for the next one.
TEST_P(ForkOverWire, ChildKeepsNothingAttached) {
  if (!alone_with_io()) return;
  set_up_wire();
  int alive[2];
  ASSERT_EQ(pipe(alive), 0);
  pid_t survivor = 0;
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  ASSERT_EQ(run_child([&] {
              Side* near = new Side("rdma0");
              CHILD_CHECK(near->qp != nullptr);
              if (fork() != 0) return;
              // It has lived: what it is born with is closed on its way out of fork().
              const pid_t self = getpid();
              CHILD_CHECK(write(report[1], &self, sizeof(self)) == sizeof(self));
              char byte;
              close(alive[1]);
              CHILD_CHECK(read(alive[0], &byte, 1) == 0);  // until the test is over
              _exit(0);
            }),
            0);
  ASSERT_EQ(read(report[0], &survivor, sizeof(survivor)), static_cast<ssize_t>(sizeof(survivor)));
  ASSERT_EQ(kill(survivor, 0), 0) << "it lives";
  {
    Side near("rdma0"), far("other0");
    ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
    ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
    EXPECT_EQ(near.write(far, 1), IBV_WC_SUCCESS);
  }
  close(alive[1]);
}

}  // namespace
