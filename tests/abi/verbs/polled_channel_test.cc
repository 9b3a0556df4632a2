// SPDX-License-Identifier: BSD-2-Clause
// Completion channels whose descriptor the program polls: packets and events that come through the packet I/O, and what
// else a program may do with such a descriptor. The ways to wait for it are in tests/e2e/channel_waits.py.
#include "polled_channel.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fixture.h"

namespace {

INSTANTIATE_TEST_SUITE_P(Io, PolledChannel, testing::Values("udp", "af_xdp"),
                         [](const auto& io) { return std::string(io.param); });

TEST_P(PolledChannel, ThatBlocksTellsOfEventsOnly) {
  if (!alone_with_io()) return;
  Pair pair;
  arm(pair.far);
  for (int i = 0; i < 200; ++i) {
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    ASSERT_FALSE(readable(pair.far.channel->fd)) << i;
    wait_for_completion(pair.near);
    ASSERT_FALSE(readable(pair.far.channel->fd)) << i;
  }
  pair.send();
  EXPECT_TRUE(readable(pair.far.channel->fd, kLong));
  EXPECT_EQ(get_event(pair.far), 0);
}

// Packets for which there is no completion: the call that moves them gets an event of an empty queue. Now and then the
// background thread is faster.
TEST_P(PolledChannel, TellsOfPackets) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  int told = 0;
  const auto limit = std::chrono::steady_clock::now() + milliseconds(kLong);
  for (int i = 0; i < 200 || told < 20; ++i) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "told of " << told << " in " << i;
    arm(pair.far);  // nothing need be told to a program that is not there
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    if (readable(pair.far.channel->fd, 1)) {
      ++told;
      ASSERT_EQ(get_event(pair.far), 0) << "EAGAIN behind a readable descriptor";
      arm(pair.far);
      ASSERT_EQ(drain(pair.far.cq), 0);
    }
    wait_for_completion(pair.near);
  }
}

// As UCX and others have it. Then EAGAIN is behind a readable descriptor, and the loop ends whatever packets come.
TEST_P(PolledChannel, TellsOfNoEmptyQueueWhoTakesAllEvents) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.poll_far();
  std::atomic<bool> ends{false};
  std::thread writing([&] {
    while (!ends) {
      post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
      wait_for_completion(pair.near);
    }
  });
  int messages = 0;
  Side other_near("rdma0"), other_far("other0");
  ASSERT_EQ(other_near.connect(other_far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(other_far.connect(other_near, "192.0.2.2", "192.0.2.1"), 0);
  set_non_blocking(other_far.channel->fd, true);
  arm(other_far);
  for (; messages < 100; ++messages) {
    post_receive(other_far);
    post(other_near, other_far, IBV_WR_SEND);
    for (int taken = 0; taken == 0;) {
      ASSERT_TRUE(readable(other_far.channel->fd, kLong));
      int events = 0;
      while (get_event(other_far) == 0) {
        ASSERT_LT(++events, 10) << "events for ever";
        arm(other_far);
        taken += drain(other_far.cq);
      }
    }
    wait_for_completion(other_near);
  }
  ends = true;
  writing.join();
}

// As UCX polls a descriptor before it has set up what it is for.
TEST_P(PolledChannel, TellsOfEventsOnlyBeforeItIsUsed) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.poll_far();
  for (int i = 0; i < 200; ++i) {
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    ASSERT_FALSE(readable(pair.far.channel->fd)) << i;
    wait_for_completion(pair.near);
  }
}

