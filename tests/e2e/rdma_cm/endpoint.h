// SPDX-License-Identifier: BSD-2-Clause
// One rdma_cm_id of cm_exchange with its QP and memory, and the events of a channel.
#pragma once

#include <chrono>
#include <memory>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <string>
#include <vector>

#include "tests/e2e/rdma_cm/scenario.h"

namespace uroce::cm_exchange {

// A copy: the event has been acknowledged.
struct Event {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
  rdma_cm_id* listener;
  std::vector<uint8_t> data;
  rdma_conn_param connection;  // its private_data is not to be used
  rdma_ud_param datagrams;
};

class Channel {
 public:
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  rdma_event_channel* get() const { return channel_; }
  // Throws Wrong when none comes in time.
  Event next(std::chrono::seconds patience = std::chrono::seconds(120));
  // The next one is of this type, and of `id` if that is not null.
  Event expect(rdma_cm_event_type type, const rdma_cm_id* id);

 private:
  rdma_event_channel* const channel_;
};

struct DestroyId {
  void operator()(rdma_cm_id* id) const;
};
using Id = std::unique_ptr<rdma_cm_id, DestroyId>;

// Memory for one message each way, and a QP of the id's type with it.
class Memory {
 public:
  explicit Memory(rdma_cm_id* id);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void post_receive();
  void send(const std::vector<uint8_t>& bytes);
  // To where an ESTABLISHED event of a datagram id says.
  void send_datagram(const rdma_ud_param& to, const std::vector<uint8_t>& bytes);
  // The other side's memory, as it has said in `place`.
  void read(const std::vector<uint8_t>& place);
  // What the next receive brings, without the GRH of datagrams.
  std::vector<uint8_t> receive();
  // Of what has been read.
  const std::vector<uint8_t>& bytes() const { return in_; }
  // Shows the other side these bytes, and says where they lie: for read().
  std::vector<uint8_t> share(const std::vector<uint8_t>& bytes);

 private:
  ibv_wc wait(ibv_cq* queue) const;

  rdma_cm_id* const id_;
  std::vector<uint8_t> in_, out_, shared_;
  ibv_mr *in_region_ = nullptr, *out_region_ = nullptr, *shared_region_ = nullptr;
};

[[noreturn]] void fail_errno(const std::string& what);

}  // namespace uroce::cm_exchange
