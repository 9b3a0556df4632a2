// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: sizes and resizing, moderation of events, every field of extended completions.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <thread>
#include <vector>

#include "fixture.h"

namespace {

constexpr uint64_t kCvlanAndTag = uint64_t{IBV_WC_EX_WITH_CVLAN} | IBV_WC_EX_WITH_FLOW_TAG;
constexpr uint64_t kTimes =
    uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

int max_cqe(ibv_context* context) {
  ibv_device_attr attr;
  EXPECT_EQ(ibv_query_device(context, &attr), 0);
  return attr.max_cqe;
}

class CqTest : public ConnectedTest {
 protected:
  // A message from a_ to b_; cq_ gets two completions.
  void send(uint64_t id, unsigned int flags = 0) {
    ASSERT_EQ(post_receive(b_, id, 0, 64), 0);
    ibv_sge list = sge(4096, 8);
    ibv_send_wr wr = send_request(id, &list);
    wr.send_flags |= flags;
    ASSERT_EQ(post(a_, wr), 0);
  }
  // Waits until what was sent has completed, without polling: the next post finds it done.
  int pending_completions(int wanted) {
    std::vector<ibv_wc> wc(static_cast<size_t>(wanted));
    int count = 0;
    for (const time_t give_up = time(nullptr) + 10; count < wanted && time(nullptr) < give_up;) {
      const int polled = ibv_poll_cq(cq_, wanted - count, &wc[static_cast<size_t>(count)]);
      if (polled < 0) break;
      count += polled;
    }
    return count;
  }
  bool readable(int milliseconds) {
    pollfd entry{channel_->fd, POLLIN, 0};
    return poll(&entry, 1, milliseconds) == 1;
  }
  void take_event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
  }
  int moderate(uint16_t count, uint16_t period) {
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {count, period};
    return ibv_modify_cq(cq_, &attr);
  }
};

// --- sizes -----------------------------------------------------------------------------------------------------------

