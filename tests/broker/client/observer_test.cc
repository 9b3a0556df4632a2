// SPDX-License-Identifier: BSD-2-Clause
// Who looks at the processes of a broker: whom it sees, and what processes that break the rules cost it.
#include "broker/client/observer.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <vector>

#include "base/bell.h"
#include "base/clock.h"
#include "base/concat.h"
#include "broker/client/link.h"
#include "tests/broker/client/answers.h"
#include "tests/broker/client/links.h"
#include "tests/broker/client/scripted_broker.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/server_rig.h"
#include "tests/held_files.h"
#include "tests/slow_socket.h"

namespace uroce::broker {
namespace {

std::string report_of(const std::string& device) {
  ProcessStatistics statistics;
  statistics.time = 1;
  statistics.devices.push_back({.name = device, .netdev = "e", .packet_io = "udp"});
  return format_statistics(statistics);
}

// A client that answers as it likes.
class RawProcess {
 public:
  explicit RawProcess(const std::string& address) {
    EXPECT_EQ(connect_to(address, socket_), 0);
    Message hello = make_message(Kind::kHello, "ra\x1b[2Jw");
    hello.network_namespace = own_network_namespace();
    Message welcome;
    Descriptors came;
    EXPECT_EQ(send(socket_.get(), hello), 0);
    EXPECT_EQ(receive(socket_.get(), welcome, came, 20'000), 0);
    EXPECT_EQ(welcome.kind, Kind::kWelcome);
    reports_ = std::move(came.front());
    EXPECT_TRUE(reports_);
  }
  struct Question {
    UniqueFd file, bell;
  };
  Question question() {
    Message question;
    Descriptors came;
    EXPECT_EQ(receive(reports_.get(), question, came, 20'000), 0);
    EXPECT_EQ(question.kind, Kind::kReport);
    return {std::move(came[0]), std::move(came[1])};
  }
  void answer(const std::string& text) {
    const Question asked = question();
    EXPECT_EQ(pwrite(asked.file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  int reports() const { return reports_.get(); }

 private:
  UniqueFd socket_, reports_;
};

class ObserverTest : public testing::Test {
 protected:
  std::optional<Observer> open() {
    auto opened = Observer::open(address_);
    if (auto* const error = std::get_if<io::IoError>(&opened)) ADD_FAILURE() << error->text();
    auto* const observer = std::get_if<Observer>(&opened);
    return observer == nullptr ? std::nullopt : std::optional<Observer>(std::move(*observer));
  }
  std::shared_ptr<Link> link(const std::string& device) {
    auto opened = Link::open(address_, [device](uint32_t) { return report_of(device); });
    return std::get<std::shared_ptr<Link>>(opened);
  }
  static std::vector<Process> look(Observer& observer, uint32_t most_qps = 0) {
    auto looked = observer.look(most_qps);
    if (auto* const error = std::get_if<io::IoError>(&looked)) ADD_FAILURE() << error->text();
    auto* const processes = std::get_if<std::vector<Process>>(&looked);
    return processes == nullptr ? std::vector<Process>() : *processes;
  }
  // While `answers` run in a thread.
  template <class F>
  std::vector<Process> look_while(F&& answers) {
    std::thread thread(answers);
    auto observer = open();
    std::vector<Process> processes = look(*observer);
    thread.join();
    return processes;
  }

  Kernel kernel_;
  const std::string address_ = unique_address();
};

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

TEST_F(ObserverTest, WhoDoesNotAnswerDelaysNobodyForLong) {
  RunningBroker broker(kernel_, address_);
  RawProcess silent(address_);
  const auto good = link("good");
  auto observer = open();
  const std::vector<Process> processes = look(*observer);
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].answer, Process::Answer::kNone);
  EXPECT_EQ(processes[0].program, "ra?[2Jw");
  EXPECT_EQ(processes[1].answer, Process::Answer::kWhole);
}

TEST_F(ObserverTest, WhoAnswersDropByDropIsNotWaitedForEither) {
  RunningBroker broker(kernel_, address_);
  RawProcess slow(address_);
  std::atomic<bool> looked{false};
  std::thread drops([&] {
    const RawProcess::Question asked = slow.question();
    for (off_t at = 0; !looked; ++at) {
      EXPECT_EQ(pwrite(asked.file.get(), "x", 1, at), 1);
      ring_bell(asked.bell.get());
    }
  });
  auto observer = open();
  const std::vector<Process> processes = look(*observer);
  looked = true;
  drops.join();
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].answer, Process::Answer::kNone);
}

// The last close() of what a process sends to who asks it would wait for a minute.
TEST_F(ObserverTest, NothingCanBeSentToWhoAsks) {
  RunningBroker broker(kernel_, address_);
  RawProcess hostile(address_);
  std::thread attack([&] {
    const RawProcess::Question asked = hostile.question();
    const int slow = test::slow_socket().release();  // nobody closes it
    EXPECT_EQ(send_message(asked.bell.get(), std::array<uint8_t, 1>{}, std::array{slow}), EPIPE);
    EXPECT_NE(send_message(asked.file.get(), std::array<uint8_t, 1>{}, std::array{slow}), 0);
  });
  auto observer = open();
  EXPECT_EQ(look(*observer).size(), 1u);
  attack.join();
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

TEST_F(ObserverTest, AnswersThatBreakTheRules) {
  RunningBroker broker(kernel_, address_);
  RawProcess nothing(address_), garbage(address_), cut(address_), flood(address_), good(address_);
  const std::vector<Process> processes = look_while([&] {
    nothing.question();
    garbage.answer(std::string(1000, '\0'));
    cut.answer(report_of("x").substr(0, 20));
    {
      const RawProcess::Question asked = flood.question();
      EXPECT_EQ(ftruncate(asked.file.get(), off_t{1} << 40), 0);
    }
    good.answer(report_of("good"));
  });
  ASSERT_EQ(processes.size(), 5u);
  using Answer = Process::Answer;
  const std::array expected{Answer::kNone, Answer::kBroken, Answer::kBroken, Answer::kBroken, Answer::kWhole};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(processes[i].answer, expected[i]) << i;
}

// By a process of its own for each user.
TEST_F(ObserverTest, AnswersOfOtherUsersAreReadApart) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for processes of other users";
  RunningBroker broker(kernel_, address_);
  std::vector<std::unique_ptr<RawProcess>> raw;
  for (const uid_t user : {kUser, kUser, kUser, kOtherUser, kOtherUser, kUser}) {
    as_user(user, [&] { raw.push_back(std::make_unique<RawProcess>(address_)); });
  }
  // Nothing is allocated while readers begin: one would wait for ever for a lock of a sanitizer's that was held then.
  const std::string first = report_of("first"), garbage = "garbage", large(100'000, 'x'), last = report_of("last");
  const std::vector<Process> processes = look_while([&] {
    raw[0]->answer(first);
    raw[1]->answer(garbage);
    raw[2]->question();
    raw[3]->answer(large);
    {
      const RawProcess::Question asked = raw[4]->question();
      EXPECT_EQ(ftruncate(asked.file.get(), off_t{1} << 40), 0);
    }
    raw[5]->answer(last);
  });
  ASSERT_EQ(processes.size(), 6u);
  using Answer = Process::Answer;
  const std::array expected{Answer::kWhole,  Answer::kBroken, Answer::kNone,
                            Answer::kBroken, Answer::kBroken, Answer::kWhole};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(processes[i].answer, expected[i]) << i;
  EXPECT_EQ(processes[0].statistics.devices[0].name, "first");
  EXPECT_EQ(processes[5].statistics.devices[0].name, "last");
}

// Through a broker: the user is not asked again.
TEST_F(ObserverTest, WhoseFilesCannotBeClosedIsNotAskedAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to hold files";
  std::optional<test::HeldFiles> held(4);
  const auto process = [&](uint64_t client, uid_t user, std::vector<UniqueFd> passed) {
    ScriptedBroker::Answer answer{make_message(Kind::kProcess, "p" + std::to_string(client))};
    answer.message.client = client;
    answer.message.uid = user;
    answer.passed = std::make_shared<std::vector<UniqueFd>>(std::move(passed));
    return answer;
  };
  const auto hostile = [&](uint64_t client) {
    std::vector<UniqueFd> passed;
    for (int i = 0; i < 2; ++i) passed.push_back(held->take());
    return process(client, kUser, std::move(passed));
  };
  const auto good = [&](uint64_t client) {
    Asked answer = answered(0, report_of("good"));
    std::vector<UniqueFd> passed;
    passed.push_back(std::move(answer.file));
    passed.push_back(std::move(answer.bell));
    return process(client, kOtherUser, std::move(passed));
  };
  const ScriptedBroker::Answer no_more{make_message(Kind::kNoMore)};
  std::deque<ScriptedBroker::Answer> answers{{make_message(Kind::kWelcome)}};
  for (auto& answer : {hostile(1), good(2), no_more}) answers.push_back(answer);
  for (auto& answer : {good(2), hostile(3), no_more}) answers.push_back(answer);
  for (auto& answer : {good(2), no_more}) answers.push_back(answer);
  const ScriptedBroker broker(address_, std::exchange(answers, {}));
  expect_not_held(held, [&] {
    auto observer = open();
    for (const size_t count : {2, 3, 3}) {
      const std::vector<Process> processes = look(*observer);
      ASSERT_EQ(processes.size(), count);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(processes[i].program, "p" + std::to_string(i + 1));
        EXPECT_EQ(processes[i].uid, i == 1 ? kOtherUser : kUser);
        EXPECT_EQ(processes[i].answer, i == 1 ? Process::Answer::kWhole : Process::Answer::kNone);
      }
    }
  });
  EXPECT_EQ(broker.answered(), 9u);
}

// One that asks and does not read keeps nobody from the next answer.
TEST_F(ObserverTest, WhoAsksAndDoesNotReadDelaysNobody) {
  RunningBroker broker(kernel_, address_);
  const auto asked = std::make_shared<std::atomic<uint32_t>>(0);  // the link outlives the test
  const auto opened = Link::open(address_, [asked](uint32_t most_qps) {
    *asked = most_qps;
    return most_qps == 0 ? report_of("short") : std::string(4 << 20, 'x');
  });
  UniqueFd rude;
  Message answer, next = make_message(Kind::kNext);
  next.most_qps = UINT32_MAX;
  Descriptors unread;
  ASSERT_EQ(connect_to(address_, rude), 0);
  for (const Message& message : {make_message(Kind::kLook), next}) {
    ASSERT_EQ(send(rude.get(), message), 0);
    ASSERT_EQ(receive(rude.get(), answer, unread, 20'000), 0);
  }
  ASSERT_TRUE(unread.front());
  EXPECT_TRUE(comes_true([&] { return *asked == kMostQps; })) << "more is not asked of anybody";
  auto observer = open();
  EXPECT_TRUE(comes_true([&] { return look(*observer)[0].answer == Process::Answer::kWhole; }));
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

// Its leases are not touched by what it is asked and does not read, and no descriptors pile up.
TEST_F(ObserverTest, QuestionsThatNobodyReadsAreBounded) {
  RunningBroker broker(kernel_, address_);
  RawProcess silent(address_);
  const auto good = link("good");
  auto observer = open();
  const UniqueFd stop(eventfd(1, EFD_CLOEXEC));
  for (int i = 0; i < 2000; ++i) observer->look(0, stop.get());
  int waiting = 0;
  Message message;
  Descriptors came;
  while (receive(silent.reports(), message, came, 0) == 0) ++waiting;
  EXPECT_LT(waiting, 20);
  EXPECT_EQ(look(*observer).size(), 2u);
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

TEST_F(ObserverTest, ClientsDoNotLook) {
  RunningBroker broker(kernel_, address_);
  UniqueFd socket;
  ASSERT_EQ(connect_to(address_, socket), 0);
  Message hello = make_message(Kind::kHello, "raw"), answer;
  hello.network_namespace = own_network_namespace();
  Descriptors came;
  ASSERT_EQ(send(socket.get(), hello), 0);
  ASSERT_EQ(receive(socket.get(), answer, came, 20'000), 0);
  ASSERT_EQ(send(socket.get(), make_message(Kind::kNext)), 0);
  EXPECT_EQ(receive(socket.get(), answer, came, 20'000), ECONNRESET);
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
