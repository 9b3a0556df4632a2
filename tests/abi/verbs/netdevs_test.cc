// SPDX-License-Identifier: BSD-2-Clause
// Several netdevs and addresses of one process: devices of their own with QPs between them, VLANs, secondary addresses.
#include <atomic>
#include <chrono>
#include <ctime>
#include <dlfcn.h>
#include <filesystem>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "wire_fixture.h"

namespace {

class Netdevs : public testing::TestWithParam<const char*> {
 protected:
  static bool alone_with_io() { return alone(std::string(kAllNetdevs) + " UROCE_IO=" + GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Io, Netdevs, testing::Values("udp", "af_xdp"),
                         [](const auto& io) { return std::string(io.param); });

// --- QPs of one process on two netdevs -------------------------------------------------------------------------------

TEST_P(Netdevs, OfOneProcessTalkToEachOther) {
  if (!alone_with_io()) return;
  set_up_wire();
  Side near("rdma0"), far("other0");
  ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
  for (int i = 1; i < 20; ++i) {
    ASSERT_EQ(near.write(far, static_cast<unsigned char>(i)), IBV_WC_SUCCESS);
    ASSERT_EQ(far.write(near, static_cast<unsigned char>(i + 100)), IBV_WC_SUCCESS);
  }
}

TEST_P(Netdevs, OfOneProcessTalkOverIpv6) {
  if (std::string(GetParam()) == "udp") GTEST_SKIP() << "the kernel does not send to its own IPv6 addresses by wire";
  if (!alone_with_io()) return;
  set_up_wire();
  Side near("rdma0"), far("other0");
  ASSERT_EQ(near.connect(far, "fd00:192:0:2::1", "fd00:192:0:2::2"), 0);
  ASSERT_EQ(far.connect(near, "fd00:192:0:2::2", "fd00:192:0:2::1"), 0);
  ASSERT_EQ(near.write(far, 1), IBV_WC_SUCCESS);
  ASSERT_EQ(far.write(near, 2), IBV_WC_SUCCESS);
}

// Several contexts and connections at once, each direction driven by a thread of its own.
TEST_P(Netdevs, HaveAThreadEach) {
  if (!alone_with_io()) return;
  set_up_wire();
  Side near1("rdma0"), far1("other0"), near2("rdma0"), far2("other0");
  ASSERT_NE(near1.context, near2.context);
  ASSERT_EQ(near1.connect(far1, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far1.connect(near1, "192.0.2.2", "192.0.2.1"), 0);
  ASSERT_EQ(near2.connect(far2, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far2.connect(near2, "192.0.2.2", "192.0.2.1"), 0);
  const auto stream = [](Side& from, Side& to) {
    for (int i = 0; i < 30; ++i) ASSERT_EQ(from.write(to, static_cast<unsigned char>(i)), IBV_WC_SUCCESS);
  };
  std::thread out([&] { stream(near1, far1); });
  std::thread back([&] { stream(far2, near2); });
  out.join();
  back.join();
}

// --- VLANs -----------------------------------------------------------------------------------------------------------

// Sees every frame of a netdev, as tcpdump does.
class Tap {
 public:
  explicit Tap(const std::string& netdev) : fd_(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL))) {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(ETH_P_ALL);
    to.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
    const int on = 1;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_EQ(setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)), 0);
  }
  ~Tap() { close(fd_); }

  // Frames so far with RoCE v2 over IPv4 in this VLAN (0: none), wherever the kernel keeps the tag.
  int roce_frames(uint16_t vlan) {
    int count = 0;
    unsigned char frame[2048];
    alignas(cmsghdr) char control[256];
    while (true) {
      iovec data{frame, sizeof(frame)};
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      if (recvmsg(fd_, &message, MSG_DONTWAIT) < 0) return count;
      uint16_t tag = 0;
      const unsigned char* ip = frame + 14;
      if (frame[12] == 0x81 && frame[13] == 0x00) {
        tag = static_cast<uint16_t>((frame[14] << 8 | frame[15]) & 0xfff);
        ip += 4;
      }
      const cmsghdr* extra = CMSG_FIRSTHDR(&message);
      if (extra != nullptr && extra->cmsg_type == PACKET_AUXDATA) {
        tpacket_auxdata aux;
        std::memcpy(&aux, CMSG_DATA(extra), sizeof(aux));
        if (aux.tp_status & TP_STATUS_VLAN_VALID) tag = aux.tp_vlan_tci & 0xfff;
      }
      const bool roce = ip[0] == 0x45 && ip[9] == IPPROTO_UDP && (ip[22] << 8 | ip[23]) == 4791;
      if (roce && tag == vlan) ++count;
    }
  }

