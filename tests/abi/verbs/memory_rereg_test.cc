// SPDX-License-Identifier: BSD-2-Clause
// ibv_rereg_mr in all its flags, its errors, and under traffic.
#include <atomic>
#include <thread>
#include <vector>

#include "memory_fixture.h"

namespace {

constexpr int kTranslation = IBV_REREG_MR_CHANGE_TRANSLATION, kPd = IBV_REREG_MR_CHANGE_PD,
              kAccess = IBV_REREG_MR_CHANGE_ACCESS;

class Reregistration : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    mr_ = ibv_reg_mr(client_.pd, pages_.at(0), Pages::size(), kAllRights);
    ASSERT_NE(mr_, nullptr);
    other_ = ibv_alloc_pd(client_.context);
    ASSERT_NE(other_, nullptr);
  }
  void TearDown() override {
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    EXPECT_EQ(ibv_dealloc_pd(other_), 0);
    MemoryTest::TearDown();
  }
  // Whether the peer may write to the page.
  bool writable(size_t page) {
    std::memset(pages_.at(page), 0, Pages::size());
    const bool arrived = writes_to(pages_.at(page), 4096, address_of(pages_.at(page)), mr_->rkey);
    if (!arrived) reconnect();
    return arrived;
  }
  // The code and errno.
  std::pair<int, int> rereg(int flags, ibv_pd* pd = nullptr, void* address = nullptr, size_t length = 0,
                            int access = 0) {
    errno = 0;
    const int code = ibv_rereg_mr(mr_, flags, pd, address, length, access);
    return {code, errno};
  }

  Pages pages_{4};
  ibv_mr* mr_ = nullptr;
  ibv_pd* other_ = nullptr;
};

using Outcome = std::pair<int, int>;
const Outcome kDone{0, 0};

TEST_F(Reregistration, Translation) {
  const uint32_t key = mr_->rkey;
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(2), 2 * Pages::size()), kDone);
  EXPECT_EQ(mr_->addr, pages_.at(2));
  EXPECT_EQ(mr_->length, 2 * Pages::size());
  EXPECT_EQ(mr_->rkey, key);
  EXPECT_EQ(mr_->lkey, key);
  EXPECT_TRUE(writable(2));
  EXPECT_TRUE(writable(3));
  EXPECT_FALSE(writable(0));
}

TEST_F(Reregistration, ProtectionDomain) {
  EXPECT_EQ(rereg(kPd, other_), kDone);
  EXPECT_EQ(mr_->pd, other_);
  EXPECT_FALSE(writable(0)) << "the QPs are of the old one";
  EXPECT_EQ(ibv_dealloc_pd(other_), EBUSY);
  EXPECT_EQ(rereg(kPd, client_.pd), kDone);
  EXPECT_TRUE(writable(0));
  EXPECT_EQ(rereg(kPd, client_.pd), kDone) << "the one it has";
  ibv_pd* unused = ibv_alloc_pd(client_.context);
  EXPECT_EQ(rereg(kPd, unused), kDone);
  EXPECT_EQ(rereg(kPd, client_.pd), kDone);
  EXPECT_EQ(ibv_dealloc_pd(unused), 0);
}

TEST_F(Reregistration, Access) {
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_READ), kDone);
  EXPECT_FALSE(writable(0));
  EXPECT_EQ(read(sge(65536, 64), address_of(pages_.at(0)), mr_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, kAllRights), kDone);
  EXPECT_TRUE(writable(0));
  EXPECT_EQ(rereg(kAccess), kDone) << "none at all";
  EXPECT_FALSE(writable(0));
}

TEST_F(Reregistration, ZeroBasedComesAndGoes) {
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, kAllRights | IBV_ACCESS_ZERO_BASED), kDone);
  EXPECT_TRUE(writes_to(pages_.at(0) + 8, 100, 8, mr_->rkey));
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(1), 4096), kDone) << "and stays";
  EXPECT_TRUE(writes_to(pages_.at(1) + 8, 100, 8, mr_->rkey));
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, kAllRights), kDone);
  EXPECT_TRUE(writable(1));
}

TEST_F(Reregistration, AllAtOnce) {
  EXPECT_EQ(rereg(kTranslation | kPd | kAccess, other_, pages_.at(3), 4096, IBV_ACCESS_LOCAL_WRITE), kDone);
  EXPECT_EQ(mr_->addr, pages_.at(3));
  EXPECT_EQ(mr_->pd, other_);
  EXPECT_EQ(rereg(kPd | kAccess, client_.pd, nullptr, 0, kAllRights), kDone);
  EXPECT_TRUE(writable(3));
}

