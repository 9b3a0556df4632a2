// SPDX-License-Identifier: BSD-2-Clause
// Who looks at the processes of a broker: whom it sees.
#include "broker/client/observer.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <vector>

#include "base/bell.h"
#include "base/concat.h"
#include "broker/client/link.h"
#include "tests/broker/client/answers.h"
#include "tests/broker/client/links.h"
#include "tests/broker/client/observer_rig.h"
#include "tests/broker/client/scripted_broker.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/server_rig.h"

namespace uroce::broker {
namespace {

TEST_F(ObserverTest, NoBroker) {
  const auto none = Observer::open(address_);
  ASSERT_TRUE(std::holds_alternative<io::IoError>(none));
  EXPECT_EQ(std::get<io::IoError>(none).code, ENOENT);
  EXPECT_NE(std::get<io::IoError>(none).text().find("uroce run"), std::string::npos);
}

TEST_F(ObserverTest, SeesAllClientsAndNoObservers) {
  RunningBroker broker(kernel_, address_);
  auto observer = open(), other = open();
  EXPECT_TRUE(look(*observer).empty());
  const auto a = link("one"), b = link("two");
  for (int i = 0; i < 3; ++i) {
    const std::vector<Process> processes = look(*observer);
    ASSERT_EQ(processes.size(), 2u);
    EXPECT_LT(processes[0].client, processes[1].client);
    for (const Process& process : processes) {
      EXPECT_EQ(process.pid, getpid());
      EXPECT_EQ(process.uid, getuid());
      EXPECT_EQ(process.program, std::string(program_invocation_short_name).substr(0, 15)) << "as the kernel has it";
      ASSERT_EQ(process.answer, Process::Answer::kWhole);
    }
    EXPECT_EQ(processes[0].statistics.devices[0].name, "one");
    EXPECT_EQ(processes[1].statistics.devices[0].name, "two");
  }
}

TEST_F(ObserverTest, ManyProcesses) {
  RunningBroker broker(kernel_, address_);
  std::vector<std::shared_ptr<Link>> links;
  for (int i = 0; i < 200; ++i) links.push_back(link("d" + std::to_string(i)));
  auto observer = open();
  const std::vector<Process> processes = look(*observer);
  ASSERT_EQ(processes.size(), 200u);
  for (const Process& process : processes) EXPECT_EQ(process.answer, Process::Answer::kWhole);
}

// `steps` in a process of its own, which may open so many files more and no others. It begins before `prepare` is
// called here, which may start threads: whatever those have locked would be locked there for ever.
template <class Prepare, class Steps>
void in_process_with_few_files(int more, Prepare&& prepare, Steps&& steps) {
  std::array<int, 2> prepared{};
  ASSERT_EQ(pipe2(prepared.data(), O_CLOEXEC), 0);
  const UniqueFd waits(prepared[0]);
  UniqueFd tells(prepared[1]);
  ASSERT_TRUE(comes_true(links_have_ended)) << "those of earlier tests may have locks, too";
  const pid_t child = fork();
  if (child == 0) {
    tells.reset();
    char end = 0;
    EXPECT_EQ(read(waits.get(), &end, 1), 0);
    const auto files = static_cast<rlim_t>(UniqueFd(eventfd(0, EFD_CLOEXEC)).get() + more);
    const rlimit limit{files, files};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    steps();
    std::fflush(stdout);  // what has failed
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const auto keeps = prepare();
  tells.reset();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ObserverTest, MoreProcessesThanFilesThatMayBeOpen) {
  RunningBroker broker(kernel_, address_);
  std::vector<std::shared_ptr<Link>> links;
  for (int i = 0; i < 100; ++i) links.push_back(link("d" + std::to_string(i)));
  auto observer = open();
  rlimit before{}, after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{static_cast<rlim_t>(UniqueFd(eventfd(0, EFD_CLOEXEC)).get() + 40), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const std::vector<Process> processes = look(*observer);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(after.rlim_cur, low.rlim_cur) << "whom it starts has the limit that was there";
  ASSERT_EQ(processes.size(), links.size());
  for (const Process& process : processes) EXPECT_EQ(process.answer, Process::Answer::kWhole);
}

TEST_F(ObserverTest, MoreProcessesThanFilesThatMayEverBeOpen) {
  constexpr size_t kProcesses = 100;
  struct Host {
    Host(Kernel& kernel, const std::string& address) : broker(kernel, address) {}
    RunningBroker broker;
    std::vector<std::shared_ptr<Link>> links;
  };
  const auto prepare = [&] {
    auto host = std::make_unique<Host>(kernel_, address_);
    for (size_t i = 0; i < kProcesses; ++i) host->links.push_back(link("d" + std::to_string(i)));
    return host;
  };
  in_process_with_few_files(150, prepare, [&] {
    auto observer = open();
    const std::vector<Process> processes = look(*observer);
    EXPECT_EQ(processes.size(), kProcesses);
    for (const Process& process : processes) EXPECT_EQ(process.answer, Process::Answer::kWhole);
  });
}

// The look goes on, and shows who is there.
TEST_F(ObserverTest, NoMoreFilesMayBeOpened) {
  const auto prepare = [&] {
    Message first = make_message(Kind::kProcess, "first"), second = make_message(Kind::kProcess, "second");
    first.client = 1;
    second.client = 2;
    return std::make_unique<ScriptedBroker>(
        address_, std::deque<ScriptedBroker::Answer>{
                      {make_message(Kind::kWelcome)}, {first, 2}, {second, 2}, {make_message(Kind::kNoMore)}});
  };
  in_process_with_few_files(2, prepare, [&] {  // one is for the connection
    auto observer = open();
    const std::vector<Process> processes = look(*observer);
    EXPECT_EQ(processes.size(), 2u);
    EXPECT_EQ(processes.back().program, "second");
    EXPECT_EQ(processes.back().answer, Process::Answer::kNone);
  });
}

TEST_F(ObserverTest, LongAnswersAndHowManyQpsAreWanted) {
  RunningBroker broker(kernel_, address_);
  const auto asked = std::make_shared<std::atomic<uint32_t>>(0);  // the link outlives the test
  const auto opened = Link::open(address_, [asked](uint32_t most_qps) {
    *asked = most_qps;
    ProcessStatistics statistics;
    statistics.devices.push_back({.name = "a", .netdev = "e", .packet_io = "udp"});
    statistics.devices[0].qps.assign(most_qps, {.qpn = 0xffffff, .type = "rc", .state = "rts", .peer = "192.0.2.1"});
    return format_statistics(statistics);
  });
  auto observer = open();
  const std::vector<Process> processes = look(*observer, UINT32_MAX);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(*asked, kMostQps);
  ASSERT_EQ(processes[0].answer, Process::Answer::kWhole);
  EXPECT_EQ(processes[0].statistics.devices[0].qps.size(), kMostQps);
}

TEST_F(ObserverTest, StopEndsTheWait) {
  RunningBroker broker(kernel_, address_);
  const RawProcess silent(address_);
  auto observer = open();
  const UniqueFd stop(eventfd(1, EFD_CLOEXEC));
  const auto looked = observer->look(0, stop.get());
  ASSERT_TRUE(std::holds_alternative<io::IoError>(looked));
  EXPECT_EQ(std::get<io::IoError>(looked).code, EINTR);
  EXPECT_EQ(look(*observer).size(), 1u) << "and it can look again";
}

// Root sees all of them, which the other tests rely on if they run as root.
TEST_F(ObserverTest, UsersSeeTheirOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  RunningBroker broker(kernel_, address_);
  const auto of_root = link("root");
  std::vector<Process> seen;
  std::thread([&] {
    // Of this thread only, which glibc's call would not be.
    ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
    RawProcess own(address_);
    std::thread answers([&] { own.answer(report_of("own")); });
    auto observer = open();
    seen = look(*observer);
    answers.join();
  }).join();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].uid, 65534u);
  EXPECT_EQ(seen[0].answer, Process::Answer::kWhole);
}

TEST_F(ObserverTest, WhoLooksGetsNoLeaseAndKeepsNoBroker) {
  RunningBroker broker(kernel_, address_, {.owner = geteuid(), .group = {}, .linger = std::chrono::milliseconds(300)});
  UniqueFd socket;
  ASSERT_EQ(connect_to(address_, socket), 0);
  Message answer;
  Descriptors none;
  ASSERT_EQ(send(socket.get(), make_message(Kind::kLook)), 0);
  ASSERT_EQ(receive(socket.get(), answer, none, 20'000), 0);
  EXPECT_EQ(answer.kind, Kind::kWelcome);
  EXPECT_FALSE(none.front());
  Message lease = make_message(Kind::kLease, "eth");
  lease.ifindex = 1;
  send(socket.get(), lease);
  EXPECT_EQ(receive(socket.get(), answer, none, 20'000), ECONNRESET);
  auto observer = open();
  EXPECT_TRUE(comes_true([&] { return broker.ended(); }));
  auto looked = observer->look(0);
  EXPECT_TRUE(std::holds_alternative<io::IoError>(looked));
}

// As `uroce run --alone` does until the broker has ended.
TEST_F(ObserverTest, WhoLooksAgainAndAgainKeepsNoBroker) {
  RunningBroker broker(kernel_, address_, {.owner = geteuid(), .group = {}, .linger = std::chrono::milliseconds(300)});
  EXPECT_TRUE(comes_true([&] {
    auto opened = Observer::open(address_);
    if (auto* const observer = std::get_if<Observer>(&opened)) observer->look(0);
    return broker.ended();
  }));
}

TEST_F(ObserverTest, SaysWhatABrokerOfAnotherVersionSays) {
  const ScriptedBroker broker(address_, {{refusal_of_version(kProtocolVersion + 1)}});
  const auto opened = Observer::open(address_);
  const auto* const error = std::get_if<io::IoError>(&opened);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, ENOTSUP);
  EXPECT_EQ(error->what, concat("the broker refuses: it speaks version ", kProtocolVersion + 1,
                                " and this program version ", kProtocolVersion, ": install the same uroce for both"));
}

}  // namespace
}  // namespace uroce::broker
