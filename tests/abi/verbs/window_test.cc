// SPDX-License-Identifier: BSD-2-Clause
// Memory windows bound by work requests of QP b, used by its peer, QP a (IBTA 10.6.7).
#include "memory_fixture.h"

namespace {

constexpr unsigned int kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

class WindowTraffic : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    mr_ = ibv_reg_mr(client_.pd, pages_.at(0), pages_.bytes(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    ASSERT_NE(mr_, nullptr);
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
      windows_[type] = ibv_alloc_mw(client_.pd, type);
      ASSERT_NE(windows_[type], nullptr);
    }
  }
  void TearDown() override {
    for (ibv_mw* window : windows_) {
      if (window != nullptr) {
        EXPECT_EQ(ibv_dealloc_mw(window), 0);
      }
    }
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    MemoryTest::TearDown();
  }
  ibv_mw_bind_info info(size_t offset, uint64_t length, unsigned int access = kRemote) {
    return {mr_, address(offset), length, access};
  }
  uint64_t address(size_t offset) { return address_of(pages_.at(0) + offset); }
  ibv_wc_status outcome(ibv_wc_opcode opcode) {
    ibv_wc wc{};
    EXPECT_EQ(client_wait(cq_, &wc), 1);
    if (wc.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.opcode, opcode);
    }
    return wc.status;
  }
  // By QP b: type 1 through ibv_bind_mw, type 2 through a work request under the next key.
  ibv_wc_status bind(ibv_mw_type type, const ibv_mw_bind_info& what) {
    const uint32_t before = windows_[type]->rkey;
    if (type == IBV_MW_TYPE_1) {
      ibv_mw_bind request{9, IBV_SEND_SIGNALED, what};
      EXPECT_EQ(ibv_bind_mw(b_, windows_[type], &request), 0);
    } else {
      ibv_send_wr wr = send_request(9, nullptr, IBV_WR_BIND_MW);
      wr.bind_mw = {windows_[type], ibv_inc_rkey(before), what};
      EXPECT_EQ(post(b_, wr), 0);
      windows_[type]->rkey = ibv_inc_rkey(before);
    }
    EXPECT_EQ(windows_[type]->rkey, ibv_inc_rkey(before));
    return outcome(IBV_WC_BIND_MW);
  }
  ibv_wc_status invalidate_locally(ibv_qp* qp, uint32_t key) {
    ibv_send_wr wr = send_request(10, nullptr, IBV_WR_LOCAL_INV);
    wr.invalidate_rkey = key;
    EXPECT_EQ(post(qp, wr), 0);
    return outcome(IBV_WC_LOCAL_INV);
  }
  // Whether the peer of QP b may write there.
  bool writable(uint32_t key, size_t offset, uint64_t remote) {
    std::memset(pages_.at(0), 0, pages_.bytes());
    const bool arrived = writes_to(pages_.at(0) + offset, 64, remote, key);
    if (!arrived) reconnect();
    return arrived;
  }

  Pages pages_{2};
  ibv_mr* mr_ = nullptr;
  ibv_mw* windows_[3] = {};
};

TEST_F(WindowTraffic, OpensPartOfARegionThatIsClosed) {
  EXPECT_FALSE(writable(mr_->rkey, 0, address(0)));
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ASSERT_EQ(bind(type, info(100, 200)), IBV_WC_SUCCESS);
    const uint32_t key = windows_[type]->rkey;
    EXPECT_TRUE(writable(key, 100, address(100)));
    EXPECT_TRUE(writable(key, 236, address(236)));
    EXPECT_FALSE(writable(key, 237, address(237)));
    EXPECT_FALSE(writable(key, 99, address(99)));
    EXPECT_EQ(read(sge(65536, 200), address(100), key), IBV_WC_SUCCESS);
    EXPECT_EQ(write({address(100), 8, key}, address_of(client_.memory), client_.mr->rkey), IBV_WC_LOC_PROT_ERR)
        << "it is no local key";
    reconnect();
  }
}

