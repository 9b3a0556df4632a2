// SPDX-License-Identifier: BSD-2-Clause
// One side's device, memory and RC QP.
#pragma once

#include <infiniband/verbs.h>
#include <string>
#include <vector>

#include "tests/e2e/data_in_order/plan.h"
#include "tests/e2e/data_in_order/shared.h"

namespace uroce::data_in_order {

struct Settings {
  std::string device;
  int gid_index = 0;
  Operation operation = Operation::kWrite;
  int path_mtu = 1024;
  uint32_t messages = 1000;
  uint32_t seed = 1;
  bool sleeps = false;  // the destination looks at its queue now and then: the library's own thread places the bytes
};

class Endpoint {
 public:
  Endpoint(const Settings& settings, Shared& shared, uint32_t side);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void connect();
  uint8_t* slot(uint32_t slot) { return first_ + slot * kSlotSize; }
  // Of a message, here or on the other side.
  uint8_t* bytes(const Message& m) { return slot(m.slot()) + m.offset; }

  void write(const Message& m) { post(m, IBV_WR_RDMA_WRITE); }
  void send(const Message& m) { post(m, IBV_WR_SEND); }
  void read(const Message& m) { post(m, IBV_WR_RDMA_READ); }
  // In two SGEs.
  void receive(const Message& m);

  // Takes completions; they come in the order of the messages.
  void poll();
  uint32_t completed() const { return completed_.load(std::memory_order_acquire); }

  // What the device says of the order of the operation's data.
  int data_in_order(Operation operation) const;

 private:
  void post(const Message& m, ibv_wr_opcode opcode);
  void modify(ibv_qp_attr& attr, int mask);

  const Settings& settings_;
  Shared& shared_;
  const uint32_t side_;
  std::vector<uint8_t> memory_;
  uint8_t* first_;  // slot
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::atomic<uint32_t> completed_{0};
};

}  // namespace uroce::data_in_order
