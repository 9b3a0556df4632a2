// SPDX-License-Identifier: BSD-2-Clause
// Device memory, memory windows as far as they need no QP, and what the device says about memory.
#include <vector>

#include "memory_fixture.h"

namespace {

class DeviceMemory : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    ibv_device_attr_ex attr;
    ASSERT_EQ(ibv_query_device_ex(client_.context, nullptr, &attr), 0);
    max_ = attr.max_dm_size;
  }
  ibv_dm* alloc(size_t length, uint32_t log_alignment = 0, uint32_t comp_mask = 0) {
    ibv_alloc_dm_attr attr{length, log_alignment, comp_mask};
    errno = 0;
    return ibv_alloc_dm(client_.context, &attr);
  }
  static constexpr unsigned int kZeroBased = unsigned{kAllRights} | IBV_ACCESS_ZERO_BASED;

  uint64_t max_ = 0;
};

TEST_F(DeviceMemory, IsReachedByCopyAndByTraffic) {
  ibv_dm* dm = alloc(10000);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(dm->context, client_.context);
  EXPECT_TRUE(dm->comp_mask & IBV_DM_MASK_HANDLE);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 100, client_.memory, 5000), 0);
  std::vector<unsigned char> back(5000);
  EXPECT_EQ(ibv_memcpy_from_dm(back.data(), dm, 100, 5000), 0);
  EXPECT_EQ(std::memcmp(back.data(), client_.memory, 5000), 0);

  ibv_mr* mr = ibv_reg_dm_mr(client_.pd, dm, 1000, 9000, kZeroBased);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->length, 9000u);
  EXPECT_EQ(write(sge(0, 4096), 4904, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_memcpy_from_dm(back.data(), dm, 5904, 4096), 0);
  EXPECT_EQ(std::memcmp(back.data(), client_.memory, 4096), 0);
  EXPECT_EQ(send({0, 3000, mr->lkey}, sge(65536, 3000)), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(client_.memory + 65536, client_.memory + 900, 3000), 0);
  EXPECT_EQ(write(sge(0, 4097), 4904, mr->rkey), IBV_WC_REM_ACCESS_ERR);

  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, AtomicsWorkAtTheAlignmentAskedFor) {
  for (const uint32_t log_alignment : {3u, 12u, 16u, 21u}) {
    ibv_dm* dm = alloc(4096, log_alignment);
    ASSERT_NE(dm, nullptr) << log_alignment;
    ibv_mr* mr = ibv_reg_dm_mr(client_.pd, dm, 0, 4096, kZeroBased);
    ASSERT_NE(mr, nullptr);
    ibv_sge list = sge(65536, 8);
    ibv_send_wr wr = send_request(1, &list, IBV_WR_ATOMIC_FETCH_AND_ADD);
    wr.wr.atomic = {64, 41, 0, mr->rkey};
    ASSERT_EQ(post(a_, wr), 0);
    EXPECT_EQ(finish(), IBV_WC_SUCCESS);
    uint64_t value = 0;
    EXPECT_EQ(ibv_memcpy_from_dm(&value, dm, 64, 8), 0);
    EXPECT_EQ(value, 41u);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
  }
}

