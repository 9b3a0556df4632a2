// SPDX-License-Identifier: BSD-2-Clause
// Completion channels and asynchronous events.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include "fixture.h"
#include "tests/thread_state.h"

namespace {

class EventTest : public ConnectedTest {
 protected:
  // A message from a_ to b_, so that the CQ gets two completions.
  void send(unsigned int flags) {
    ASSERT_EQ(post_receive(b_, 1, 0, 64), 0);
    ibv_sge list = sge(4096, 8);
    ibv_send_wr wr = send_request(2, &list);
    wr.send_flags |= flags;
    ASSERT_EQ(post(a_, wr), 0);
  }
  static void make_non_blocking(int fd) { ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0); }
  static bool becomes_readable(int fd, int milliseconds) {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, milliseconds) == 1;
  }
  void take_event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
    EXPECT_EQ(cq, cq_);
    EXPECT_EQ(context, this);
  }
  void drain(int completions) {
    ibv_wc wc;
    for (int i = 0; i < completions; ++i) {
      ASSERT_EQ(client_wait(cq_, &wc), 1);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
  }
};

TEST_F(EventTest, OneEventPerArm) {
  make_non_blocking(channel_->fd);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  drain(2);
  ASSERT_TRUE(becomes_readable(channel_->fd, 5000));
  take_event();
  ibv_ack_cq_events(cq_, 1);
  ibv_cq* cq;
  void* context;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// UCX arms and sleeps without polling in between: ConnectX tells of what has come before.
TEST_F(EventTest, WhatCameBeforeTheArmIsAnEvent) {
  make_non_blocking(channel_->fd);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  ASSERT_TRUE(becomes_readable(channel_->fd, 5000));
  take_event();
  drain(2);
  send(0);
  drain(1);
  // Progress, but nothing taken: the other completion is in the queue then. Were it not, it would come to the armed
  // queue, and the test would see nothing.
  ibv_wc wc;
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(ibv_poll_cq(cq_, 0, &wc), 0);
  ibv_cq* cq;
  void* context;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &context), -1);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  EXPECT_TRUE(becomes_readable(channel_->fd, 5000));
  take_event();
  drain(1);
  EXPECT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
  ibv_ack_cq_events(cq_, 2);
}

TEST_F(EventTest, AnApplicationThatSleepsIsWoken) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  take_event();  // blocks: nobody polls
  ibv_ack_cq_events(cq_, 1);
  drain(2);
}

TEST_F(EventTest, SolicitedArmWaitsForASolicitedMessage) {
  make_non_blocking(channel_->fd);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  send(0);
  drain(2);
  EXPECT_FALSE(becomes_readable(channel_->fd, 0));
  send(IBV_SEND_SOLICITED);
  drain(2);
  EXPECT_TRUE(becomes_readable(channel_->fd, 5000));
  take_event();
  ibv_ack_cq_events(cq_, 1);
}

TEST_F(EventTest, DescriptorMayBeMovedWithDup2) {
  const int other = open("/dev/null", O_RDONLY);
  ASSERT_EQ(dup2(channel_->fd, other), other);
  close(channel_->fd);
  channel_->fd = other;
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  take_event();
  ibv_ack_cq_events(cq_, 1);
  drain(2);
}

TEST_F(EventTest, PendingEventsGoWithTheirQueue) {
  make_non_blocking(channel_->fd);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  drain(2);
  ASSERT_TRUE(becomes_readable(channel_->fd, 5000));
  ASSERT_EQ(ibv_destroy_qp(a_), 0);
  ASSERT_EQ(ibv_destroy_qp(b_), 0);
  ASSERT_EQ(ibv_destroy_cq(cq_), 0);
  a_ = b_ = nullptr;
  cq_ = nullptr;
  EXPECT_FALSE(becomes_readable(channel_->fd, 0));
}

TEST_F(EventTest, DestroyWaitsForAcknowledgements) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  take_event();
  drain(2);
  ASSERT_EQ(ibv_destroy_qp(a_), 0);
  ASSERT_EQ(ibv_destroy_qp(b_), 0);
  a_ = b_ = nullptr;
  std::atomic<bool> acknowledged{false};
  ibv_cq* cq = cq_;
  cq_ = nullptr;
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_TRUE(acknowledged);
  });
  acknowledged = true;
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
}