 private:
  const int fd_;
};

// A netdev with several queues, free for whoever is next.
void make_many_queues() {
  run("ip link add many0 numrxqueues 4 numtxqueues 4 type veth peer name many1 numrxqueues 4 numtxqueues 4");
  run("ip addr add 198.18.0.1/24 dev many0 && ip link set many0 up && ip link set many1 up");
}

// As waitpid() tells it; -1: there is no such child.
int ending_of(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

// Whatever way a process ends, and whether it has closed the device: the next one can open it at once.
TEST_P(Netdevs, AreOpenedByOneProcessAfterAnother) {
  if (!alone_with_io()) return;
  make_many_queues();
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      auto* const side = new Side("many0");
      const bool opened = side->qp != nullptr;
      if (i % 4 < 2) delete side;
      if (i % 2 == 0) exit(opened ? 0 : 1);
      if (opened && i % 4 == 3) raise(SIGKILL);
      _exit(opened ? 0 : 1);
    }
    ASSERT_EQ(ending_of(child), i % 4 == 3 ? SIGKILL : 0) << i;
  }
}

// exit() in a signal handler that has interrupted polling, perhaps while it held the progress lock.
TEST_P(Netdevs, LetProgramsExitWhileTheyPoll) {
  if (!alone_with_io()) return;
  make_many_queues();
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      const Side side("many0");
      signal(SIGPROF, [](int) { exit(0); });
      const itimerval soon{{0, 0}, {0, 200 + 100 * i}};
      setitimer(ITIMER_PROF, &soon, nullptr);
      ibv_wc wc;
      while (true) ibv_poll_cq(side.cq, 1, &wc);
    }
    ASSERT_EQ(ending_of(child), 0) << i;
  }
}

// By one thread while another one is closing it.
TEST_P(Netdevs, AreOpenedWhileTheyAreClosed) {
  if (!alone_with_io()) return;
  make_many_queues();
  auto side = std::make_unique<Side>("many0");
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    std::atomic<bool> closing{false};
    std::unique_ptr<Side> next;
    std::thread opener([&] {
      closing.wait(false);
      next = std::make_unique<Side>("many0");
    });
    closing = true;
    closing.notify_one();
    side.reset();
    opener.join();
    side = std::move(next);
  }
}

TEST_P(Netdevs, MayBeVlans) {
  if (system("LD_PRELOAD= ip link add link rdma0 name rdma0.1 type vlan id 1 && LD_PRELOAD= ip link del rdma0.1") !=
      0) {
    GTEST_SKIP() << "this kernel has no VLANs";
  }
  if (!alone_with_io()) return;
  run("ip link add link rdma0 name rdma0.100 type vlan id 100 && ip link add link other0 name other0.100 type vlan id "
      "100");
  run("ip link set rdma0.100 up && ip link set other0.100 up");
  run("ip addr del 192.0.2.1/24 dev rdma0");
  set_up_wire("rdma0.100", "other0.100");
  Side near("rdma0.100"), far("other0.100");
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(near.context, 1, &port), 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  Tap tap("other0");
  ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
  ASSERT_EQ(near.write(far, 1, 64), IBV_WC_SUCCESS);
  EXPECT_GE(tap.roce_frames(100), 2) << "the request and its ACK";
  ASSERT_EQ(near.write(far, 2), IBV_WC_SUCCESS);
  ASSERT_EQ(far.write(near, 3), IBV_WC_SUCCESS);
  EXPECT_EQ(tap.roce_frames(0), 0);
}

// Drivers without XDP of their own: AF_XDP in generic mode.
TEST_P(Netdevs, MayBeStackedOnOthers) {
  if (!alone_with_io()) return;
  run("ip link add link rdma0 name near0 type macvlan mode bridge && ip link set near0 up");
  run("ip link add link other0 name far0 type macvlan mode bridge && ip link set far0 up");
  run("ip addr del 192.0.2.1/24 dev rdma0");
  set_up_wire("near0", "far0");
  Side near("near0"), far("far0");
  ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
  ASSERT_EQ(near.write(far, 1), IBV_WC_SUCCESS);
  ASSERT_EQ(far.write(near, 2), IBV_WC_SUCCESS);
}

// --- addresses that come and go --------------------------------------------------------------------------------------