TEST_F(ClientTest, TheLargestCompletionQueueAndOneMore) {
  const int most = max_cqe(client_.context);
  ibv_cq* cq = ibv_create_cq(client_.context, most, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(cq->cqe, most);
  EXPECT_EQ(ibv_resize_cq(cq, most + 1), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(client_.context, most + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CqTest, ResizeKeepsCompletionsAndSaysTheNewSize) {
  for (uint64_t id = 0; id < 8; ++id) send(id);
  ASSERT_EQ(ibv_resize_cq(cq_, 1000), 0);
  EXPECT_GE(cq_->cqe, 1000);
  EXPECT_EQ(pending_completions(16), 16);
  for (uint64_t id = 0; id < 8; ++id) send(id);
  ASSERT_EQ(ibv_resize_cq(cq_, 20), 0);
  EXPECT_GE(cq_->cqe, 20);
  EXPECT_LT(cq_->cqe, 1000);
  EXPECT_EQ(pending_completions(16), 16);
}

TEST_F(CqTest, ResizeRefusesLessThanWhatIsThere) {
  // One completion that is certainly in the queue: what completes behind it stays there, too.
  for (uint64_t id = 0; id < 8; ++id) send(id);
  ibv_wc wc;
  ASSERT_EQ(client_wait(cq_, &wc), 1);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;  // flushes or completes everything by the time it returns
  ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_modify_qp(b_, &attr, IBV_QP_STATE), 0);
  const int before = cq_->cqe;
  EXPECT_EQ(ibv_resize_cq(cq_, 14), EINVAL);
  EXPECT_EQ(cq_->cqe, before);
  EXPECT_EQ(ibv_resize_cq(cq_, 15), 0);
  EXPECT_EQ(ibv_resize_cq(cq_, 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq_, -1), EINVAL);
  EXPECT_EQ(pending_completions(15), 15);
}

TEST_F(CqTest, ResizeUnderTraffic) {
  std::atomic<bool> stop{false};
  std::thread resizer([&] {
    for (int size = 64; !stop; size = size == 64 ? 4096 : 64) {
      const int error = ibv_resize_cq(cq_, size);
      EXPECT_TRUE(error == 0 || error == EINVAL) << error;
    }
  });
  for (uint64_t id = 0; id < 3000; id += 8) {
    for (uint64_t i = 0; i < 8; ++i) send(id + i);
    ASSERT_EQ(pending_completions(16), 16);
  }
  stop = true;
  resizer.join();
}

// --- moderation ------------------------------------------------------------------------------------------------------

TEST_F(CqTest, DeviceSaysHowMuchModerationThereIs) {
  ibv_device_attr_ex attr;
  ASSERT_EQ(ibv_query_device_ex(client_.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_count, 0xffff);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_period, 0xffff);
  EXPECT_EQ(moderate(0xffff, 0xffff), 0);
  ibv_modify_cq_attr unknown{};
  unknown.attr_mask = IBV_CQ_ATTR_MODERATE << 1;
  EXPECT_EQ(ibv_modify_cq(cq_, &unknown), EINVAL);
  unknown.attr_mask = 0;
  EXPECT_EQ(ibv_modify_cq(cq_, &unknown), 0);
}

TEST_F(CqTest, EventComesWithTheCount) {
  ASSERT_EQ(moderate(4, 0xffff), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(1);
  send(2);
  // Nobody polls; four completions make the event, long before 65 ms if need be, and certainly at last.
  ASSERT_TRUE(readable(10000));
  take_event();
  EXPECT_EQ(pending_completions(4), 4);
}

// The queue never gets a thousand completions: only the period can bring the event, also while everybody sleeps.
TEST_F(CqTest, EventComesAfterThePeriod) {
  ASSERT_EQ(moderate(1000, 20000), 0);
  const auto before = std::chrono::steady_clock::now();
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(1);
  ASSERT_TRUE(readable(10000));
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(20));
  take_event();
  EXPECT_EQ(pending_completions(2), 2);
  // The same while the application polls.
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(2);
  EXPECT_EQ(pending_completions(2), 2);
  ASSERT_TRUE(readable(10000));
  take_event();
}

TEST_F(CqTest, ModerationGoesWithTheQueue) {
  ASSERT_EQ(moderate(1000, 50000), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send(1);
  EXPECT_EQ(pending_completions(2), 2);
  ASSERT_EQ(ibv_destroy_qp(a_), 0);
  ASSERT_EQ(ibv_destroy_qp(b_), 0);
  a_ = b_ = nullptr;
  ASSERT_EQ(ibv_destroy_cq(cq_), 0);
  cq_ = nullptr;
  EXPECT_FALSE(readable(0));
}

// The engine lives on with another context, and has nothing of the queue any more.
TEST_F(ClientTest, ClosingForgetsModeratedQueues) {
  client other{};
  ASSERT_EQ(client_open(&other), 0);
  ibv_cq* cq = ibv_create_cq(other.context, 10, nullptr, nullptr, 0);
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {10, 10};
  ASSERT_EQ(ibv_modify_cq(cq, &attr), 0);
  EXPECT_EQ(ibv_close_device(other.context), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dereg_mr(other.mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other.pd), 0);
  free(other.memory);
  ibv_cq* used = ibv_create_cq(client_.context, 10, nullptr, nullptr, 0);
  ibv_qp* qp = client_create_qp(&client_, used);
  ASSERT_NE(qp, nullptr);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(used, 1, &wc), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(used), 0);
}

// --- extended completions --------------------------------------------------------------------------------------------

class ExtendedCqTest : public ClientTest {
 protected:
  ibv_cq_ex* create(uint64_t fields, uint32_t mask = 0, uint32_t flags = 0, ibv_pd* parent_domain = nullptr,
                    uint32_t entries = 16) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = entries;
    attr.wc_flags = fields;
    attr.comp_mask = mask;
    attr.flags = flags;
    attr.parent_domain = parent_domain;
    errno = 0;
    return ibv_create_cq_ex(client_.context, &attr);
  }
  void exchange(ibv_cq_ex* cq, uint32_t count) {
    ibv_cq* plain = ibv_cq_ex_to_cq(cq);
    a_ = client_create_qp(&client_, plain);
    b_ = client_create_qp(&client_, plain);
    ASSERT_EQ(client_connect(&client_, a_, b_->qp_num), 0);
    ASSERT_EQ(client_connect(&client_, b_, a_->qp_num), 0);
    ibv_sge list{reinterpret_cast<uintptr_t>(client_.memory), 8, client_.mr->lkey};
    for (uint32_t i = 0; i < count; ++i) {
      ibv_recv_wr receive{};
      receive.wr_id = 1000 + i;
      receive.sg_list = &list;
      receive.num_sge = 1;
      ibv_recv_wr* bad_receive;
      ASSERT_EQ(ibv_post_recv(b_, &receive, &bad_receive), 0);
      ibv_send_wr wr{};
      wr.wr_id = i;
      wr.sg_list = &list;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND_WITH_IMM;
      wr.imm_data = 0x01020304;
      wr.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad;
      ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
    }
  }
  void destroy_qps() {
    EXPECT_EQ(ibv_destroy_qp(a_), 0);
    EXPECT_EQ(ibv_destroy_qp(b_), 0);
  }
  static int start(ibv_cq_ex* cq) {
    ibv_poll_cq_attr attr{};
    int result = ENOENT;
    for (const time_t give_up = time(nullptr) + 10; result == ENOENT && time(nullptr) < give_up;) {
      result = ibv_start_poll(cq, &attr);
    }
    return result;
  }

  ibv_qp* a_ = nullptr;
  ibv_qp* b_ = nullptr;
};

TEST_F(ExtendedCqTest, EveryFieldCanBeRead) {
  ibv_cq_ex* cq = create(uint64_t{IBV_WC_STANDARD_FLAGS} | kTimes | kCvlanAndTag);
  ASSERT_NE(cq, nullptr);
  timespec before, after;
  clock_gettime(CLOCK_REALTIME, &before);
  exchange(cq, 1);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  bool receive_seen = false;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(start(cq), 0);
    clock_gettime(CLOCK_REALTIME, &after);
    ASSERT_EQ(ibv_query_rt_values_ex(client_.context, &values), 0);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_vendor_err(cq), 0u);
    EXPECT_EQ(ibv_wc_read_slid(cq), 0u);
    EXPECT_EQ(ibv_wc_read_sl(cq), 0);
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0);
    EXPECT_EQ(ibv_wc_read_cvlan(cq), 0);
    EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0u);
    const uint64_t now = static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
                         static_cast<uint64_t>(values.raw_clock.tv_nsec);
    EXPECT_LE(ibv_wc_read_completion_ts(cq), now);
    // The two clocks are read one after the other: allow for being interrupted in between.
    const auto wallclock = ibv_wc_read_completion_wallclock_ns(cq);
    const auto in_ns = [](const timespec& t) {
      return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
    };
    EXPECT_GE(wallclock + 1'000'000'000, in_ns(before));
    EXPECT_LE(wallclock, in_ns(after) + 1'000'000'000);
    if (ibv_wc_read_opcode(cq) == IBV_WC_RECV) {
      receive_seen = true;
      EXPECT_EQ(cq->wr_id, 1000u);
      EXPECT_EQ(ibv_wc_read_qp_num(cq), b_->qp_num);
      EXPECT_EQ(ibv_wc_read_src_qp(cq), a_->qp_num);
      EXPECT_EQ(ibv_wc_read_byte_len(cq), 8u);
      EXPECT_EQ(ibv_wc_read_imm_data(cq), 0x01020304u);
      EXPECT_EQ(ibv_wc_read_wc_flags(cq), static_cast<unsigned int>(IBV_WC_WITH_IMM));
    } else {
      EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_SEND);
      EXPECT_EQ(ibv_wc_read_qp_num(cq), a_->qp_num);
    }
    ibv_end_poll(cq);
  }
  EXPECT_TRUE(receive_seen);
  destroy_qps();
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// Within a batch and from batch to batch. wallclock_test.cc sets the clocks.
TEST_F(ExtendedCqTest, WallClockTimesNeverDecrease) {
  constexpr uint32_t kCount = 8;
  ibv_cq_ex* cq = create(kTimes);
  ASSERT_NE(cq, nullptr);
  exchange(cq, kCount);
  uint64_t last = 0;
  for (uint32_t seen = 0; seen < 2 * kCount;) {
    ASSERT_EQ(start(cq), 0);
    do {
      const uint64_t time = ibv_wc_read_completion_wallclock_ns(cq);
      EXPECT_GE(time, last);
      EXPECT_EQ(ibv_wc_read_completion_wallclock_ns(cq), time) << "read twice";
      last = time;
      ++seen;
    } while (seen % 3 != 0 && ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
  }
  destroy_qps();
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(ExtendedCqTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(create(IBV_WC_EX_WITH_TM_INFO), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create(0, 1u << 5), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, 1u << 7), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create(0, IBV_CQ_INIT_ATTR_MASK_PD, 0, client_.pd), nullptr) << "not a parent domain";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(create(0, IBV_CQ_INIT_ATTR_MASK_PD, 0, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(create(0, 0, 0, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ExtendedCqTest, IgnoredOverrunOverwritesTheOldest) {
  ibv_cq_ex* cq = create(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, nullptr, 4);
  ASSERT_NE(cq, nullptr);
  ibv_cq* plain = ibv_cq_ex_to_cq(cq);
  ASSERT_EQ(plain->cqe, 4);
  exchange(cq, 8);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_modify_qp(b_, &attr, IBV_QP_STATE), 0);
  ibv_wc wc[16];
  EXPECT_EQ(ibv_poll_cq(plain, 16, wc), 4) << "16 have been there";
  destroy_qps();
  EXPECT_EQ(ibv_destroy_cq(plain), 0);
}

TEST_F(ExtendedCqTest, ParentDomainIsBusyWhileTheQueueLives) {
  ibv_parent_domain_init_attr init{};
  init.pd = client_.pd;
  ibv_pd* parent = ibv_alloc_parent_domain(client_.context, &init);
  ASSERT_NE(parent, nullptr);
  ibv_cq_ex* cq = create(IBV_WC_EX_WITH_BYTE_LEN, IBV_CQ_INIT_ATTR_MASK_PD, 0, parent);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

}  // namespace
