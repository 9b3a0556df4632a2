// SPDX-License-Identifier: BSD-2-Clause
// One direction between two processes, as NCCL's network does it over RC. The receiver says by an RDMA WRITE into a
// ring of the sender's where the next message may go, and posts receives without buffers; the sender splits the message
// over several queue pairs and WRITEs it with immediate data; the receiver then READs a byte from itself, behind which
// a GPU would see all of the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "devices.h"

namespace uroce::nccl_style {

constexpr size_t kSlots = 8;  // messages under way
constexpr size_t kQps = 2;
constexpr size_t kMostBytes = 1 << 20;

struct QpSide {
  uint32_t qpn;
  uint32_t has_ece;
  ibv_ece ece;
};

// What one side tells the other.
struct Side {
  std::array<QpSide, kQps> qps;
  ibv_gid gid;
  uint32_t mtu;
  uint32_t ring_rkey;  // of the sender
  uint64_t ring_address;
};

// Where a message may go. `number` is the last in memory, and written with the others in one WRITE.
struct Grant {
  uint64_t address;
  uint32_t rkey;
  uint32_t bytes;
  uint64_t padding;
  uint64_t number;  // of the message, from 1
};

struct Domain {
  Domain(const Symbols& symbols, const Device& chosen, int gid_index_chosen);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  const Symbols& verbs;
  const Device& device;
  const int gid_index;
  ibv_gid gid{};
  ibv_pd* pd;
};

// Memory of its own that is registered.
class Region {
 public:
  enum class Kind { kHost, kDmabuf };
  Region(Domain& domain, size_t size, Kind kind);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  const ibv_mr& mr() const { return *mr_; }

 private:
  Domain& domain_;
  size_t size_;
  int fd_ = -1;  // of the stand-in for a GPU's memory
  std::byte* data_;
  ibv_mr* mr_;
};

// Queue pairs of one direction and their completion queue.
class Endpoint {
 public:
  Endpoint(Domain& domain, unsigned access);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  ibv_qp* make_qp(unsigned access);  // in INIT
  void connect(ibv_qp* qp, uint32_t peer, const ibv_gid& gid, ibv_mtu mtu);
  Side describe() const;
  void take_ece(const Side& peer);
  void connect_all(const Side& peer);
  // At most one; throws Failure when it is an error.
  bool poll(ibv_wc& completion);

  Domain& domain;
  ibv_cq* cq;
  std::array<ibv_qp*, kQps> qps{};
};

class Sender {
 public:
  Sender(Domain& domain, unsigned rank, size_t messages);
  Side describe() const;
  void connect(const Side& receiver) {
    endpoint_.take_ece(receiver);
    endpoint_.connect_all(receiver);
  }
  void progress();
  bool done() const { return completed_ == messages_; }

 private:
  void send(size_t message, const Grant& grant);
  void post(size_t qp, size_t message, const Grant& grant, size_t size);

  unsigned rank_;
  size_t messages_;
  Region buffers_, ring_;  // before the queue pairs that write there
  Endpoint endpoint_;
  size_t posted_ = 0, completed_ = 0;
  std::array<size_t, kSlots> pending_{};  // completions to come
};

class Receiver {
 public:
  Receiver(Domain& domain, unsigned peer_rank, size_t messages, Region::Kind kind);
  // With what the sender has said.
  Side connect(const Side& sender);
  void progress();
  bool done() const { return verified_ == messages_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void grant(size_t message);
  void take(const ibv_wc& completion);
  void flush(size_t slot);
  void verify(size_t slot);

  unsigned peer_rank_;
  size_t messages_;
  Region buffers_, grants_, flushed_;
  Endpoint endpoint_;
  ibv_qp* flush_qp_;
  Side sender_{};
  size_t granted_ = 0, verified_ = 0;
  uint64_t bytes_ = 0;
  struct Slot {
    size_t message = 0;
    size_t waits_for = 0;  // arrivals
    size_t size = 0;       // as the immediate data says
    bool busy = false;
  };
  std::array<Slot, kSlots> slots_{};
};

}  // namespace uroce::nccl_style
