// SPDX-License-Identifier: BSD-2-Clause
// The open file: readiness, order and counts of events, threads that wait, copies of the descriptor.
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "lab.h"

namespace uroce::rdma_cm::test {
namespace {

using abi::EventKind;
using wire::PortSpace;

struct File : testing::Test {
  // One event for the client.
  uint32_t resolve(Client& client) {
    const uint32_t id = client.create(PortSpace::kTcp);
    EXPECT_EQ(client.resolve(id, sockaddr_of("192.0.2.2", 1)), 0);
    return id;
  }
  Pair pair;
};

TEST_F(File, ReadableAsLongAsEventsWait) {
  EXPECT_FALSE(pair.a.readable());
  resolve(pair.a);
  resolve(pair.a);
  EXPECT_TRUE(pair.a.readable());
  pair.a.next();
  EXPECT_TRUE(pair.a.readable());
  pair.a.next();
  EXPECT_FALSE(pair.a.readable());
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pair.a.fd(), &set);
  timeval now{};
  EXPECT_EQ(select(pair.a.fd() + 1, &set, nullptr, nullptr, &now), 0);
}

TEST_F(File, EventsComeInOrder) {
  std::vector<uint32_t> ids;
  for (int i = 0; i < 400; ++i) ids.push_back(resolve(pair.a));  // more than a socket has room for bytes
  for (const uint32_t id : ids) ASSERT_EQ(pair.a.expect(EventKind::kAddrResolved).id, id);
  EXPECT_FALSE(pair.a.readable());
}

TEST_F(File, NonBlockingSaysEagain) {
  ASSERT_EQ(fcntl(pair.a.fd(), F_SETFL, O_NONBLOCK), 0);
  abi::Event event{};
  EXPECT_EQ(pair.a.get_event(event), EAGAIN);
  resolve(pair.a);
  EXPECT_EQ(pair.a.get_event(event), 0);
  EXPECT_EQ(pair.a.get_event(event), EAGAIN);
}

TEST_F(File, EachEventIsAnEdge) {
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event interest{};
  interest.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair.a.fd(), &interest), 0);
  epoll_event ready{};
  EXPECT_EQ(epoll_wait(epoll.get(), &ready, 1, 0), 0);
  resolve(pair.a);
  EXPECT_EQ(epoll_wait(epoll.get(), &ready, 1, 0), 1);
  EXPECT_EQ(epoll_wait(epoll.get(), &ready, 1, 0), 0);
  resolve(pair.a);
  EXPECT_EQ(epoll_wait(epoll.get(), &ready, 1, 0), 1) << "though the first has not been read";
  pair.a.next();
  pair.a.next();
  resolve(pair.a);
  EXPECT_EQ(epoll_wait(epoll.get(), &ready, 1, 0), 1);
}

TEST_F(File, DestroyingTakesWaitingEventsAway) {
  const uint32_t gone = resolve(pair.a), stays = resolve(pair.a);
  uint32_t reported = 1;
  ASSERT_EQ(pair.a.destroy(gone, &reported), 0);
  EXPECT_EQ(reported, 0u);
  EXPECT_EQ(pair.a.expect(EventKind::kAddrResolved).id, stays);
  const uint32_t last = resolve(pair.a);
  ASSERT_EQ(pair.a.destroy(last), 0);
  EXPECT_FALSE(pair.a.readable());
}

TEST_F(File, MigrationTakesEventsAlong) {
  Client other(pair.host_a.manager());
  const uint32_t first = resolve(pair.a), second = resolve(pair.a);
  pair.a.next();
  uint32_t reported = 0;
  ASSERT_EQ(other.migrate(pair.a, first, &reported), 0);
  EXPECT_EQ(reported, 1u);
  ASSERT_EQ(other.migrate(pair.a, second, &reported), 0);
  EXPECT_EQ(reported, 0u);
  EXPECT_FALSE(pair.a.readable());
  EXPECT_EQ(other.expect(EventKind::kAddrResolved).id, second);
  EXPECT_EQ(pair.a.destroy(second), EINVAL);
  const abi::MigrateId nothing{0, second, 4711};
  EXPECT_EQ(other.command(abi::Command::kMigrateId, nothing, 4), ENOENT);
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const abi::MigrateId foreign{0, second, static_cast<uint32_t>(file.get())};
  EXPECT_EQ(other.command(abi::Command::kMigrateId, foreign, 4), EINVAL);
}

