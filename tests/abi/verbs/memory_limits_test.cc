// SPDX-License-Identifier: BSD-2-Clause
// As many regions and windows as the device reports, and one more; and threads that make and end them meanwhile.
#include <atomic>
#include <thread>
#include <vector>

#include "memory_fixture.h"

namespace {

class MemoryLimits : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    ASSERT_EQ(ibv_query_device(client_.context, &attr_), 0);
  }
  ibv_device_attr attr_{};
};

TEST_F(MemoryLimits, RegionsUpToTheLimitAndNotOneMore) {
  std::vector<ibv_mr*> regions;
  for (int i = 1; i < attr_.max_mr; ++i) {  // the client has one
    regions.push_back(ibv_reg_mr(client_.pd, client_.memory, 4096, kAllRights));
    ASSERT_NE(regions.back(), nullptr) << i;
  }
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(client_.pd, client_.memory, 4096, kAllRights), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_alloc_null_mr(client_.pd), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(write(sge(0, 4096), address_of(client_.memory), regions[12345]->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(regions.back()), 0);
  regions.back() = ibv_reg_mr(client_.pd, client_.memory, 4096, kAllRights);
  EXPECT_NE(regions.back(), nullptr);
  for (ibv_mr* mr : regions) ASSERT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryLimits, WindowsUpToTheLimitAndNotOneMore) {
  std::vector<ibv_mw*> windows;
  for (int i = 0; i < attr_.max_mw; ++i) {
    windows.push_back(ibv_alloc_mw(client_.pd, i % 2 == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2));
    ASSERT_NE(windows.back(), nullptr) << i;
  }
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(client_.pd, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  for (ibv_mw* window : windows) ASSERT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(MemoryLimits, ThreadsMakeAndEndThemUnderTraffic) {
  std::atomic<int> failures{0}, running{4};
  const auto work = [&](unsigned int thread) {
    for (int i = 0; i < 2000; ++i) {
      ibv_mr* mr = ibv_reg_mr(client_.pd, client_.memory, 4096, kAllRights | IBV_ACCESS_MW_BIND);
      ibv_mw* window = ibv_alloc_mw(client_.pd, thread % 2 == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
      if (mr == nullptr || window == nullptr) {
        ++failures;
        break;
      }
      failures += ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllRights) != 0;
      failures += ibv_dealloc_mw(window) != 0;
      failures += ibv_dereg_mr(mr) != 0;
    }
    --running;
  };
  std::vector<std::thread> threads;
  for (unsigned int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  while (running != 0) {
    if (write(sge(0, 8192), address_of(client_.memory) + 65536, client_.mr->rkey) != IBV_WC_SUCCESS) ++failures;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(std::memcmp(client_.memory + 65536, client_.memory, 8192), 0);
}

}  // namespace
