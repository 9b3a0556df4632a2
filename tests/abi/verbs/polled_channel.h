// SPDX-License-Identifier: BSD-2-Clause
// Programs that poll the descriptors of completion channels, in two network namespaces of one process.
#pragma once

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>

#include "wire_fixture.h"

using std::chrono::milliseconds;

constexpr int kLong = 20'000;  // ms; until then something that comes has come

inline bool readable(int fd, int ms = 0) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, ms) == 1;
}
inline void set_non_blocking(int fd, bool set) {
  const int flags = fcntl(fd, F_GETFL);
  ASSERT_EQ(fcntl(fd, F_SETFL, set ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
}
inline void arm(Side& side) {
  ASSERT_EQ(ibv_req_notify_cq(side.cq, 0), 0);
}
inline int get_event(ibv_comp_channel* channel) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel, &cq, &context) != 0) return errno;
  ibv_ack_cq_events(cq, 1);
  return 0;
}
inline int get_event(Side& side) {
  return get_event(side.channel);
}

inline void post_receive(Side& side) {
  ibv_sge list{reinterpret_cast<uintptr_t>(side.memory.data()), 64, side.mr->lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &list;
  wr.num_sge = 1;
  ASSERT_EQ(ibv_post_recv(side.qp, &wr, &bad), 0);
}
inline void post(Side& from, Side& to, ibv_wr_opcode opcode) {
  ibv_sge list{reinterpret_cast<uintptr_t>(from.memory.data()), 8, from.mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<uintptr_t>(to.memory.data()), to.mr->rkey};
  ASSERT_EQ(ibv_post_send(from.qp, &wr, &bad), 0);
}
inline int drain(ibv_cq* cq) {
  ibv_wc wc;
  int count = 0;
  while (ibv_poll_cq(cq, 1, &wc) == 1) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    ++count;
  }
  return count;
}
inline void wait_for_completion(Side& side) {
  ibv_wc wc{};
  ASSERT_EQ(client_wait(side.cq, &wc), 1);
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
}
// As a server has it: until a message has come.
inline void take_message(Side& side, int fd) {
  for (int taken = 0; taken == 0;) {
    ASSERT_TRUE(readable(fd, kLong));
    ASSERT_EQ(get_event(side), 0) << "EAGAIN behind a readable descriptor";
    arm(side);
    taken = drain(side.cq);
  }
}

// Pairs of queue pairs whose messages go over the wire from near to far. The thread polls near's queue; far's channel
// is the one whose descriptor it polls.
class PolledChannel : public testing::TestWithParam<const char*> {
 protected:
  struct Pair {
    Pair() {
      EXPECT_EQ(near.connect(far, "192.0.2.1", "192.0.2.2"), 0);
      EXPECT_EQ(far.connect(near, "192.0.2.2", "192.0.2.1"), 0);
    }
    void poll_far() {
      set_non_blocking(far.channel->fd, true);
      arm(far);
    }
    // After so many events packets wake who polls (engine/objects/poll_set.h).
    void use_far() {
      poll_far();
      for (int i = 0; i < 20; ++i) {
        send();
        take_message(far, far.channel->fd);
        wait_for_completion(near);
      }
    }
    void send() {
      post_receive(far);
      post(near, far, IBV_WR_SEND);
    }
    Side near{"rdma0"}, far{"other0"};
  };
  // The last message may have come between an early event and the poll.
  static void take_what_is_left(Pair& pair) {
    if (!readable(pair.far.channel->fd)) return;
    EXPECT_EQ(get_event(pair.far), 0) << "EAGAIN behind a readable descriptor";
  }
  static bool alone_with_io() {
    if (!alone(std::string(kAllNetdevs) + " UROCE_IO=" + GetParam())) return false;
    set_up_wire();
    return true;
  }
};
