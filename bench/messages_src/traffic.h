// SPDX-License-Identifier: BSD-2-Clause
// The two sides of the messages of one thread, as an application would write them: the requester keeps its window full
// and polls, the responder polls and posts the receives again that were used.
#pragma once

#include <array>
#include <cstdint>
#include <infiniband/verbs.h>
#include <span>
#include <vector>

#include "bench/messages_src/settings.h"
#include "bench/messages_src/split.h"
#include "bench/verbs_objects.h"

namespace uroce::messages {

using namespace bench;  // verbs_objects.h

inline constexpr uint32_t kMostPolled = 32;  // completions of one ibv_poll_cq()

// Memory of one thread on one side: a place for each message of a list.
inline size_t buffer_size(const Settings& settings) {
  return size_t{settings.list} * settings.size;
}

class Requester {
 public:
  // `memory`: this thread's part of the device's; the same part of `peer` is written or read.
  Requester(const Settings& settings, Device& device, size_t memory, Device& peer);

  void start(uint64_t messages) {
    to_post_ += messages;
    to_complete_ += messages;
  }
  bool done() const { return to_complete_ == 0; }
  bool step();  // posts what the window allows and polls once; false: nothing was there

  std::span<const QpPtr> qps() const { return qps_; }
  Split take_split() { return meter_.take(); }

 private:
  void post_list();
  void complete(const ibv_wc& completion);

  const uint32_t list_, window_, depth_;
  CqPtr cq_;
  std::vector<QpPtr> qps_;
  std::vector<uint32_t> under_way_;  // messages, by QP
  std::vector<ibv_sge> sges_;
  std::vector<ibv_send_wr> requests_;  // the list, posted again and again
  uint32_t turn_ = 0;                  // the QP that is next
  uint32_t in_flight_ = 0;
  uint64_t to_post_ = 0, to_complete_ = 0;
  Meter meter_;
};

class Responder {
 public:
  Responder(const Settings& settings, Device& device, size_t memory);

  void post_receives();  // once, when the QPs are connected
  bool step();           // polls once; false: nothing was there

  std::span<const QpPtr> qps() const { return qps_; }
  Split take_split() { return meter_.take(); }

 private:
  void post(uint64_t qp, uint32_t count);

  const uint32_t receives_;  // of a QP; 0: what is sent needs none
  CqPtr cq_;
  std::vector<QpPtr> qps_;
  ibv_sge sge_;
  std::array<ibv_recv_wr, kMostPolled> requests_{};
  Meter meter_;
};

}  // namespace uroce::messages
