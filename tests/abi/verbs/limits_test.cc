// SPDX-License-Identifier: BSD-2-Clause
// Limits: as many objects as the device says, one more is ENOMEM, and all can be given back.
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <malloc.h>
#include <unistd.h>
#include <vector>

#include "fixture.h"

namespace {

class LimitsTest : public ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    ASSERT_EQ(ibv_query_device(client_.context, &device_), 0);
  }

  // Creates `limit` objects of which `existing` are there, sees one more refused, and destroys them.
  template <class Create, class Destroy>
  void fill(int limit, int existing, Create&& create, Destroy&& destroy) {
    std::vector<decltype(create())> objects;
    objects.reserve(static_cast<size_t>(limit));
    for (int i = existing; i < limit; ++i) {
      auto* object = create();
      ASSERT_NE(object, nullptr) << i << ": errno " << errno;
      objects.push_back(object);
    }
    errno = 0;
    EXPECT_EQ(create(), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    // One back, one more.
    EXPECT_EQ(destroy(objects.back()), 0);
    objects.back() = create();
    EXPECT_NE(objects.back(), nullptr);
    for (auto* object : objects) ASSERT_EQ(destroy(object), 0);
  }

  ibv_device_attr device_{};
};

size_t resident_bytes() {
  malloc_trim(0);  // what earlier tests freed
  std::ifstream file("/proc/self/statm");
  size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(LimitsTest, ProtectionDomains) {
  EXPECT_EQ(device_.max_pd, 65536);
  fill(
      device_.max_pd, 1, [&] { return ibv_alloc_pd(client_.context); }, ibv_dealloc_pd);
}

TEST_F(LimitsTest, CompletionQueues) {
  EXPECT_EQ(device_.max_cq, 65536);
  fill(
      device_.max_cq, 0, [&] { return ibv_create_cq(client_.context, 1, nullptr, nullptr, 0); }, ibv_destroy_cq);
}

TEST_F(LimitsTest, AddressHandles) {
  EXPECT_EQ(device_.max_ah, 1 << 20);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  ASSERT_EQ(ibv_query_gid(client_.context, 1, 0, &attr.grh.dgid), 0);
  fill(
      device_.max_ah, 0, [&] { return ibv_create_ah(client_.pd, &attr); }, ibv_destroy_ah);
}

TEST_F(LimitsTest, SharedReceiveQueues) {
  EXPECT_EQ(device_.max_srq, 65536);
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = attr.attr.max_sge = 1;
  const auto create = [&] {
    ibv_srq_init_attr copy = attr;
    return ibv_create_srq(client_.pd, &copy);
  };
  fill(device_.max_srq, 0, create, ibv_destroy_srq);
}

TEST_F(LimitsTest, XrcDomains) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = -1;
  attr.oflags = O_CREAT;
  fill(
      65536, 0, [&] { return ibv_open_xrcd(client_.context, &attr); }, ibv_close_xrcd);
}

TEST_F(LimitsTest, QueuePairs) {
  EXPECT_EQ(device_.max_qp, 65536);
  ibv_cq* cq = ibv_create_cq(client_.context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {1, 1, 1, 1, 0};
  const auto create = [&] {
    ibv_qp_init_attr copy = attr;
    return ibv_create_qp(client_.pd, &copy);
  };
  ibv_qp* first = create();  // opens the packet I/O
  ASSERT_NE(first, nullptr);
  const size_t before = resident_bytes();
  size_t after = 0;
  std::vector<bool> seen(1u << 24);
  int count = 1;
  fill(
      device_.max_qp, 1,
      [&] {
        ibv_qp* qp = create();
        if (qp == nullptr) return qp;
        if (++count == device_.max_qp) after = resident_bytes();
        if (count <= device_.max_qp) {
          EXPECT_FALSE(seen[qp->qp_num]) << "number " << qp->qp_num << " twice";
          seen[qp->qp_num] = true;
          EXPECT_GT(qp->qp_num, 1u);
          EXPECT_LT(qp->qp_num, 0xffffffu);
        }
        return qp;
      },
      ibv_destroy_qp);
  std::printf("an idle QP of minimal queues takes %zu bytes\n",
              (after - before) / static_cast<size_t>(device_.max_qp - 1));
  EXPECT_EQ(ibv_destroy_qp(first), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// What an application leaves is given back when it closes the device, although another context keeps the engine.
TEST_F(LimitsTest, ClosingGivesBackWhatWasForgotten) {
  std::vector<client> closed;
  std::vector<ibv_pd*> forgotten;
  for (int round = 0; round < 3; ++round) {
    client other{};
    ASSERT_EQ(client_open(&other), 0);
    for (int i = 0; i < 40000; ++i) {
      forgotten.push_back(ibv_alloc_pd(other.context));
      ASSERT_NE(forgotten.back(), nullptr) << "round " << round << ", " << i;
    }
    ASSERT_EQ(ibv_close_device(other.context), 0);
    closed.push_back(other);
  }
  // Too late, but harmless.
  for (ibv_pd* pd : forgotten) ASSERT_EQ(ibv_dealloc_pd(pd), 0);
  for (client& other : closed) {
    EXPECT_EQ(ibv_dereg_mr(other.mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(other.pd), 0);
    free(other.memory);
  }
}

}  // namespace
