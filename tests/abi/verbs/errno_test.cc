// SPDX-License-Identifier: BSD-2-Clause
// How verbs fail: with the errno value as their result and in errno as well, as behind the kernel's command path, since
// programs print strerror(errno); and without leaving anything behind.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

namespace {

using ErrnoTest = ConnectedTest;

TEST_F(ErrnoTest, IsWhatAVerbReturns) {
  ibv_qp_attr qp_attr{};
  qp_attr.qp_state = IBV_QPS_INIT;
  ibv_srq_init_attr srq_init{nullptr, {1, 1, 0}};
  ibv_srq* srq = ibv_create_srq(client_.pd, &srq_init);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr srq_attr{};
  uint32_t number = 0;
  ibv_sge list = sge(0, 8);
  ibv_send_wr wr = send_request(1, &list, IBV_WR_TSO);
  ibv_send_wr* bad = nullptr;
  ibv_recv_wr receive{1, nullptr, &list, 1000};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_modify_cq_attr moderation{};
  moderation.attr_mask = ~0u;
  ibv_port_attr port{};
  ibv_gid_entry entry{};
  ibv_gid gid{};
  ibv_ah_attr address{};
  uint8_t mac[ETHERNET_LL_SIZE];
  ibv_values_ex values{~0u, {}};
  ibv_alloc_dm_attr dm_attr{64, 0, 0};
  ibv_dm* dm = ibv_alloc_dm(client_.context, &dm_attr);
  ASSERT_NE(dm, nullptr);
  ibv_ece ece{0, 0, 1};
  const std::map<std::string, std::function<int()>> kFailing = {
      {"dealloc_pd", [&] { return ibv_dealloc_pd(client_.pd); }},
      {"destroy_cq", [&] { return ibv_destroy_cq(cq_); }},
      {"resize_cq", [&] { return ibv_resize_cq(cq_, 0); }},
      {"modify_cq", [&] { return ibv_modify_cq(cq_, &moderation); }},
      {"destroy_comp_channel", [&] { return ibv_destroy_comp_channel(channel_); }},
      {"modify_qp", [&] { return ibv_modify_qp(a_, &qp_attr, IBV_QP_STATE); }},
      {"destroy_qp", [&] { return ibv_destroy_qp(nullptr); }},
      {"set_ece", [&] { return ibv_set_ece(a_, &ece); }},
      {"attach_mcast", [&] { return ibv_attach_mcast(a_, &gid, 0); }},
      {"detach_mcast", [&] { return ibv_detach_mcast(a_, &gid, 0); }},
      {"modify_srq", [&] { return ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR); }},
      {"get_srq_num", [&] { return ibv_get_srq_num(srq, &number); }},
      {"post_send", [&] { return ibv_post_send(a_, &wr, &bad); }},
      {"post_recv", [&] { return ibv_post_recv(a_, &receive, &bad_receive); }},
      {"post_srq_recv", [&] { return ibv_post_srq_recv(srq, &receive, &bad_receive); }},
      {"query_rt_values", [&] { return ibv_query_rt_values_ex(client_.context, &values); }},
      {"query_port", [&] { return ibv_query_port(client_.context, 2, &port); }},
      {"query_gid_ex", [&] { return ibv_query_gid_ex(client_.context, 2, 0, &entry, 0); }},
      {"query_gid_table", [&] { return -static_cast<int>(ibv_query_gid_table(client_.context, &entry, 0, 0)); }},
      {"resolve_eth_l2_from_gid", [&] { return ibv_resolve_eth_l2_from_gid(client_.context, &address, mac, nullptr); }},
      {"advise_mr", [&] { return ibv_advise_mr(client_.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 0); }},
      {"memcpy_to_dm", [&] { return ibv_memcpy_to_dm(dm, 1, &list, 4); }},
      {"memcpy_from_dm", [&] { return ibv_memcpy_from_dm(&list, dm, 68, 4); }},
  };
  for (const auto& [name, fail] : kFailing) {
    errno = 0;
    const int error = fail();
    EXPECT_GT(error, 0) << name;
    EXPECT_EQ(errno, error) << name;
  }
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// --- nothing is left behind ------------------------------------------------------------------------------------------

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Opening a device takes a few descriptors. Whichever of them cannot be had, the others are given back.
TEST(Opening, ThatRunsOutOfDescriptorsKeepsNone) {
  client client{};
  ASSERT_EQ(client_open(&client), 0) << "what a process has one of is there from now on";
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  int failures = 0;
  ibv_context* context = nullptr;
  for (rlim_t spare = 0; context == nullptr && spare < 20; ++spare) {
    const size_t before = open_descriptors();
    const int lowest_free = dup(0);
    close(lowest_free);
    const rlimit tight{static_cast<rlim_t>(lowest_free) + spare, usual.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    errno = 0;
    context = ibv_open_device(client.context->device);
    const int error = errno;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
    if (context != nullptr) break;
    ++failures;
    EXPECT_EQ(error, EMFILE) << spare;
    EXPECT_EQ(open_descriptors(), before) << spare;
  }
  EXPECT_GE(failures, 2);  // its own copy of async_fd takes no place below the limit (base/set_aside.h)
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  client_close(&client);
}

// Where the hard limit is as low, no descriptor can be set aside. It does not come back, so a child goes down from what
// is enough. Its exit status says how many were refused in order; 100 and more: the check that failed.
int openings_refused() {
  client client{};
  if (client_open(&client) != 0) return 100;
  int refused = 0;
  const int lowest_free = dup(0);
  close(lowest_free);
  for (int spare = 20; spare >= 0; --spare) {
    const size_t before = open_descriptors();
    const rlimit tight{static_cast<rlim_t>(lowest_free + spare), static_cast<rlim_t>(lowest_free + spare)};
    if (setrlimit(RLIMIT_NOFILE, &tight) != 0) return 101;
    ibv_context* const context = ibv_open_device(client.context->device);
    const int error = errno;
    if (context != nullptr && refused > 0) return 102;
    if (context == nullptr && error != EMFILE) return 103;
    refused += context == nullptr;
    if (context != nullptr && ibv_close_device(context) != 0) return 104;
    if (spare > 0 && open_descriptors() != before) return 105;  // that needs one, too
  }
  return refused;
}

TEST(Opening, ThatRunsOutOfDescriptorsKeepsNoneWhereNoneCanBeSetAside) {
  const pid_t child = fork();
  if (child == 0) _exit(openings_refused());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_GE(WEXITSTATUS(status), 3);
  EXPECT_LT(WEXITSTATUS(status), 20);
}

// How many descriptors of this process stand for the file.
int descriptors_of(const struct stat& file) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat status {};
    if (fstat(std::stoi(entry.path().filename()), &status) != 0) continue;
    count += status.st_dev == file.st_dev && status.st_ino == file.st_ino;
  }
  return count;
}