// One channel, two queues: each has its own arm and its own events.
TEST_F(EventTest, ChannelServesSeveralQueues) {
  make_non_blocking(channel_->fd);
  int marks[2];
  ibv_cq* cqs[2];
  ibv_qp* qps[2];
  for (int i = 0; i < 2; ++i) {
    cqs[i] = ibv_create_cq(client_.context, 16, &marks[i], channel_, 0);
    ASSERT_NE(cqs[i], nullptr);
    qps[i] = client_create_qp(&client_, cqs[i]);
    ASSERT_NE(qps[i], nullptr);
    ASSERT_EQ(ibv_req_notify_cq(cqs[i], 0), 0);
  }
  ASSERT_EQ(client_connect(&client_, qps[0], qps[1]->qp_num), 0);
  ASSERT_EQ(client_connect(&client_, qps[1], qps[0]->qp_num), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  ASSERT_EQ(post_receive(qps[1], 1, 0, 64), 0);
  ibv_sge list = sge(4096, 8);
  ibv_send_wr wr = send_request(2, &list);
  ASSERT_EQ(post(qps[0], wr), 0);
  bool seen[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(becomes_readable(channel_->fd, 10000));
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
    const int which = cq == cqs[1] ? 1 : 0;
    EXPECT_EQ(cq, cqs[which]);
    EXPECT_EQ(context, &marks[which]);
    EXPECT_FALSE(seen[which]);
    seen[which] = true;
    ibv_ack_cq_events(cq, 1);
  }
  EXPECT_FALSE(becomes_readable(channel_->fd, 0)) << "the third queue got nothing";
  EXPECT_EQ(ibv_destroy_comp_channel(channel_), EBUSY);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ibv_destroy_qp(qps[i]), 0);
    ASSERT_EQ(ibv_destroy_cq(cqs[i]), 0);
  }
}

// Errors count as solicited (IBTA 11.4.2.2).
TEST_F(EventTest, SolicitedArmIsAnsweredByErrors) {
  make_non_blocking(channel_->fd);
  ASSERT_EQ(post_receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(b_, &attr, IBV_QP_STATE), 0);
  ASSERT_TRUE(becomes_readable(channel_->fd, 10000));
  take_event();
  ibv_ack_cq_events(cq_, 1);
}

// Several events may be acknowledged at once, and destroying waits for the last of them.
TEST_F(EventTest, EventsAreAcknowledgedTogether) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
    send(0);
    take_event();
    drain(2);
  }
  ibv_ack_cq_events(cq_, 3);
}

// Each event is one thread's. In the end the threads are cancelled where they wait.
TEST_F(EventTest, SeveralThreadsWaitOnOneChannel) {
  std::atomic<int> events{0}, completions{0};
  const auto serve = [&] {
    while (true) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
      ASSERT_EQ(cq, cq_);
      ++events;
      ibv_ack_cq_events(cq_, 1);
      ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
      ibv_wc wc[4];
      for (int count = 1; count > 0; completions += count) count = ibv_poll_cq(cq_, 4, wc);
    }
  };
  std::array<std::thread, 3> threads;
  for (std::thread& thread : threads) thread = std::thread(serve);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  for (int i = 1; i <= 300; ++i) {
    send(0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (completions < 2 * i && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ASSERT_EQ(completions, 2 * i) << "after " << events << " events nobody comes";
  }
  for (std::thread& thread : threads) pthread_cancel(thread.native_handle());
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(events, 0);
  // The channel goes on.
  make_non_blocking(channel_->fd);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) ibv_ack_cq_events(cq_, 1);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(0);
  ASSERT_TRUE(becomes_readable(channel_->fd, 10000));
  take_event();
  ibv_ack_cq_events(cq_, 1);
  drain(2);
}

sigjmp_buf out_of_the_wait;

// Nothing has been unwound. What the thread's own polls report from then on is for whoever waits for the descriptor.
TEST_F(EventTest, AJumpOutOfAWaitLosesNoEvent) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { siglongjmp(out_of_the_wait, 1); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<pid_t> tid{0};
  std::thread thread([&] {
    tid = gettid();
    if (sigsetjmp(out_of_the_wait, 1) == 0) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ibv_get_cq_event(channel_, &cq, &context);
    }
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
      send(0);
      drain(2);
      ASSERT_TRUE(becomes_readable(channel_->fd, 10000)) << "event " << i;
      take_event();
      ibv_ack_cq_events(cq_, 1);
    }
  });
  while (tid == 0 || !uroce::test::sleeps(tid)) std::this_thread::yield();
  pthread_kill(thread.native_handle(), SIGUSR1);
  thread.join();
  sigaction(SIGUSR1, &before, nullptr);
}

void on_signal(int) {}

// As the read() of the kernel's device does. The handler of the first kind says that calls go on.
TEST_F(EventTest, SignalsInterruptWhoWaitsAsTheirHandlersSay) {
  for (const int flags : {SA_RESTART, 0}) {
    struct sigaction action {
    }, before{};
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
    std::atomic<bool> ended{false};
    int result = 0, error = 0;
    std::thread thread([&] {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      result = ibv_get_cq_event(channel_, &cq, &context);
      error = errno;
      ended = true;
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (int i = 0; !ended && (flags == 0 ? std::chrono::steady_clock::now() < end : i < 200); ++i) {
      pthread_kill(thread.native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
    EXPECT_EQ(ended.load(), flags == 0);
    send(0);
    thread.join();
    if (flags == 0) {
      EXPECT_EQ(result, -1);
      EXPECT_EQ(error, EINTR);
      take_event();
    } else {
      EXPECT_EQ(result, 0);
    }
    ibv_ack_cq_events(cq_, 1);
    drain(2);
    sigaction(SIGUSR1, &before, nullptr);
  }
}

TEST_F(EventTest, AsyncDescriptorSaysEagainWhenThereIsNothing) {
  make_non_blocking(client_.context->async_fd);
  ibv_async_event event;
  EXPECT_EQ(ibv_get_async_event(client_.context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