TEST_F(DeviceMemory, BoundsOfCopiesAndRegions) {
  ibv_dm* dm = alloc(5000);
  ASSERT_NE(dm, nullptr);
  uint32_t word = 1;
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4996, &word, 4), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 5000, &word, 0), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 5000, &word, 4), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, 5000, 4), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, UINT64_MAX - 3, 8), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, 4, SIZE_MAX - 3), EFAULT);
  for (const auto& [offset, length] : {std::pair{1u, 4u}, {2u, 4u}, {0u, 1u}, {4u, 3u}}) {
    EXPECT_EQ(ibv_memcpy_to_dm(dm, offset, &word, length), EINVAL) << "copies are of words";
    EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, offset, length), EINVAL);
  }
  const auto error = [&](uint64_t offset, size_t length, unsigned int access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dm_mr(client_.pd, dm, offset, length, access), nullptr);
    return errno;
  };
  EXPECT_EQ(error(0, 5001, kZeroBased), EINVAL);
  EXPECT_EQ(error(5000, 1, kZeroBased), EINVAL);
  EXPECT_EQ(error(UINT64_MAX, 2, kZeroBased), EINVAL);
  for (const uint64_t offset : {0, 5000}) {
    ibv_mr* nothing = ibv_reg_dm_mr(client_.pd, dm, offset, 0, kZeroBased);
    ASSERT_NE(nothing, nullptr);
    EXPECT_EQ(write(sge(0, 4), 0, nothing->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    EXPECT_EQ(ibv_dereg_mr(nothing), 0);
  }
  EXPECT_EQ(error(0, 5000, kAllRights), EINVAL) << "device memory has no addresses";
  EXPECT_EQ(error(0, 5000, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
  for (const unsigned int access : {IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB}) {
    EXPECT_EQ(error(0, 5000, kZeroBased | access), EINVAL);
  }
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, ThereIsAsMuchAsReportedAndNotMore) {
  ASSERT_GT(max_, 0u);
  EXPECT_EQ(alloc(0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(alloc(max_ + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(alloc(64, 27), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(alloc(64, 200), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(alloc(64, 0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_dm* all = alloc(max_);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(alloc(1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(all), 0);
  ibv_dm* half = alloc(max_ / 2);
  ibv_dm* other_half = alloc(max_ / 2);
  EXPECT_NE(half, nullptr);
  EXPECT_NE(other_half, nullptr);
  EXPECT_EQ(alloc(1), nullptr);
  EXPECT_EQ(ibv_free_dm(half), 0);
  EXPECT_EQ(ibv_free_dm(other_half), 0);
}

TEST_F(DeviceMemory, ImportedHandlesReachTheSameMemory) {
  ibv_dm* dm = alloc(100);
  ASSERT_NE(dm, nullptr);
  ibv_dm* imported = ibv_import_dm(client_.context, dm->handle);
  ASSERT_NE(imported, nullptr);
  uint32_t value = 7;
  EXPECT_EQ(ibv_memcpy_to_dm(imported, 0, &value, 4), 0);
  value = 0;
  EXPECT_EQ(ibv_memcpy_from_dm(&value, dm, 0, 4), 0);
  EXPECT_EQ(value, 7u);
  ibv_mr* mr = ibv_reg_dm_mr(client_.pd, imported, 0, 100, kZeroBased);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_unimport_dm(imported);
  imported = ibv_import_dm(client_.context, dm->handle);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(&value, imported, 0, 4), 0) << "mapped as long as there is a handle";
  EXPECT_EQ(ibv_free_dm(imported), ENOENT);
  errno = 0;
  EXPECT_EQ(ibv_import_dm(client_.context, imported->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  ibv_unimport_dm(imported);
}

// --- windows ---------------------------------------------------------------------------------------------------------

class Windows : public MemoryTest {};

TEST_F(Windows, HaveKeysOfTheirOwnAndHoldTheirProtectionDomain) {
  ibv_pd* pd = ibv_alloc_pd(client_.context);
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* first = ibv_alloc_mw(pd, type);
    ibv_mw* second = ibv_alloc_mw(pd, type);
    ASSERT_TRUE(first != nullptr && second != nullptr);
    EXPECT_NE(first->rkey >> 8, second->rkey >> 8);
    EXPECT_NE(first->handle, second->handle);
    EXPECT_EQ(first->type, type);
    EXPECT_EQ(first->pd, pd);
    EXPECT_EQ(first->context, client_.context);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_dealloc_mw(first), 0);
    EXPECT_EQ(ibv_dealloc_mw(second), 0);
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(client_.pd, static_cast<ibv_mw_type>(0)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_alloc_mw(client_.pd, static_cast<ibv_mw_type>(3)), nullptr);
}

TEST_F(Windows, ThatAreNotBoundGiveNoAccess) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* window = ibv_alloc_mw(client_.pd, type);
    ASSERT_NE(window, nullptr);
    EXPECT_EQ(write(sge(0, 8), address_of(client_.memory) + 65536, window->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
  }
}

// What is refused before a work request is posted, as libmlx5 does it. The key stays.
TEST_F(Windows, BindsThatMakeNoSense) {
  ibv_mw* type1 = ibv_alloc_mw(client_.pd, IBV_MW_TYPE_1);
  ibv_mw* type2 = ibv_alloc_mw(client_.pd, IBV_MW_TYPE_2);
  ibv_mr* mr = ibv_reg_mr(client_.pd, client_.memory, 4096, kAllRights | IBV_ACCESS_MW_BIND);
  ibv_mr* zero_based =
      ibv_reg_mr(client_.pd, client_.memory, 4096, kAllRights | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
  ibv_mr* null = ibv_alloc_null_mr(client_.pd);
  ibv_pd* pd = ibv_alloc_pd(client_.context);
  ibv_mr* foreign = ibv_reg_mr(pd, client_.memory, 4096, kAllRights | IBV_ACCESS_MW_BIND);
  const uint32_t key = type1->rkey;
  const auto bind = [&](ibv_mw* window, ibv_mr* region, unsigned int access, uint64_t length = 8) {
    ibv_mw_bind request{1, IBV_SEND_SIGNALED, {region, address_of(client_.memory), length, access}};
    return ibv_bind_mw(a_, window, &request);
  };
  EXPECT_EQ(bind(type2, mr, IBV_ACCESS_REMOTE_READ), EINVAL) << "type 2 is bound by work requests";
  EXPECT_EQ(bind(type1, nullptr, 0), EINVAL);
  EXPECT_EQ(bind(type1, foreign, 0), EPERM);
  EXPECT_EQ(bind(type1, mr, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(bind(type1, zero_based, IBV_ACCESS_REMOTE_READ), EINVAL);
  EXPECT_EQ(bind(type1, mr, IBV_ACCESS_MW_BIND), EINVAL);
  EXPECT_EQ(bind(type1, mr, IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(bind(type1, null, 0), EOPNOTSUPP);
  EXPECT_EQ(type1->rkey, key);
  for (ibv_mr* region : {mr, zero_based, null, foreign}) EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dealloc_mw(type1), 0);
  EXPECT_EQ(ibv_dealloc_mw(type2), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// --- the device ------------------------------------------------------------------------------------------------------

TEST_F(ClientTest, MemoryCapabilitiesAreReported) {
  ibv_device_attr_ex attr;
  ASSERT_EQ(ibv_query_device_ex(client_.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.orig_attr.max_mr, 1 << 20);
  EXPECT_EQ(attr.orig_attr.max_mw, 1 << 20);
  EXPECT_EQ(attr.orig_attr.max_mr_size, UINT64_MAX);
  EXPECT_TRUE(attr.orig_attr.page_size_cap & 4096);
  EXPECT_TRUE(attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
  EXPECT_TRUE(attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  EXPECT_FALSE(attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A);
  EXPECT_TRUE(attr.orig_attr.device_cap_flags &
              IBV_DEVICE_MEM_MGT_EXTENSIONS);  // WindowTraffic.*, of SENDs and LOCAL_INV
  EXPECT_TRUE(attr.device_cap_flags_ex & (1ull << 38)) << "FLUSH, global visibility";
  EXPECT_FALSE(attr.device_cap_flags_ex & (1ull << 39)) << "persistence";
  EXPECT_EQ(attr.odp_caps.general_caps, static_cast<uint64_t>(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  constexpr uint32_t kBasic = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
  for (const uint32_t caps :
       {attr.odp_caps.per_transport_caps.rc_odp_caps, attr.odp_caps.per_transport_caps.uc_odp_caps,
        attr.odp_caps.per_transport_caps.ud_odp_caps, attr.xrc_odp_caps}) {
    EXPECT_EQ(caps & kBasic, kBasic);
  }
  EXPECT_EQ(attr.max_dm_size, uint64_t{64} << 20);
}

TEST(Closing, TakesForgottenMemory) {
  client client{};
  ASSERT_EQ(client_open(&client), 0);
  ibv_alloc_dm_attr all{size_t{64} << 20, 0, 0};
  ibv_dm* dm = ibv_alloc_dm(client.context, &all);
  ASSERT_NE(dm, nullptr);
  ibv_mr* on_device = ibv_reg_dm_mr(client.pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED);
  ibv_mr* null = ibv_alloc_null_mr(client.pd);
  ibv_mr* imported = ibv_import_mr(client.pd, client.mr->handle);
  ibv_mw* window = ibv_alloc_mw(client.pd, IBV_MW_TYPE_1);
  EXPECT_EQ(ibv_close_device(client.context), 0);

  struct client second {};
  ASSERT_EQ(client_open(&second), 0);
  ibv_dm* again = ibv_alloc_dm(second.context, &all);
  EXPECT_NE(again, nullptr) << "all of it is free again";
  EXPECT_EQ(ibv_free_dm(again), 0);
  client_close(&second);

  // Too late, but harmless.
  EXPECT_EQ(ibv_free_dm(dm), EBUSY) << "as long as there is a region on it";
  EXPECT_EQ(ibv_dereg_mr(on_device), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
  ibv_unimport_mr(imported);
  EXPECT_EQ(ibv_dereg_mr(client.mr), 0);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  EXPECT_EQ(ibv_dealloc_pd(client.pd), 0);
  free(client.memory);
}

}  // namespace
