// SPDX-License-Identifier: BSD-2-Clause
// Who looks at processes that break the rules: what they cost him, and what he costs his broker if he breaks them.
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <sys/eventfd.h>
#include <vector>

#include "base/bell.h"
#include "broker/client/link.h"
#include "broker/client/observer.h"
#include "tests/broker/client/answers.h"
#include "tests/broker/client/observer_rig.h"
#include "tests/broker/client/scripted_broker.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/server_rig.h"
#include "tests/held_files.h"
#include "tests/slow_socket.h"

namespace uroce::broker {
namespace {

class HostileProcesses : public ObserverTest {};

TEST_F(HostileProcesses, WhoDoesNotAnswerDelaysNobodyForLong) {
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

TEST_F(HostileProcesses, WhoAnswersDropByDropIsNotWaitedForEither) {
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
TEST_F(HostileProcesses, NothingCanBeSentToWhoAsks) {
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

TEST_F(HostileProcesses, AnswersThatBreakTheRules) {
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
TEST_F(HostileProcesses, AnswersOfOtherUsersAreReadApart) {
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
TEST_F(HostileProcesses, WhoseFilesCannotBeClosedIsNotAskedAgain) {
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
TEST_F(HostileProcesses, WhoAsksAndDoesNotReadDelaysNobody) {
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

// Its leases are not touched by what it is asked and does not read, and no descriptors pile up.
TEST_F(HostileProcesses, QuestionsThatNobodyReadsAreBounded) {
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

TEST_F(HostileProcesses, ClientsDoNotLook) {
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

}  // namespace
}  // namespace uroce::broker
