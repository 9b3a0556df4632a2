// SPDX-License-Identifier: BSD-2-Clause
// Exports that need no queue: names, rates, structs of the kernel's ABI, files, fork; and the one that is not of
// libibverbs. That names and rates are the system library's is exports_test's to show.
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <set>
#include <string>
#include <unistd.h>

#include "abi/functions.h"
#include "fixture.h"

// Exported, in no header that is installed.
extern "C" {
void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);
const char* ibv_get_sysfs_path(void);
int ibv_dontfork_range(void* base, size_t size);
int ibv_dofork_range(void* base, size_t size);
}

namespace {

TEST(Helpers, Names) {
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_COMM_EST), "communication established");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
}

TEST(Helpers, Rates) {
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
  EXPECT_EQ(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(mbps_to_ibv_rate(103125), IBV_RATE_100_GBPS);
}

TEST(Helpers, SysfsAndFork) {
  EXPECT_STREQ(ibv_get_sysfs_path(), "/sys");
  char page[16];
  EXPECT_EQ(ibv_dontfork_range(page, sizeof(page)), 0);
  EXPECT_EQ(ibv_dofork_range(page, sizeof(page)), 0);
}

TEST(Helpers, AddressesFromTheKernel) {
  ib_uverbs_ah_attr from{};
  from.grh.dgid[15] = 7;
  from.grh.sgid_index = 2;
  from.grh.hop_limit = 64;
  from.is_global = 1;
  from.port_num = 1;
  from.sl = 3;
  ibv_ah_attr to{};
  ibv_copy_ah_attr_from_kern(&to, &from);
  EXPECT_EQ(to.grh.dgid.raw[15], 7);
  EXPECT_EQ(to.grh.sgid_index, 2);
  EXPECT_EQ(to.grh.hop_limit, 64);
  EXPECT_EQ(to.is_global, 1);
  EXPECT_EQ(to.port_num, 1);
  EXPECT_EQ(to.sl, 3);
}

TEST(Helpers, QpAttributesFromTheKernel) {
  ib_uverbs_qp_attr from{};
  from.qp_state = IBV_QPS_RTR;
  from.path_mtu = IBV_MTU_1024;
  from.dest_qp_num = 0x123456;
  from.rq_psn = 77;
  from.max_dest_rd_atomic = 5;
  from.ah_attr.grh.dgid[0] = 0xfe;
  ibv_qp_attr to{};
  ibv_copy_qp_attr_from_kern(&to, &from);
  EXPECT_EQ(to.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(to.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(to.dest_qp_num, 0x123456u);
  EXPECT_EQ(to.rq_psn, 77u);
  EXPECT_EQ(to.max_dest_rd_atomic, 5);
  EXPECT_EQ(to.ah_attr.grh.dgid.raw[0], 0xfe);
}

TEST(Helpers, PathRecordsThereAndBack) {
  ibv_sa_path_rec path{};
  path.dgid.raw[15] = 9;
  path.hop_limit = 3;
  path.pkey = 0xffff;
  path.mtu = IBV_MTU_2048;
  path.packet_life_time = 17;
  ib_user_path_rec kernel{};
  ibv_copy_path_rec_to_kern(&kernel, &path);
  EXPECT_EQ(kernel.dgid[15], 9);
  ibv_sa_path_rec back{};
  ibv_copy_path_rec_from_kern(&back, &kernel);
  EXPECT_EQ(std::memcmp(&back.dgid, &path.dgid, sizeof(path.dgid)), 0);
  EXPECT_EQ(back.hop_limit, 3);
  EXPECT_EQ(back.pkey, 0xffff);
  EXPECT_EQ(back.mtu, IBV_MTU_2048);
  EXPECT_EQ(back.packet_life_time, 17);
}

TEST(Helpers, PortCountersHaveNames) {
  using Each = void(void*, int, const char*, uint64_t);
  const auto report = reinterpret_cast<void (*)(Each*, void*)>(dlvsym(RTLD_DEFAULT, "uroce_port_counters", "UROCE_1"));
  ASSERT_NE(report, nullptr);
  std::set<std::string> names;
  report([](void* to, int, const char* name, uint64_t) { static_cast<std::set<std::string>*>(to)->insert(name); },
         &names);
  EXPECT_TRUE(names.count("counters/port_rcv_data"));
}

TEST(Helpers, RdmaCmFunctionsAreThere) {
  const auto get = reinterpret_cast<uroce::rdma_cm::GetFunctions*>(dlvsym(RTLD_DEFAULT, "uroce_rdma_cm", "UROCE_1"));
  ASSERT_NE(get, nullptr);
  const uroce::rdma_cm::Functions& functions = *get();
  const int fd = functions.open(O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(functions.any());
  const uint64_t what = functions.closing(fd);
  EXPECT_NE(what, 0u);
  EXPECT_EQ(functions.closing(STDIN_FILENO), 0u);
  close(fd);
  functions.closed(what);
  EXPECT_FALSE(functions.any());
}

TEST_F(ClientTest, GidsAreThoseOfTheTable) {
  using Each = void(void*, int, size_t, const uint8_t*);
  const auto report = reinterpret_cast<void (*)(Each*, void*)>(dlvsym(RTLD_DEFAULT, "uroce_gids", "UROCE_1"));
  ASSERT_NE(report, nullptr);
  std::set<size_t> seen;
  report([](void* to, int, size_t index, const uint8_t*) { static_cast<std::set<size_t>*>(to)->insert(index); }, &seen);
  EXPECT_TRUE(seen.count(0));
  EXPECT_TRUE(seen.count(1));
}

// An exec may fail. What becomes of ACKs: tests/e2e/last_ack.py.
TEST_F(ClientTest, TheDeviceAnswersAfterWhatPrecedesTheEnd) {
  const auto before_end = reinterpret_cast<void (*)(int)>(dlvsym(RTLD_DEFAULT, "uroce_before_end", "UROCE_1"));
  ASSERT_NE(before_end, nullptr);
  before_end(1);
  before_end(0);
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(client_.context, 1, &port), 0);
}

// What programs from before verbs_context reach.
TEST_F(ClientTest, OldSlotsOfTheTableAnswer) {
  ibv_device_attr device{};
  EXPECT_EQ(client_.context->ops._compat_query_device(client_.context, &device), 0);
  EXPECT_EQ(device.phys_port_cnt, 1);
  union {
    ibv_port_attr known;
    char room[256];
  } port{};
  EXPECT_EQ(
      client_.context->ops._compat_query_port(client_.context, 1, reinterpret_cast<_compat_ibv_port_attr*>(&port)), 0);
  EXPECT_EQ(port.known.state, IBV_PORT_ACTIVE);
}

}  // namespace
