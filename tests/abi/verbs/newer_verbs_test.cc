// SPDX-License-Identifier: BSD-2-Clause
// Verbs that the distribution's headers do not know yet, at IBVERBS_1.15 and later: found as a program linked against a
// newer libibverbs finds them.
#include <cerrno>
#include <climits>
#include <cstdint>
#include <dlfcn.h>
#include <string>

#include "fixture.h"

namespace {

using Handle = void*;  // of a struct that applications do not look into

template <class Function>
Function* symbol(const char* name, const char* version) {
  void* found = dlvsym(RTLD_DEFAULT, name, version);
  EXPECT_NE(found, nullptr) << name << "@" << version;
  return reinterpret_cast<Function*>(found);
}

TEST_F(ClientTest, BuffersOfTheProviderAreMemory) {
  auto* alloc = symbol<void*(ibv_pd*, size_t, Handle*)>("ibv_alloc_buf", "IBVERBS_1.17");
  auto* release = symbol<void(Handle)>("ibv_free_buf", "IBVERBS_1.17");
  auto* reg = symbol<ibv_mr*(ibv_pd*, Handle, void*, size_t, int)>("ibv_reg_buf_mr", "IBVERBS_1.17");
  Handle buffer = nullptr;
  constexpr size_t kSize = 10000;
  auto* memory = static_cast<unsigned char*>(alloc(client_.pd, kSize, &buffer));
  ASSERT_TRUE(memory != nullptr && buffer != nullptr);
  EXPECT_EQ(memory[kSize - 1], 0);
  ibv_mr* mr = reg(client_.pd, buffer, memory + 100, kSize - 100, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory + 100);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  EXPECT_EQ(reg(client_.pd, buffer, memory + 1, kSize, IBV_ACCESS_LOCAL_WRITE), nullptr) << "beyond its end";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(reg(client_.pd, buffer, memory - 1, 2, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* other = ibv_alloc_pd(client_.context);
  EXPECT_EQ(reg(other, buffer, memory, kSize, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  release(buffer);
  EXPECT_EQ(alloc(client_.pd, 0, &buffer), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(alloc(client_.pd, SIZE_MAX / 2, &buffer), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

// struct ibv_mr_init_attr of rdma-core 64.
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask, iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  Handle dmah, buf;
};

TEST_F(ClientTest, BuffersOfTheProviderBehindTheOneCallForAllRegions) {
  auto* alloc = symbol<void*(ibv_pd*, size_t, Handle*)>("ibv_alloc_buf", "IBVERBS_1.17");
  auto* release = symbol<void(Handle)>("ibv_free_buf", "IBVERBS_1.17");
  auto* reg = symbol<ibv_mr*(ibv_pd*, MrInitAttr*)>("ibv_reg_mr_ex", "IBVERBS_1.15");
  enum : uint64_t { kIova = 1, kAddress = 2, kFd = 4, kFdOffset = 8, kBuf = 32 };
  Handle buffer = nullptr;
  auto* memory = static_cast<unsigned char*>(alloc(client_.pd, 8192, &buffer));
  ASSERT_NE(memory, nullptr);
  const auto made_with = [&](uint64_t mask, size_t length) {
    MrInitAttr attr{length, IBV_ACCESS_LOCAL_WRITE, kBuf | mask, 0x5000, memory + 4096, -1, 0, nullptr, buffer};
    errno = 0;
    return reg(client_.pd, &attr);
  };
  for (const uint64_t mask : {uint64_t{kAddress}, kAddress | kIova}) {
    ibv_mr* mr = made_with(mask, 4096);
    ASSERT_NE(mr, nullptr) << mask;
    EXPECT_EQ(mr->addr, memory + 4096);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  EXPECT_EQ(made_with(kAddress, 4097), nullptr) << "beyond its end";
  EXPECT_EQ(errno, EINVAL);
  for (const uint64_t mask : {uint64_t{0}, kFd | kFdOffset, kAddress | kFd | kFdOffset}) {
    EXPECT_EQ(made_with(mask, 4096), nullptr) << "rdma-core wants the address, and no file";
    EXPECT_EQ(errno, EINVAL) << mask;
  }
  release(buffer);
}

TEST_F(ClientTest, WorkRequestOpcodesHaveNames) {
  for (const char* node : {"34", "57", "59", "64", "65"}) {
    const std::string version = std::string("IBVERBS_PRIVATE_") + node;
    auto* name = symbol<const char*(int)>("ibv_wr_opcode_str", version.c_str());
    EXPECT_STREQ(name(IBV_WR_RDMA_WRITE), "rdma-write");
    EXPECT_STREQ(name(IBV_WR_DRIVER1), "driver1");
    EXPECT_STREQ(name(14), "flush");
    EXPECT_STREQ(name(15), "atomic-write");
    for (const int other : {-1, 12, 13, 16, INT_MAX}) EXPECT_STREQ(name(other), "unknown");
  }
}

TEST_F(ClientTest, PortSpeedIsInUnitsOf100Mbps) {
  auto* query = symbol<int(ibv_context*, uint32_t, uint64_t*)>("ibv_query_port_speed", "IBVERBS_1.16");
  uint64_t speed = 0;
  ASSERT_EQ(query(client_.context, 1, &speed), 0);
  EXPECT_EQ(speed, 100u) << "a veth says 10 Gb/s";
  EXPECT_EQ(query(client_.context, 2, &speed), EINVAL);
}

// The private nodes of newer releases have working stubs as well: tools of theirs call this one.
TEST_F(ClientTest, GidTypeIsAnsweredUnderEveryPrivateNode) {
  for (const char* node : {"34", "57", "59", "64", "65"}) {
    const std::string version = std::string("IBVERBS_PRIVATE_") + node;
    auto* query = symbol<int(ibv_context*, uint8_t, unsigned int, int*)>("ibv_query_gid_type", version.c_str());
    int type = -1;
    EXPECT_EQ(query(client_.context, 1, 0, &type), 0);
    EXPECT_EQ(type, 1);
  }
}

}  // namespace
