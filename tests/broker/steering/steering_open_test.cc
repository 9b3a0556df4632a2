// SPDX-License-Identifier: BSD-2-Clause
// Which kind of steering a process gets, and what it is told when the port is taken.
#include <array>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "broker/steering/cgroup.h"
#include "broker/steering/holders.h"
#include "broker/steering/pool.h"
#include "broker/steering/steering.h"
#include "engine/io/udp/socket.h"
#include "tests/broker/server/children.h"
#include "tests/broker/steering/port_lab.h"

namespace uroce::broker::test {
namespace {

using io::test::VethPair;
using testing::AllOf;
using testing::HasSubstr;

class OpenSteering : public testing::Test {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    lab_ = std::make_unique<PortLab>();
  }
  std::unique_ptr<PortLab> lab_;
};

std::string error_of(io::IoResult<Steering> result) {
  const auto* const error = std::get_if<io::IoError>(&result);
  return error != nullptr ? error->text() : "";
}

void become_nobody() {
  constexpr uid_t kNobody = 65534;
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0)
    _exit(99);
}

// In a process of its own: 0 if all was as it should be, else the number of the step.
int in_a_child(const std::function<int()>& steps) {
  const pid_t process = fork();
  if (process == 0) _exit(steps());
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

TEST_F(OpenSteering, IsolatesClientsWithPrivileges) {
  auto result = Steering::open();
  ASSERT_EQ(error_of(std::move(result)), "");
  result = Steering::open();
  const auto& steering = std::get<std::unique_ptr<Steering>>(result);
  EXPECT_TRUE(steering->isolates()) << steering->isolation_obstacle();
  EXPECT_FALSE(steering->inherits());
  EXPECT_EQ(steering->last_number(), 1022u);
}

TEST_F(OpenSteering, ServesOneUserWithoutPrivileges) {
  EXPECT_EQ(in_a_child([&] {
              become_nobody();
              auto result = Steering::open();
              if (std::holds_alternative<io::IoError>(result)) return 1;
              const auto& steering = std::get<std::unique_ptr<Steering>>(result);
              if (steering->isolates() || steering->isolation_obstacle().empty() || steering->inherits()) return 2;
              if (steering->start() || steering->last_number() != 256) return 3;
              const PortSockets first = admit(*steering, 256), second = admit(*steering, 1);
              if (!first.v4 || !first.v6 || !first.kept || !second.v4) return 4;
              return 0;
            }),
            0);
}

// `ip netns exec` and containers hide the cgroups of the system.
bool hide_cgroups() {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return umount2("/sys", MNT_DETACH) == 0;
}

bool set_capability(int capability, bool effective) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets;
  if (syscall(SYS_capget, &header, sets.data()) != 0) return false;
  uint32_t& word = sets[CAP_TO_INDEX(capability)].effective;
  word = effective ? word | CAP_TO_MASK(capability) : word & ~CAP_TO_MASK(capability);
  return syscall(SYS_capset, &header, sets.data()) == 0;
}

TEST_F(OpenSteering, MountsCgroupsForItself) {
  EXPECT_EQ(in_a_child([&] {
              if (!hide_cgroups()) return 1;
              auto result = Steering::open();
              if (std::holds_alternative<io::IoError>(result)) return 2;
              const auto& steering = std::get<std::unique_ptr<Steering>>(result);
              if (!steering->isolates() || steering->start()) return 3;
              const PortSockets client = admit(*steering, 1);
              lab_->send(AF_INET6, 0x4000);
              return receive(client.v6.get()) == Arrived{0x4000, 1} ? 0 : 4;
            }),
            0);
}

// Steering does without cgroup v2, isolation does not.
TEST_F(OpenSteering, DoesNotIsolateWithoutCgroups) {
  EXPECT_EQ(in_a_child([&] {
              if (!hide_cgroups()) return 1;
              if (!set_capability(CAP_SYS_ADMIN, false)) return 2;
              auto result = Steering::open();
              if (std::holds_alternative<io::IoError>(result)) return 3;
              const auto& steering = std::get<std::unique_ptr<Steering>>(result);
              if (steering->isolation_obstacle() != "cgroup v2 is not mounted, and mounting it is not permitted" ||
                  steering->start()) {
                return 4;
              }
              set_capability(CAP_SYS_ADMIN, true);  // for the lab
              const PortSockets client = admit(*steering, 1);
              lab_->send(AF_INET6, 0x4000);
              return receive(client.v6.get()) == Arrived{0x4000, 1} ? 0 : 5;
            }),
            0);
}