// The connection uses the second address: its place in the GID table stays when the first one goes and others come, and
// the peer's MAC address changes afterwards.
TEST_P(Netdevs, KeepConnectionsWhenOtherAddressesComeAndGo) {
  if (!alone_with_io()) return;
  set_up_wire();
  // A new MAC address brings no new link-local one then, so that it is what has to be noticed.
  run("sysctl -qw net.ipv6.conf.other0.disable_ipv6=1");
  run("ip addr add 203.0.113.1/24 dev rdma0 && ip addr add 203.0.113.2/24 dev other0");
  Side near("rdma0"), far("other0");
  const int index = gid_index(near.context, "203.0.113.1");
  ASSERT_GT(index, 0);
  ASSERT_EQ(near.connect(far, "203.0.113.1", "203.0.113.2"), 0);
  ASSERT_EQ(far.connect(near, "203.0.113.2", "203.0.113.1"), 0);
  ASSERT_EQ(near.write(far, 1), IBV_WC_SUCCESS);
  run("ip addr del 192.0.2.1/24 dev rdma0");
  ibv_gid_entry entry;
  while (ibv_query_gid_ex(near.context, 1, 0, &entry, 0) != ENODATA) {
  }
  EXPECT_EQ(gid_index(near.context, "203.0.113.1"), index);
  EXPECT_EQ(gid_index(near.context, "192.0.2.1"), -1);
  ASSERT_EQ(near.write(far, 2), IBV_WC_SUCCESS);
  {
    // Asked for before others come, used after: the address is still that of this place.
    Side again_near("rdma0"), again_far("other0");
    run("ip addr add 10.1.1.1/24 dev rdma0 && ip addr add fd00:1::1/64 dev rdma0 nodad");
    while (gid_index(near.context, "fd00:1::1") < 0) {
    }
    EXPECT_EQ(gid_index(near.context, "10.1.1.1"), 0) << "the first empty place";
    EXPECT_EQ(gid_index(near.context, "203.0.113.1"), index);
    ASSERT_EQ(again_near.connect(again_far, "203.0.113.1", "203.0.113.2"), 0);
    ASSERT_EQ(again_far.connect(again_near, "203.0.113.2", "203.0.113.1"), 0);
    ASSERT_EQ(again_near.write(again_far, 7), IBV_WC_SUCCESS);
    run("ip addr del 10.1.1.1/24 dev rdma0 && ip addr del fd00:1::1/64 dev rdma0");
  }
  run("ip link set other0 address 02:00:00:00:00:99");
  run("ip neigh flush dev rdma0");  // what UDP sockets go by: the kernel does not hear of it either
  ASSERT_EQ(near.write(far, 3), IBV_WC_SUCCESS);
  ASSERT_EQ(far.write(near, 4), IBV_WC_SUCCESS);
  run("ip addr add 192.0.2.1/24 dev rdma0");
  ASSERT_EQ(near.write(far, 5), IBV_WC_SUCCESS);
  // Its own address: nothing comes through any more, and again when it is back.
  run("ip addr add 203.0.113.77/24 dev other0 && ip addr del 203.0.113.77/24 dev other0");
  ASSERT_EQ(far.write(near, 6), IBV_WC_SUCCESS);
}

// Packets that came with a wrong ICRC, to any device of this process.
uint64_t wrong_icrcs() {
  using Each = void(void* to, int netdev_index, const char* name, uint64_t value);
  const auto report = reinterpret_cast<void (*)(Each*, void*)>(dlvsym(RTLD_DEFAULT, "uroce_port_counters", "UROCE_1"));
  uint64_t sum = 0;
  const auto add = [](void* to, int, const char* name, uint64_t value) {
    if (std::string(name) == "hw_counters/rx_icrc_encapsulated") *static_cast<uint64_t*>(to) += value;
  };
  EXPECT_NE(report, nullptr);
  if (report != nullptr) report(add, &sum);
  return sum;
}

