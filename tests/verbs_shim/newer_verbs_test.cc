// Verbs that the distribution's headers do not know yet, at IBVERBS_1.15 and later: found as a program linked against a
// newer libibverbs finds them.
#include <cerrno>
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
  auto* dmabuf = symbol<int(Handle)>("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
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
  errno = 0;
  EXPECT_EQ(dmabuf(buffer), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  release(buffer);
  EXPECT_EQ(alloc(client_.pd, 0, &buffer), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(alloc(client_.pd, SIZE_MAX / 2, &buffer), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(ClientTest, CompletionCountersSayThatTheyAreNotThere) {
  EXPECT_EQ(symbol<int(ibv_context*, void*)>("ibv_query_comp_cntr_caps", "IBVERBS_1.18")(client_.context, nullptr),
            EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(symbol<Handle(ibv_context*, void*)>("ibv_create_comp_cntr", "IBVERBS_1.18")(client_.context, nullptr),
            nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  for (const char* name :
       {"ibv_set_comp_cntr", "ibv_set_err_comp_cntr", "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr"}) {
    EXPECT_EQ(symbol<int(Handle, uint64_t)>(name, "IBVERBS_1.18")(nullptr, 1), EOPNOTSUPP) << name;
  }
  for (const char* name : {"ibv_read_comp_cntr", "ibv_read_err_comp_cntr"}) {
    EXPECT_EQ(symbol<int(Handle, uint64_t*)>(name, "IBVERBS_1.18")(nullptr, nullptr), EOPNOTSUPP) << name;
  }
  EXPECT_EQ(symbol<int(Handle)>("ibv_destroy_comp_cntr", "IBVERBS_1.18")(nullptr), EOPNOTSUPP);
  EXPECT_EQ(symbol<int(ibv_qp*, Handle, void*)>("ibv_qp_attach_comp_cntr", "IBVERBS_1.18")(nullptr, nullptr, nullptr),
            EOPNOTSUPP);
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
