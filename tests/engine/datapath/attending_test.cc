// SPDX-License-Identifier: BSD-2-Clause
// Programs that poll sets in which packets show: who serves them, whatever threads, sets and set-ups there are. Meant
// for ThreadSanitizer as well.
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/engine/datapath/progress_rig.h"

namespace uroce::engine::test {
namespace {

// As a completion channel: an epoll set with an eventfd in it.
class PolledChannel final : public queue::CompletionNotifier {
 public:
  explicit PolledChannel(Engine& engine) : engine_(engine) {
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(fd, EPOLL_CTL_ADD, events_, &event), 0);
    set_ = std::make_shared<PollSet>(fd, events_);
    while (!set_->is_used()) set_->note_event();
  }
  ~PolledChannel() {
    engine_.release_packets(*set_);
    close(fd);
    close(events_);
  }
  void on_completion(CompletionQueue&) override {
    const uint64_t one = 1;
    EXPECT_EQ(write(events_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  bool attends() { return engine_.claim_packets(set_); }
  // As ibv_get_cq_event does where it does not block.
  bool take_event() {
    if (take()) return true;
    if (!attends()) return false;
    engine_.serve_stream(
        [](const std::function<void()>& rounds) {
          rounds();
          return false;
        },
        true);
    engine_.leave(set_, true);
    return take();
  }
  // As ibv_req_notify_cq does.
  void arm(CompletionQueue& cq) {
    cq.arm(CompletionQueue::Arm::kAny);
    if (attends()) engine_.leave(set_, false);
  }
  bool readable(int ms) const {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, ms) == 1;
  }
  const int fd = epoll_create1(EPOLL_CLOEXEC);

 private:
  bool take() const {
    uint64_t count;
    return read(events_, &count, sizeof(count)) == static_cast<ssize_t>(sizeof(count));
  }

  Engine& engine_;
  const int events_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::shared_ptr<PollSet> set_;
};

class Attending : public testing::Test {
 protected:
  struct Server {
    explicit Server(Engine& engine) : channel(engine), connection(engine, {.waiter = &channel}) {}
    PolledChannel channel;
    Connection connection;
  };
  // A message from a to b, by a thread that does not poll.
  void send(Connection& on, uint64_t id) {
    const queue::Sge sge = buffer.sge(id % 8);
    ASSERT_TRUE(Engine::receive_queue(*on.b).post(id, {&sge, 1}));
    ASSERT_TRUE(on.send(*on.a, id));
  }
  static int drain(CompletionQueue& cq) {
    return static_cast<int>(cq.poll(16, [](const Cqe& cqe) { EXPECT_EQ(cqe.status, WcStatus::kSuccess); }));
  }
  // Until `count` messages have come, or for long.
  static int take_messages(Server& server, int count) {
    int taken = 0;
    while (taken < count && server.channel.readable(20'000)) {
      if (!server.channel.take_event()) continue;
      server.channel.arm(server.connection.cq_b);
      taken += drain(server.connection.cq_b);
    }
    return taken;
  }

  std::atomic<int> rounds_of_program{0}, preparations_of_program{0};
  std::thread::id program;
  std::function<void()> in_next_round;  // of the program's
  std::shared_ptr<Engine> engine = make_engine(with_hook(
      [this](auto) {
        if (std::this_thread::get_id() != program) return;
        ++rounds_of_program;
        if (in_next_round) std::exchange(in_next_round, {})();
      },
      [this] { preparations_of_program += std::this_thread::get_id() == program ? 1 : 0; }));
  Buffer buffer{*engine};
};

TEST_F(Attending, TheProgramRunsTheRounds) {
  Server server(*engine);
  program = std::this_thread::get_id();
  server.channel.arm(server.connection.cq_b);
  for (uint64_t i = 0; i < 200; ++i) {
    send(server.connection, i);
    ASSERT_EQ(take_messages(server, 1), 1) << i;
    drain(server.connection.cq_a);
  }
  EXPECT_GT(rounds_of_program, 0);
}

// What a thread posts that does not come again is not left to a program that may sleep.
TEST_F(Attending, PostsOfOthersReachAProgramThatSleeps) {
  Server server(*engine);
  server.channel.arm(server.connection.cq_b);
  for (uint64_t i = 0; i < 100; ++i) {
    std::thread([&] { send(server.connection, i); }).join();
    ASSERT_EQ(take_messages(server, 1), 1) << i;
    drain(server.connection.cq_a);
  }
}

// Nobody else has to be woken for it.
TEST_F(Attending, WhoFindsARoundUnderWayIsMadeReadyToSleepByItsThread) {
  Server server(*engine);
  server.channel.arm(server.connection.cq_b);
  program = std::this_thread::get_id();
  int rounds = 0;
  // The background thread may be at it, and takes it over then.
  EXPECT_TRUE(eventually([&] {
    rounds = INT_MAX;
    in_next_round = [&] {
      std::thread([&] { server.channel.arm(server.connection.cq_b); }).join();
      rounds = rounds_of_program;
    };
    engine->progress();
    return preparations_of_program > 0 && rounds_of_program > rounds;  // with what may have come meanwhile
  }));
  in_next_round = {};  // which refers to what is gone after this
}

// Each with its channel, which ends and comes anew, while there are set-ups.
TEST_F(Attending, SetsOfSeveralThreadsComeAndGo) {
  constexpr int kThreads = 3, kTurns = 10, kMessages = 20;
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        Server server(*engine);
        server.channel.arm(server.connection.cq_b);
        for (uint64_t i = 0; i < kMessages; ++i) {
          send(server.connection, i);
          ASSERT_EQ(take_messages(server, 1), 1);
          drain(server.connection.cq_a);
        }
      }
      ++ended;
    });
  }
  EXPECT_TRUE(eventually([&] { return ended == kThreads; })) << ended << " threads have ended";
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Attending, ASetThatIsAnotherFileByNowGetsNothing) {
  Server server(*engine);
  const int other = epoll_create1(EPOLL_CLOEXEC), kept = dup(server.channel.fd);
  ASSERT_EQ(dup2(other, server.channel.fd), server.channel.fd);
  EXPECT_FALSE(server.channel.attends());
  ASSERT_EQ(dup2(kept, server.channel.fd), server.channel.fd);
  EXPECT_TRUE(server.channel.attends());
  close(other);
  close(kept);
}

}  // namespace
}  // namespace uroce::engine::test
