// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects of one process, and one connected QP with the rules for its completions. Used by all scenarios.
#pragma once

#include <cstdint>
#include <deque>
#include <infiniband/verbs.h>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/memory_faults/control.h"

namespace uroce::memory_faults {

class Device {
 public:
  Device(const std::string& name, int gid_index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_gid gid{};
  const uint8_t gid_index;

  // The next asynchronous event, acknowledged. Null: none within `milliseconds`.
  std::optional<ibv_async_event> event(int milliseconds) const;
};

enum class Drive {
  kPoll,   // the application polls: packets are handled in its thread
  kSleep,  // it sleeps on the completion channel, or does not look at all: the library's own thread handles them
};

// What one work queue has been given and has not completed. Every WR completes once, in order: first with success, then
// one with an error, then all with flush errors.
class Outstanding {
 public:
  explicit Outstanding(const char* name) : name_(name) {}

  uint64_t next_id() const { return next_; }
  void posted() { ++next_; }
  size_t count() const { return static_cast<size_t>(next_ - due_); }
  void complete(const ibv_wc& wc);

  uint64_t successes() const { return successes_; }
  // The error that ended the queue; success: none yet.
  ibv_wc_status error() const { return error_; }
  // It ended with this error, and nothing is left.
  void expect_ended(ibv_wc_status error) const;

 private:
  const std::string name_;
  uint64_t next_ = 0, due_ = 0, successes_ = 0;
  ibv_wc_status error_ = IBV_WC_SUCCESS;
};

class Pair {  // this process' end of a QP pair
 public:
  static constexpr uint32_t kDepth = 8;  // of a work queue that is kept full
  struct Depths {
    uint32_t sends = kDepth, receives = kDepth;
    int send_cqes = 64, receive_cqes = 64;
  };
  Pair(const Device& device, const Control& control, Drive drive, const Depths& depths);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // `wr.wr_id`, the SGE and signaling are filled in here.
  void post(ibv_send_wr wr, ibv_sge sge);
  void post_receive(ibv_sge sge);
  // Takes completions. kSleep: waits for some first.
  void take();
  // Only looks, whatever the drive. False: nothing there.
  bool look();
  // Takes until the queue is empty.
  void drain(const Outstanding& queue);
  // To the error state, and everything flushed: for a side whose QP has seen no error.
  void end();
  ibv_qp_state state() const;
  bool is_full(const Outstanding& queue) const { return queue.count() >= kDepth; }

  Outstanding sends{"send queue"}, receives{"receive queue"};
  ibv_qp* qp = nullptr;
  ibv_cq *send_cq = nullptr, *receive_cq = nullptr;

 private:
  void connect(const Control& control);
  void modify(ibv_qp_attr& attr, int mask) const;
  bool look(ibv_cq* cq, Outstanding& queue);

  const Device& device_;
  const Drive drive_;
  ibv_comp_channel* channel_ = nullptr;
};

}  // namespace uroce::memory_faults