TEST_F(WindowTraffic, GrantsOnlyWhatItSays) {
  ASSERT_EQ(bind(IBV_MW_TYPE_2, info(0, 4096, IBV_ACCESS_REMOTE_READ)), IBV_WC_SUCCESS);
  const uint32_t key = windows_[IBV_MW_TYPE_2]->rkey;
  EXPECT_EQ(read(sge(65536, 200), address(0), key), IBV_WC_SUCCESS);
  EXPECT_FALSE(writable(key, 0, address(0)));
}

TEST_F(WindowTraffic, Type1MovesAndCloses) {
  ASSERT_EQ(bind(IBV_MW_TYPE_1, info(0, 100)), IBV_WC_SUCCESS);
  const uint32_t first = windows_[IBV_MW_TYPE_1]->rkey;
  ASSERT_EQ(bind(IBV_MW_TYPE_1, info(4096, 100)), IBV_WC_SUCCESS);
  EXPECT_FALSE(writable(first, 0, address(0)));
  EXPECT_TRUE(writable(windows_[IBV_MW_TYPE_1]->rkey, 4096, address(4096)));
  EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);
  EXPECT_EQ(bind(IBV_MW_TYPE_1, {nullptr, 0, 0, 0}), IBV_WC_SUCCESS);
  EXPECT_FALSE(writable(windows_[IBV_MW_TYPE_1]->rkey, 4096, address(4096)));
}

TEST_F(WindowTraffic, Type2CanCountFromZero) {
  ASSERT_EQ(bind(IBV_MW_TYPE_2, info(300, 200, kRemote | IBV_ACCESS_ZERO_BASED)), IBV_WC_SUCCESS);
  EXPECT_TRUE(writable(windows_[IBV_MW_TYPE_2]->rkey, 310, 10));
  EXPECT_FALSE(writable(windows_[IBV_MW_TYPE_2]->rkey, 310, address(310)));
}

TEST_F(WindowTraffic, WhatMustNotBeBoundCompletesSo) {
  ibv_mr* no_windows = ibv_reg_mr(client_.pd, pages_.at(0), 4096, kAllRights);
  ibv_mr* read_only = ibv_reg_mr(client_.pd, pages_.at(0), 4096, IBV_ACCESS_MW_BIND);
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    for (const ibv_mw_bind_info& bad :
         {ibv_mw_bind_info{no_windows, address(0), 8, kRemote}, ibv_mw_bind_info{read_only, address(0), 8, kRemote},
          ibv_mw_bind_info{mr_, address(0) - 1, 8, kRemote}, ibv_mw_bind_info{mr_, address(0), 8193, kRemote}}) {
      EXPECT_EQ(bind(type, bad), IBV_WC_MW_BIND_ERR);
      reconnect();
    }
  }
  ASSERT_EQ(bind(IBV_MW_TYPE_2, info(0, 8)), IBV_WC_SUCCESS);
  EXPECT_EQ(bind(IBV_MW_TYPE_2, info(0, 8)), IBV_WC_MW_BIND_ERR) << "not free";
  reconnect();
  for (ibv_mr* mr : {no_windows, read_only}) EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// What is refused before it is posted leaves the key as it was.
TEST_F(WindowTraffic, WorkRequestsThatMakeNoSense) {
  ibv_mw* window = windows_[IBV_MW_TYPE_2];
  const uint32_t key = window->rkey;
  const auto outcome_of = [&](ibv_mw* mw, uint32_t new_key, const ibv_mw_bind_info& what) {
    ibv_send_wr wr = send_request(1, nullptr, IBV_WR_BIND_MW);
    wr.bind_mw = {mw, new_key, what};
    return post(b_, wr);
  };
  EXPECT_EQ(outcome_of(nullptr, 0, info(0, 8)), EINVAL);
  EXPECT_EQ(outcome_of(window, key, {nullptr, 0, 0, 0}), EINVAL) << "type 2 is not unbound so";
  EXPECT_EQ(outcome_of(window, key, info(0, 8, IBV_ACCESS_ON_DEMAND)), EINVAL);
  EXPECT_EQ(window->rkey, key);
}