// Counters, heartbeats, sequence locks: whatever a READ sees of them, its responses have the ICRC of what they carry.
TEST_P(Netdevs, LetMemoryBeReadThatIsBeingWritten) {
  if (!alone_with_io()) return;
  set_up_wire();
  Side near("rdma0"), far("other0");
  ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
  std::vector<std::atomic<uint64_t>> hot(8192);
  constexpr uint32_t kBytes = 8192 * sizeof(uint64_t);
  ibv_mr* const mr =
      ibv_reg_mr(far.pd, hot.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (uint64_t value = 1; !over; ++value) {
      for (std::atomic<uint64_t>& word : hot) word.store(value, std::memory_order_relaxed);
    }
  });
  ibv_sge list{reinterpret_cast<uintptr_t>(near.memory.data()), kBytes, near.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(hot.data());
  wr.wr.rdma.rkey = mr->rkey;
  for (int i = 0; i < 200; ++i) {
    ibv_send_wr* bad = nullptr;
    ibv_wc wc{};
    if (ibv_post_send(near.qp, &wr, &bad) != 0 || client_wait(near.cq, &wc) != 1) wc.status = IBV_WC_GENERAL_ERR;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << "READ " << i;
    if (wc.status != IBV_WC_SUCCESS) break;
  }
  over = true;
  writer.join();
  EXPECT_EQ(wrong_icrcs(), 0u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_P(Netdevs, CarryTrafficOfEveryAddress) {
  if (!alone_with_io()) return;
  set_up_wire();
  run("ip addr add 203.0.113.1/24 dev rdma0 && ip addr add 203.0.113.2/24 dev other0");
  run("ip addr add fd00:203::1/64 dev rdma0 nodad && ip addr add fd00:203::2/64 dev other0 nodad");
  std::vector<std::pair<std::string, std::string>> pairs = {{"192.0.2.1", "192.0.2.2"}, {"203.0.113.1", "203.0.113.2"}};
  if (std::string(getenv("UROCE_IO")) != "udp") {
    pairs.insert(pairs.end(), {{"fd00:192:0:2::1", "fd00:192:0:2::2"}, {"fd00:203::1", "fd00:203::2"}});
  }
  std::vector<std::unique_ptr<Side>> nears, fars;
  for (const auto& [near, far] : pairs) {
    nears.push_back(std::make_unique<Side>("rdma0"));
    fars.push_back(std::make_unique<Side>("other0"));
    ASSERT_EQ(nears.back()->connect(*fars.back(), near, far), 0) << near;
    ASSERT_EQ(fars.back()->connect(*nears.back(), far, near), 0) << far;
  }
  const auto expect_traffic = [&] {
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_EQ(nears[i]->write(*fars[i], static_cast<unsigned char>(i)), IBV_WC_SUCCESS) << pairs[i].first;
      EXPECT_EQ(fars[i]->write(*nears[i], static_cast<unsigned char>(i + 9)), IBV_WC_SUCCESS) << pairs[i].second;
    }
  };
  expect_traffic();
  // The kernel lists the latest IPv6 address first.
  run("ip addr add fd00:204::1/64 dev rdma0 nodad && ip addr add 198.51.100.9/24 dev rdma0");
  while (gid_index(nears[0]->context, "fd00:204::1") < 0) {
  }
  expect_traffic();
}

// --- a netdev that goes away -----------------------------------------------------------------------------------------

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

int open_links() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    count += std::filesystem::read_symlink(entry.path(), error).string().find("bpf") != std::string::npos;
  }
  return count;
}

TEST_P(Netdevs, MayGoAwayUnderTraffic) {
  if (!alone_with_io()) return;
  set_up_wire();
  {
    Side near("rdma0"), far("other0");
    ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
    ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
    std::atomic<bool> flowing{false};
    std::thread traffic([&] {
      while (near.write(far, 1) == IBV_WC_SUCCESS) flowing = true;
    });
    while (!flowing) std::this_thread::yield();
    EXPECT_EQ(open_links() > 0, std::string(getenv("UROCE_IO")) == "af_xdp");
    run("ip link del rdma0");  // takes other0 along
    traffic.join();            // the QP gives up
    for (Side* side : {&near, &far}) {
      ibv_async_event event;
      do {
        ASSERT_EQ(ibv_get_async_event(side->context, &event), 0);
        ibv_ack_async_event(&event);
      } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
    }
    EXPECT_EQ(open_links(), 0) << "nothing is left of what was attached";
    // Nobody spins: there is nothing to wait for. A second of idleness comes; on a busy machine not at once.
    double used = 1;
    for (int attempt = 0; attempt < 20 && used >= 0.2; ++attempt) {
      const double before = cpu_seconds();
      std::this_thread::sleep_for(std::chrono::seconds(1));
      used = cpu_seconds() - before;
    }
    EXPECT_LT(used, 0.2);
  }
  // The same names again are new devices, which work.
  run("ip link add rdma0 type veth peer name other0 && ip link set rdma0 up && ip link set other0 up");
  set_up_wire();
  Side near("rdma0"), far("other0");
  ASSERT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
  EXPECT_EQ(near.write(far, 9), IBV_WC_SUCCESS);
}

}  // namespace