bool move_to_cgroup(const std::string& directory, const std::string& process = "0") {
  const UniqueFd file(open((directory + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), process.data(), process.size()) == static_cast<ssize_t>(process.size());
}

// A cgroup for the time of a test, below that of the process, which is back in that then.
class OwnCgroup {
 public:
  explicit OwnCgroup(const std::string& name) : above_(own_cgroup()), path_(above_ + "/" + name) {
    if (mkdir(path_.c_str(), 0755) != 0) path_.clear();
  }
  ~OwnCgroup() {
    move_to_cgroup(above_);
    rmdir(path_.c_str());
  }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  const std::string& above() const { return above_; }
  const std::string& path() const { return path_; }

 private:
  const std::string above_;
  std::string path_;
};

// As in a terminal under user@1000.service, where the user has the cgroups above that of `sudo uroced`, too.
TEST_F(OpenSteering, MakesSocketsInCgroupsThatOnlyRootChanges) {
  constexpr uid_t kUser = 65534;
  EXPECT_EQ(in_a_child([&] {
              const OwnCgroup base("uroce-test-" + std::to_string(getpid()));  // beside other brokers
              if (!move_to_cgroup(base.path()) || own_cgroup() != base.path()) return 1;
              const OwnCgroup outer("outer");
              if (!move_to_cgroup(outer.path()) || own_cgroup() != outer.path()) return 1;
              const OwnCgroup inner("inner");
              if (!move_to_cgroup(inner.path()) || own_cgroup() != inner.path()) return 2;
              for (const std::string& file : {outer.path(), outer.path() + "/cgroup.procs"}) {
                if (chown(file.c_str(), kUser, kUser) != 0 || own_cgroup() != outer.above()) return 3;
                if (chown(file.c_str(), 0, 0) != 0 || own_cgroup() != inner.path()) return 4;
                if (chmod(file.c_str(), 0777) != 0 || own_cgroup() != outer.above()) return 5;
                if (chmod(file.c_str(), 0755) != 0 || own_cgroup() != inner.path()) return 6;
              }
              if (chown(outer.path().c_str(), kUser, kUser) != 0) return 7;
              {
                auto result = Steering::open();
                if (std::holds_alternative<io::IoError>(result)) return 8;
                const auto& steering = std::get<std::unique_ptr<Steering>>(result);
                if (!steering->isolates() || steering->start()) return 9;
                const PortSockets client = admit(*steering, 1);
                lab_->send(AF_INET6, 0x4000);
                if (receive(client.v6.get()) != Arrived{0x4000, 1}) return 10;
              }
              // Nothing of it is left, there or below.
              for (const std::string& parent : {base.path(), outer.path(), inner.path()}) {
                for (const auto& entry : std::filesystem::directory_iterator(parent)) {
                  if (entry.path().filename().string().rfind("uroce-sockets-", 0) == 0) return 11;
                }
              }
              return 0;
            }),
            0);
}

// Whether the child that makes them is moved out at any moment, or never, or too late.
TEST_F(OpenSteering, GivesOutNoSocketsThatAreNotHeld) {
  EXPECT_EQ(in_a_child([] {
              const OwnCgroup base("uroce-test-" + std::to_string(getpid()));  // beside other brokers
              if (!move_to_cgroup(base.path())) return 3;
              const std::string parent = own_cgroup(), prefix = "uroce-sockets-";
              SocketPool pool(true);
              if (!pool.obstacle().empty()) return 1;
              // A process: who forks beside a thread that is in ASan's allocator has a child that waits for ever.
              const pid_t mover = fork();
              if (mover == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
              while (mover == 0) {
                for (const auto& entry : std::filesystem::directory_iterator(parent)) {
                  const std::string name = entry.path().filename();
                  if (name.rfind(prefix, 0) == 0) move_to_cgroup(parent, name.substr(prefix.size()));
                }
              }
              std::string wrong;
              for (int i = 0; i < 400 && wrong.empty(); ++i) {
                const auto result = pool.take();
                if (const auto* const error = std::get_if<io::IoError>(&result)) {
                  const bool is_late = error->code == ETIMEDOUT;  // on a busy machine
                  if (!is_late && error->what.find("do not hold sockets") == std::string::npos) wrong = error->text();
                  continue;
                }
                const auto& sockets = std::get<PortSockets>(result);
                for (const int fd : {sockets.v4.get(), sockets.v6.get()}) {
                  const int value = 0;
                  if (setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, sizeof value) == 0) wrong = "not held";
                }
              }
              kill(mover, SIGKILL);
              waitpid(mover, nullptr, 0);
              if (wrong.empty()) return 0;
              std::fprintf(stderr, "%s\n", wrong.c_str());
              return 2;
            }),
            0);
}

// Somebody may keep the cgroups' directory locked: the child waits there, and all clients would wait with it.
TEST_F(OpenSteering, AMakerThatHangsIsWaitedForOnce) {
  EXPECT_EQ(in_a_child([] {
              static bool hangs = false;
              if (pthread_atfork(nullptr, nullptr, [] { static_cast<void>(hangs && raise(SIGSTOP) != 0); }) != 0)
                return 1;
              SocketPool pool(true);
              if (!pool.obstacle().empty()) return 2;
              hangs = true;
              const auto error = [&pool] {
                const auto result = pool.take();
                const auto* const failure = std::get_if<io::IoError>(&result);
                return failure == nullptr ? 0 : failure->code;
              };
              const auto how_long = [&error](int times, int& code) {
                const Time begin = monotonic_now();
                for (int i = 0; i < times; ++i) code = error();
                return monotonic_now() - begin;
              };
              int code = 0;
              Duration once{};
              while (code == 0) once = how_long(1, code);
              if (code != ETIMEDOUT) return 3;
              // The machine may be away for a while, but not each time.
              bool waits = true;
              for (int i = 0; waits && i < 5; ++i) waits = how_long(5, code) >= once;
              if (code != ETIMEDOUT) return 4;
              const pid_t maker = children_in_order().back();
              if (kill(maker, SIGCONT) != 0) return 5;
              for (const Time end = monotonic_now() + std::chrono::seconds(20); code != 0 && monotonic_now() < end;) {
                usleep(10'000);
                code = error();
              }
              if (code != 0) kill(maker, SIGKILL);
              if (code != 0) return 6;
              return waits ? 7 : 0;
            }),
            0);
}

TEST_F(OpenSteering, RemovesCgroupsThatWereLeft) {
  const std::string left = own_cgroup() + "/uroce-sockets-999999999";
  ASSERT_EQ(mkdir(left.c_str(), 0755), 0);
  EXPECT_EQ(error_of(Steering::open()), "");
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(OpenSteering, SaysWhichProcessHasThePortWithoutBroker) {
  for (const int family : {AF_INET, AF_INET6}) {
    io::UdpSocket alone;
    ASSERT_FALSE(alone.open(family, "vb"));
    EXPECT_THAT(error_of(Steering::open()), AllOf(HasSubstr("process " + std::to_string(getpid()) + " ("),
                                                  HasSubstr("netdev vb without a broker")));
  }
  EXPECT_EQ(error_of(Steering::open()), "");
}

TEST_F(OpenSteering, SaysWhoseBrokerHasThePort) {
  auto own = Steering::open();
  ASSERT_FALSE(std::get<std::unique_ptr<Steering>>(own)->start());
  EXPECT_EQ(in_a_child([&] {
              close_range(3, ~0u, 0);  // the socket is not its own
              become_nobody();
              const std::string error = error_of(Steering::open());
              return error.find("user 0") != std::string::npos && error.find("ss -lunp") != std::string::npos ? 0 : 1;
            }),
            0);
}

// A socket of this user that is in no group, on all netdevs.
TEST_F(OpenSteering, SaysWhoElseHasThePort) {
  const UniqueFd holder(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(4791);
  ASSERT_EQ(bind(holder.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
  EXPECT_THAT(error_of(Steering::open()), HasSubstr("process " + std::to_string(getpid()) + " ("));
}

TEST_F(OpenSteering, NoticesClientsOfAnEarlierBroker) {
  BrokerProcess broker(*lab_, Kind::kMap, {1});
  const PortSockets client = broker.take(0);
  broker.kill();
  const auto result = Steering::open();
  ASSERT_TRUE(std::holds_alternative<std::unique_ptr<Steering>>(result));
  EXPECT_TRUE(std::get<std::unique_ptr<Steering>>(result)->inherits());
}

TEST(PortTaken, ByTheKernel) {
  const PortHolder kernel{.inode = 0, .uid = 0, .ifindex = 0};
  EXPECT_THAT(port_taken({&kernel, 1}).text(), HasSubstr("modprobe -r rdma_rxe"));
}

TEST(PortTaken, ByMany) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat status {};
  ASSERT_EQ(fstat(socket.get(), &status), 0);
  std::vector<PortHolder> holders;
  for (uint32_t none = 0; none < 100'000; ++none)
    holders.push_back({.inode = UINT32_MAX - none, .uid = 1, .ifindex = 0});
  holders.push_back({.inode = static_cast<uint32_t>(status.st_ino), .uid = geteuid(), .ifindex = 0});
  EXPECT_THAT(port_taken(holders).text(), HasSubstr("process " + std::to_string(getpid()) + " ("));
}

}  // namespace
}  // namespace uroce::broker::test