TEST_F(File, AThreadThatWaitsIsWoken) {
  abi::Event event{};
  std::thread waiter([&] { EXPECT_EQ(pair.a.get_event(event), 0); });
  const uint32_t id = resolve(pair.a);
  waiter.join();
  EXPECT_EQ(event.id, id);
}

TEST_F(File, AThreadThatWaitsCanBeCancelled) {
  pthread_t thread{};
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void* client) -> void* {
                  abi::Event event{};
                  static_cast<Client*>(client)->get_event(event);
                  return nullptr;
                },
                &pair.a),
            0);
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  resolve(pair.a);
  pair.a.next();
}

TEST_F(File, IdsAreDestroyedWhileAnotherThreadWaits) {
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  abi::Event event{};
  std::thread waiter([&] { EXPECT_EQ(pair.a.get_event(event), 0); });
  EXPECT_EQ(pair.a.destroy(id), 0);
  resolve(pair.a);
  waiter.join();
}

TEST_F(File, ADuplicateIsTheSameFile) {
  const UniqueFd copy(dup(pair.a.fd()));
  const auto identity = Identity::of(copy.get());
  EXPECT_EQ(identity, Identity::of(pair.a.fd()));
  resolve(pair.a);
  pair.a.close();
  EXPECT_EQ(pair.host_a.manager().ids(), 1u) << "somebody still has it";
  const abi::Header header{static_cast<uint32_t>(abi::Command::kGetEvent), 8, sizeof(abi::Event)};
  abi::Event event{};
  std::array<uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), &header, sizeof(header));
  const uint64_t to = reinterpret_cast<uintptr_t>(&event);
  std::memcpy(&bytes[8], &to, sizeof(to));
  EXPECT_EQ(pair.host_a.manager().write(*identity, copy.get(), bytes), 16);
}

TEST_F(File, ItsEndIsNoticedWithoutAHookToo) {
  Client client(pair.host_a.manager());
  client.create(PortSpace::kTcp);
  EXPECT_EQ(pair.host_a.manager().channels(), 2u);
  close(dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), client.fd()));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pair.host_a.manager().ids() != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(pair.host_a.manager().ids(), 0u);
}

TEST_F(File, AChildKeepsItOpen) {
  pair.a.create(PortSpace::kTcp);
  std::array<int, 2> gate{};
  ASSERT_EQ(pipe(gate.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    ::close(gate[1]);
    _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(gate[0]);
  pair.a.close();
  EXPECT_EQ(pair.host_a.manager().ids(), 1u);
  ::close(gate[1]);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pair.host_a.manager().ids() != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(pair.host_a.manager().ids(), 0u);
}

// Threads that do everything at once, for the sanitizers.
TEST_F(File, ManyThreads) {
  uint16_t port = 0;
  pair.listen(port);
  std::atomic<bool> done{false};
  std::atomic<uint32_t> next_qpn{10};  // a second connection of a QP is refused
  std::thread server([&] {
    ASSERT_EQ(fcntl(pair.b.fd(), F_SETFL, O_NONBLOCK), 0);
    while (!done) {
      abi::Event event{};
      if (!pair.b.readable(10) || pair.b.get_event(event) != 0) continue;
      if (event.event == static_cast<uint32_t>(EventKind::kConnectRequest)) pair.b.accept(event.id, 1, next_qpn++);
      if (event.event == static_cast<uint32_t>(EventKind::kDisconnected)) pair.b.destroy(event.id);
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int round = 0; round < 25; ++round) {
        Client client(pair.host_a.manager());
        const uint32_t id = client.create(PortSpace::kTcp);
        ASSERT_EQ(client.resolve(id, sockaddr_of("192.0.2.2", port)), 0);
        client.expect(EventKind::kAddrResolved);
        ASSERT_EQ(client.resolve_route(id), 0);
        client.expect(EventKind::kRouteResolved);
        ASSERT_EQ(client.connect(id, next_qpn++), 0);
        client.expect(EventKind::kConnectResponse);
        ASSERT_EQ(client.confirm(id), 0);
        if (round % 3 == 0) continue;  // closes the file
        ASSERT_EQ(client.destroy(id), 0);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  done = true;
  server.join();
  EXPECT_EQ(pair.host_a.manager().channels(), 1u);
}

}  // namespace
}  // namespace uroce::rdma_cm::test