TEST_F(Reregistration, OnDemandChangesWithItsRange) {
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, kAllRights | IBV_ACCESS_ON_DEMAND),
            Outcome(IBV_REREG_MR_ERR_CMD, EOPNOTSUPP));
  pages_.unmap(1);
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(0), pages_.bytes()), Outcome(IBV_REREG_MR_ERR_CMD, EFAULT));
  EXPECT_TRUE(writable(0)) << "as it was";
  EXPECT_EQ(rereg(kTranslation | kAccess, nullptr, pages_.at(0), pages_.bytes(), kAllRights | IBV_ACCESS_ON_DEMAND),
            kDone);
  EXPECT_TRUE(writable(2));
}

TEST_F(Reregistration, MalformedRequestsAreInputErrors) {
  const Outcome input(IBV_REREG_MR_ERR_INPUT, EINVAL);
  EXPECT_EQ(rereg(8), input);
  EXPECT_EQ(rereg(-1), input);
  EXPECT_EQ(rereg(kTranslation, nullptr, nullptr, 4096), input);
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(1), 0), input);
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(1), 4096, kAllRights), input) << "access without its flag";
  EXPECT_TRUE(writable(0));
}

TEST_F(Reregistration, WhatTheDeviceRefusesLeavesTheRegion) {
  const auto refused = [](int error) { return Outcome(IBV_REREG_MR_ERR_CMD, error); };
  EXPECT_EQ(rereg(0), refused(EINVAL));
  EXPECT_EQ(rereg(kPd, nullptr), refused(EINVAL));
  client second{};
  ASSERT_EQ(client_open(&second), 0);
  EXPECT_EQ(rereg(kPd, second.pd), refused(EINVAL)) << "of another context";
  client_close(&second);
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE), refused(EINVAL));
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, 1 << 9), refused(EOPNOTSUPP));
  EXPECT_EQ(rereg(kAccess, nullptr, nullptr, 0, 1 << 12), refused(EINVAL));
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(1), SIZE_MAX), refused(EINVAL));
  pages_.unmap(3);
  EXPECT_EQ(rereg(kTranslation, nullptr, pages_.at(3), 8), refused(EFAULT));
  EXPECT_EQ(mr_->addr, pages_.at(0));
  EXPECT_EQ(mr_->pd, client_.pd);
  EXPECT_TRUE(writable(0));
}

// The region moves to and fro between two pages. A WRITE of one packet lands in one of them, as a whole.
TEST_F(Reregistration, UnderTrafficIsOneStep) {
  constexpr uint32_t kLength = 1024;  // the path MTU
  ASSERT_EQ(rereg(kAccess, nullptr, nullptr, 0, kAllRights | IBV_ACCESS_ZERO_BASED), kDone);
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0}, moves{0};
  std::thread mover([&] {
    for (size_t page = 0; !stop; page ^= 1, ++moves) {
      if (ibv_rereg_mr(mr_, kTranslation, nullptr, pages_.at(page), Pages::size(), 0) != 0) ++failures;
    }
  });
  int landed[2] = {0, 0};
  for (int i = 1; i <= 2000 || ((landed[0] == 0 || landed[1] == 0) && i < 1'000'000); ++i) {
    const auto value = static_cast<unsigned char>(i % 251 + 1);
    std::memset(client_.memory, value, kLength);
    std::memset(pages_.at(0), 0, kLength);
    std::memset(pages_.at(1), 0, kLength);
    if (write(sge(0, kLength), 0, mr_->rkey) != IBV_WC_SUCCESS) {
      ADD_FAILURE() << "write " << i;
      break;
    }
    const auto count = [&](size_t page) { return std::count(pages_.at(page), pages_.at(page) + kLength, value); };
    const auto first = count(0), second = count(1);
    if (first + second != kLength || (first != 0 && second != 0)) {
      ADD_FAILURE() << first << " bytes in one page, " << second << " in the other";
      break;
    }
    ++landed[first != 0 ? 0 : 1];
  }
  stop = true;
  mover.join();
  EXPECT_EQ(failures, 0);
  EXPECT_GT(landed[0], 0);
  EXPECT_GT(landed[1], 0);
}

}  // namespace
