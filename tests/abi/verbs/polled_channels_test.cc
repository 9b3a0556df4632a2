// SPDX-License-Identifier: BSD-2-Clause
// Several completion channels that one thread polls: which of them packets make readable.
#include <array>
#include <cerrno>
#include <memory>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <vector>

#include "polled_channel.h"

namespace {

class PolledChannels : public PolledChannel {
 protected:
  // Its program asks for events before there are any (EAGAIN), as a client that waits for an answer does.
  struct Client : Pair {
    Client() {
      set_non_blocking(far.channel->fd, true);
      arm(far);
      EXPECT_EQ(get_event(far), EAGAIN);
      wait_for_answers(20);
    }
    int fd() const { return far.channel->fd; }
    void request() {
      post_receive(near);
      post_receive(far);
      post(far, near, IBV_WR_SEND);
    }
    // The request is there, and the answer is on its way.
    void answer() {
      wait_for_completion(near);
      post(near, far, IBV_WR_SEND);
    }
    // What has come: of a request and its answer two completions.
    int take() {
      if (get_event(far) != 0) return 0;
      arm(far);
      return drain(far.cq);
    }
    void wait_for_answers(int count) {
      for (int i = 0; i < count; ++i) {
        request();
        answer();
        for (int taken = take(); taken < 2; taken += take()) ASSERT_TRUE(readable(fd(), kLong)) << i;
        wait_for_completion(near);
      }
    }
  };
};

INSTANTIATE_TEST_SUITE_P(Io, PolledChannels, testing::Values("udp", "af_xdp"),
                         [](const auto& io) { return std::string(io.param); });

// Each has its context, channel and queue, as a server has for its clients. They come and go, the one that tells of
// packets as well.
TEST_P(PolledChannels, OneOfManyTellsOfPackets) {
  if (!alone_with_io()) return;
  std::vector<std::unique_ptr<Pair>> pairs;
  const int set = epoll_create1(EPOLL_CLOEXEC);
  const auto add = [&] {
    Pair& pair = *pairs.emplace_back(std::make_unique<Pair>());
    pair.use_far();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &pair;
    ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pair.far.channel->fd, &event), 0);
  };
  for (int i = 0; i < 4; ++i) add();
  for (int round = 0; round < 40; ++round) {
    if (round % 5 == 4) {
      pairs.erase(pairs.begin());
      add();
    }
    for (const auto& pair : pairs) pair->send();
    for (size_t taken = 0; taken < pairs.size();) {
      epoll_event event;
      ASSERT_EQ(epoll_wait(set, &event, 1, kLong), 1);
      Side& side = static_cast<Pair*>(event.data.ptr)->far;
      ASSERT_EQ(get_event(side), 0) << "EAGAIN behind a readable descriptor";
      arm(side);
      taken += static_cast<size_t>(drain(side.cq));
    }
    for (const auto& pair : pairs) wait_for_completion(pair->near);
  }
  close(set);
}

// Who goes where a descriptor is readable and waits there for an answer would wait for ever.
TEST_P(PolledChannels, NoneIsReadableByThePacketsOfAnotherOneWhereNoAnswerIsDue) {
  if (!alone_with_io()) return;
  std::array<Client, 2> clients;
  for (size_t turn = 0; turn < 300; ++turn) {
    Client& asks = clients[turn % 2];
    Client& rests = clients[1 - turn % 2];
    if (readable(rests.fd())) rests.take();  // an event of what it has polled already
    asks.request();
    asks.answer();
    for (int taken = 0; taken < 2; taken += asks.take()) {
      std::array<pollfd, 2> entries{{{asks.fd(), POLLIN, 0}, {rests.fd(), POLLIN, 0}}};
      ASSERT_GT(poll(entries.data(), entries.size(), kLong), 0);
      ASSERT_EQ(entries[1].revents, 0) << turn;
    }
    wait_for_completion(asks.near);
  }
}

// The one that has asked last has its packets, whoever was told of them before.
TEST_P(PolledChannels, EachMayBeWaitedForAlone) {
  if (!alone_with_io()) return;
  std::array<Client, 3> clients;
  for (size_t turn = 0; turn < 300; ++turn) clients[turn % clients.size()].wait_for_answers(1);
}

}  // namespace