// As mlx5, irdma and rxe do it: programs write any key there, of which the low eight bits count.
TEST_F(WindowTraffic, OfTheNewKeyTheLowEightBitsCount) {
  ibv_mw* window = windows_[IBV_MW_TYPE_2];
  const uint32_t base = window->rkey & ~0xffu;
  ibv_send_wr wr = send_request(9, nullptr, IBV_WR_BIND_MW);
  wr.bind_mw = {window, ~base ^ 0x5a, info(0, 100)};
  const uint32_t low = wr.bind_mw.rkey & 0xff;
  ASSERT_EQ(post(b_, wr), 0);
  EXPECT_EQ(outcome(IBV_WC_BIND_MW), IBV_WC_SUCCESS);
  EXPECT_EQ(window->rkey, base | low);
  EXPECT_TRUE(writable(base | low, 0, address(0)));
}

TEST_F(WindowTraffic, RegionsWithWindowsCannotGo) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ASSERT_EQ(bind(type, info(0, 100)), IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);
    errno = 0;
    EXPECT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_TRUE(writable(windows_[type]->rkey, 0, address(0)));
    EXPECT_EQ(ibv_dealloc_mw(windows_[type]), 0);
    windows_[type] = nullptr;
  }
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  mr_ = nullptr;
}

TEST_F(WindowTraffic, Type2IsInvalidatedOnItsQp) {
  ASSERT_EQ(bind(IBV_MW_TYPE_2, info(0, 100)), IBV_WC_SUCCESS);
  const uint32_t key = windows_[IBV_MW_TYPE_2]->rkey;
  EXPECT_NE(invalidate_locally(a_, key), IBV_WC_SUCCESS) << "bound on the other QP";
  reconnect();
  EXPECT_TRUE(writable(key, 0, address(0)));
  EXPECT_EQ(invalidate_locally(b_, key), IBV_WC_SUCCESS);
  EXPECT_FALSE(writable(key, 0, address(0)));
  EXPECT_NE(invalidate_locally(b_, key), IBV_WC_SUCCESS) << "not bound";
  reconnect();
  ASSERT_EQ(bind(IBV_MW_TYPE_1, info(0, 100)), IBV_WC_SUCCESS);
  EXPECT_NE(invalidate_locally(b_, windows_[IBV_MW_TYPE_1]->rkey), IBV_WC_SUCCESS) << "type 1 never";
  reconnect();
}

TEST_F(WindowTraffic, ThePeerInvalidatesWithASend) {
  ASSERT_EQ(bind(IBV_MW_TYPE_2, info(0, 100)), IBV_WC_SUCCESS);
  const uint32_t key = windows_[IBV_MW_TYPE_2]->rkey;
  EXPECT_TRUE(writable(key, 0, address(0)));
  ASSERT_EQ(post_receive(b_, 3, 65536, 64), 0);
  ibv_sge list = sge(0, 8);
  ibv_send_wr wr = send_request(4, &list, IBV_WR_SEND_WITH_INV);
  wr.invalidate_rkey = key;
  wr.send_flags = 0;
  ASSERT_EQ(post(a_, wr), 0);
  ibv_wc wc{};
  ASSERT_EQ(client_wait(cq_, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_INV);
  EXPECT_EQ(wc.invalidated_rkey, key);
  EXPECT_FALSE(writable(key, 0, address(0)));
  EXPECT_EQ(bind(IBV_MW_TYPE_2, info(0, 100)), IBV_WC_SUCCESS) << "free again";
  EXPECT_EQ(ibv_dealloc_mw(windows_[IBV_MW_TYPE_2]), 0);
  windows_[IBV_MW_TYPE_2] = nullptr;
}

TEST_F(WindowTraffic, TheEndOfTheQpFreesItsType2Windows) {
  ASSERT_EQ(bind(IBV_MW_TYPE_2, info(0, 100)), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(b_), 0);
  b_ = nullptr;
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  mr_ = nullptr;
}

}  // namespace