// Which queue an early event is of: one that is armed; and none where none is.
TEST_P(PolledChannel, TellsOfAnArmedQueue) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  take_what_is_left(pair);
  std::vector<ibv_cq*> others;
  for (int i = 0; i < 3; ++i) others.push_back(ibv_create_cq(pair.far.cq->context, 16, nullptr, pair.far.channel, 0));
  // Null: it was readable, and there is no event. On a busy machine the background thread takes the packets for a
  // while.
  const auto write_until_told = [&](ibv_cq* armed) {
    const auto limit = std::chrono::steady_clock::now() + milliseconds(kLong);
    while (std::chrono::steady_clock::now() < limit) {
      // Again and again, as nothing need be told to a program that is not there.
      if (armed != nullptr && ibv_req_notify_cq(armed, armed != pair.far.cq) != 0) break;
      post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
      const bool told = readable(pair.far.channel->fd, 1);
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      const int error = told && ibv_get_cq_event(pair.far.channel, &cq, &context) == 0 ? 0 : EAGAIN;
      wait_for_completion(pair.near);
      if (error == 0) ibv_ack_cq_events(cq, 1);
      if (told) return cq;
    }
    ADD_FAILURE() << "the descriptor is never readable";
    return static_cast<ibv_cq*>(nullptr);
  };
  EXPECT_EQ(write_until_told(pair.far.cq), pair.far.cq);
  EXPECT_EQ(write_until_told(others[1]), others[1]);
  EXPECT_EQ(write_until_told(nullptr), nullptr) << "once: then it tells of events only";
  for (int i = 0; i < 200; ++i) {
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    ASSERT_FALSE(readable(pair.far.channel->fd)) << i;
    wait_for_completion(pair.near);
  }
  ASSERT_EQ(ibv_req_notify_cq(others[2], 0), 0);
  for (ibv_cq* const cq : others) ASSERT_EQ(ibv_destroy_cq(cq), 0);
  arm(pair.far);
  pair.send();
  take_message(pair.far, pair.far.channel->fd);
  wait_for_completion(pair.near);
}

TEST_P(PolledChannel, MayBlockAgain) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  pair.send();
  take_message(pair.far, pair.far.channel->fd);
  wait_for_completion(pair.near);
  take_what_is_left(pair);
  set_non_blocking(pair.far.channel->fd, false);
  arm(pair.far);
  for (int i = 0; i < 100; ++i) {
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    ASSERT_FALSE(readable(pair.far.channel->fd)) << i;
    wait_for_completion(pair.near);
  }
  pair.send();
  EXPECT_EQ(get_event(pair.far), 0);
}

// Shorter and longer than the program is relied on.
TEST_P(PolledChannel, TellsAfterPausesOfAnyLength) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  for (const int pause : {0, 1, 0, 20, 90, 0, 110, 250, 0, 3, 400, 100, 101}) {
    std::this_thread::sleep_for(milliseconds(pause));
    pair.send();
    take_message(pair.far, pair.far.channel->fd);
    wait_for_completion(pair.near);
  }
}

// The program is there all the time and takes nothing: others are served.
TEST_P(PolledChannel, KeepsNobodyWaitingWhoDoesNotLook) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  for (int i = 0; i < 100; ++i) {
    pair.send();
    take_message(pair.far, pair.far.channel->fd);
    wait_for_completion(pair.near);
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    wait_for_completion(pair.near);
  }
}

TEST_P(PolledChannel, TellsOfEventsOnlyWhereThatIsAsked) {
  if (!alone(std::string(kAllNetdevs) + " UROCE_WAKE_BY_PACKETS=0 UROCE_IO=" + GetParam())) return;
  set_up_wire();
  Pair pair;
  pair.use_far();
  EXPECT_EQ(get_event(pair.far), EAGAIN) << "no early event";
  for (int i = 0; i < 200; ++i) {
    post(pair.near, pair.far, IBV_WR_RDMA_WRITE);
    ASSERT_FALSE(readable(pair.far.channel->fd)) << i;
    wait_for_completion(pair.near);
  }
  for (int i = 0; i < 20; ++i) {
    pair.send();
    ASSERT_TRUE(readable(pair.far.channel->fd, kLong));
    ASSERT_EQ(get_event(pair.far), 0) << "no EAGAIN where the descriptor was readable";
    arm(pair.far);
    drain(pair.far.cq);
    wait_for_completion(pair.near);
  }
}

// Another thread takes most of the packets.
TEST_P(PolledChannel, MayBeBesideAnotherThreadThatPolls) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  Side other_near("rdma0"), other_far("other0");
  ASSERT_EQ(other_near.connect(other_far, "192.0.2.1", "192.0.2.2"), 0);
  ASSERT_EQ(other_far.connect(other_near, "192.0.2.2", "192.0.2.1"), 0);
  std::atomic<bool> ends{false};
  std::thread polling([&] {
    while (!ends) drain(other_far.cq);
  });
  for (int i = 0; i < 3000; ++i) {
    post(other_near, other_far, IBV_WR_RDMA_WRITE);
    if (readable(pair.far.channel->fd)) {
      ASSERT_EQ(get_event(pair.far), 0) << "EAGAIN behind a readable descriptor";
      arm(pair.far);
      ASSERT_EQ(drain(pair.far.cq), 0);
    }
    wait_for_completion(other_near);
  }
  pair.send();
  take_message(pair.far, pair.far.channel->fd);
  wait_for_completion(pair.near);
  ends = true;
  polling.join();
}

TEST_P(PolledChannel, MayBeDuplicatedAndPassedOn) {
  if (!alone_with_io()) return;
  Pair pair;
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &pair.far.channel->fd, sizeof(int));
  ASSERT_EQ(sendmsg(ends[0], &message, 0), 1);
  ASSERT_EQ(recvmsg(ends[1], &message, 0), 1);
  int passed = -1;
  std::memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  const int duplicate = dup(pair.far.channel->fd);
  pair.use_far();
  for (const int fd : {passed, duplicate, pair.far.channel->fd, passed}) {
    pair.send();
    take_message(pair.far, fd);
    wait_for_completion(pair.near);
  }
  for (const int fd : {passed, duplicate, ends[0], ends[1]}) close(fd);
}

TEST_P(PolledChannel, MayHaveSeveralThreads) {
  if (!alone_with_io()) return;
  constexpr int kMessages = 300, kAhead = 10;  // that have not been taken; the queue has room for more
  Pair pair;
  pair.use_far();
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const int set = epoll_create1(EPOLL_CLOEXEC);
      epoll_event event{};
      event.events = EPOLLIN;
      ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pair.far.channel->fd, &event), 0);
      while (taken < kMessages) {
        if (epoll_wait(set, &event, 1, 100) == 0 || get_event(pair.far) != 0) continue;
        arm(pair.far);
        taken += drain(pair.far.cq);
      }
      close(set);
    });
  }
  const auto becomes = [&taken](int count) {
    const auto limit = std::chrono::steady_clock::now() + milliseconds(kLong);
    while (taken < count && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(milliseconds(1));
    return taken >= count;
  };
  for (int i = 0; i < kMessages && becomes(i - kAhead); ++i) {
    pair.send();
    wait_for_completion(pair.near);
  }
  becomes(kMessages);
  EXPECT_EQ(taken.exchange(kMessages), kMessages);
  for (std::thread& thread : threads) thread.join();
}

// As brpc's: each takes all events and then what is in the queue, and all find the others at it.
TEST_P(PolledChannel, MayHaveSeveralThreadsThatTakeAllEvents) {
  if (!alone_with_io()) return;
  constexpr int kMessages = 1000;
  Pair pair;
  pair.poll_far();
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (taken < kMessages) {
        if (!readable(pair.far.channel->fd, 100)) continue;
        while (get_event(pair.far) == 0) {
        }
        taken += drain(pair.far.cq);
        arm(pair.far);
        taken += drain(pair.far.cq);
      }
    });
  }
  const auto limit = std::chrono::steady_clock::now() + milliseconds(kLong);
  for (int i = 0; i < kMessages; ++i) {
    pair.send();
    wait_for_completion(pair.near);
    while (taken <= i && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    ASSERT_GT(taken, i) << "nobody was told of the message";
  }
  for (std::thread& thread : threads) thread.join();
}

// The event before has said that there is something in the queue: to look for more would keep the program from it.
TEST_P(PolledChannel, LooksForNoMoreBeforeTheQueueIsPolled) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.poll_far();
  constexpr int kUnused = 40, kTurns = 200;  // turns; before it is used it tells of events only
  int left_alone = 0;
  for (int i = 0; i < kUnused + kTurns; ++i) {
    pair.send();
    do ASSERT_TRUE(readable(pair.far.channel->fd, kLong)) << i;
    while (get_event(pair.far) != 0);
    wait_for_completion(pair.near);
    pair.send();  // is there by now; the background thread may take it
    ASSERT_EQ(get_event(pair.far), EAGAIN);
    ibv_wc completions[4];
    const int found = ibv_poll_cq(pair.far.cq, 4, completions);
    if (i >= kUnused && found == 1) ++left_alone;
    wait_for_completion(pair.near);
    for (int messages = found; messages < 2;) messages += drain(pair.far.cq);
    arm(pair.far);
    while (get_event(pair.far) == 0) arm(pair.far);
  }
  // On a busy machine the background thread takes most. If the call looked, there would be none.
  EXPECT_GT(left_alone, kTurns / 20) << "the second message was taken before the queue was polled";
}

// AF_XDP is opened anew where the MTU grows.
TEST_P(PolledChannel, TellsWhenThePacketIoIsAnotherOne) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  for (int mtu = 1500; mtu < 3500; mtu += 500) {
    run("ip link set rdma0 mtu " + std::to_string(mtu) + " && ip link set other0 mtu " + std::to_string(mtu));
    for (int i = 0; i < 10; ++i) {
      pair.send();
      take_message(pair.far, pair.far.channel->fd);
      wait_for_completion(pair.near);
    }
  }
}

TEST_P(PolledChannel, IsTheParentsAfterFork) {
  if (!alone_with_io()) return;
  Pair pair;
  pair.use_far();
  pair.send();
  take_message(pair.far, pair.far.channel->fd);
  wait_for_completion(pair.near);
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      readable(pair.far.channel->fd, 20);
      const bool refused = get_event(pair.far) == EIO && ibv_req_notify_cq(pair.far.cq, 0) == EIO;
      ibv_destroy_cq(pair.far.cq);
      ibv_destroy_comp_channel(pair.far.channel);
      _exit(refused ? 0 : 1);
    }
    pair.send();
    take_message(pair.far, pair.far.channel->fd);
    wait_for_completion(pair.near);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    pair.send();
    take_message(pair.far, pair.far.channel->fd);
    wait_for_completion(pair.near);
  }
}

// --- between QPs of one device ---------------------------------------------------------------------------------------

class PolledChannelOfManyQueues : public ClientTest {};

TEST_F(PolledChannelOfManyQueues, TellsOfEach) {
  constexpr size_t kQueues = 8;
  ibv_comp_channel* const channel = ibv_create_comp_channel(client_.context);
  ASSERT_NE(channel, nullptr);
  set_non_blocking(channel->fd, true);
  struct One {
    ibv_cq *sends, *receives;
    ibv_qp* qp;
  };
  std::array<One, kQueues> all{};
  for (One& one : all) {
    one.sends = ibv_create_cq(client_.context, 16, nullptr, nullptr, 0);
    one.receives = ibv_create_cq(client_.context, 16, nullptr, channel, 0);
    ibv_qp_init_attr attributes = client_qp_attributes(one.sends);
    attributes.recv_cq = one.receives;
    one.qp = ibv_create_qp(client_.pd, &attributes);
    ASSERT_NE(one.qp, nullptr);
    ASSERT_EQ(client_connect(&client_, one.qp, one.qp->qp_num), 0);
    ASSERT_EQ(ibv_req_notify_cq(one.receives, 0), 0);
  }
  for (size_t i = 0; i < 5 * kQueues; ++i) {
    One& one = all[i * 3 % kQueues];
    ibv_sge list{reinterpret_cast<uintptr_t>(client_.memory), 8, client_.mr->lkey};
    ibv_recv_wr receive{}, *bad_receive = nullptr;
    receive.sg_list = &list;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(one.qp, &receive, &bad_receive), 0);
    ibv_send_wr send{}, *bad_send = nullptr;
    send.sg_list = &list;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(one.qp, &send, &bad_send), 0);
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    int error = EAGAIN;
    while (error == EAGAIN) {
      ASSERT_TRUE(readable(channel->fd, kLong));
      error = ibv_get_cq_event(channel, &cq, &context) == 0 ? 0 : errno;
    }
    ASSERT_EQ(error, 0);
    EXPECT_EQ(cq, one.receives);
    ibv_ack_cq_events(cq, 1);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    EXPECT_EQ(drain(one.receives), 1);
    ibv_wc wc{};
    ASSERT_EQ(client_wait(one.sends, &wc), 1);
  }
  for (const One& one : all) {
    EXPECT_EQ(ibv_destroy_qp(one.qp), 0);
    EXPECT_EQ(ibv_destroy_cq(one.sends), 0);
    EXPECT_EQ(ibv_destroy_cq(one.receives), 0);
  }
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

}  // namespace