// An inode number comes again when nobody has the file any more: a domain that is known by it keeps it.
TEST_F(ClientTest, XrcDomainsKeepTheFileThatTheyAreKnownBy) {
  char path[] = "/tmp/uroce_xrcd_XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  struct stat file {};
  ASSERT_EQ(fstat(fd, &file), 0);
  ibv_xrcd_init_attr attr{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, O_CREAT};
  ibv_xrcd* first = ibv_open_xrcd(client_.context, &attr);
  ibv_xrcd* second = ibv_open_xrcd(client_.context, &attr);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(unlink(path), 0);
  EXPECT_EQ(descriptors_of(file), 1);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(descriptors_of(file), 1);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(descriptors_of(file), 0) << "until the last one who has it open";
}

// librdmacm makes the shared receive queue of an XRC target in the QP's protection domain. The target itself uses none.
TEST_F(ClientTest, XrcTargetsSayThePdTheyWereMadeWith) {
  ibv_xrcd_init_attr domain{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* xrcd = ibv_open_xrcd(client_.context, &domain);
  ibv_pd* pd = ibv_alloc_pd(client_.context);
  ASSERT_TRUE(xrcd != nullptr && pd != nullptr);
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD;
  init.cap.max_recv_wr = init.cap.max_recv_sge = 1;
  init.xrcd = xrcd;
  init.pd = pd;
  ibv_qp* target = ibv_create_qp_ex(client_.context, &init);
  ASSERT_NE(target, nullptr) << strerror(errno);
  EXPECT_EQ(target->pd, pd);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "nothing uses it";
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace
