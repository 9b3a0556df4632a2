// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects of one side: device, PD, completion queues and channel, memory regions, RC QPs.
// Set-up and tear-down, and the rules that hold for every completion: each signaled WR once, in order, no other.
// Used by session.cc, requester.cc and responder.cc, and by rc_errors (../errors). Only public libibverbs calls.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <infiniband/verbs.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/e2e/transfer/verify.h"

namespace uroce::transfer {

struct VerbsDeleter {
  void operator()(ibv_context* p) const;
  void operator()(ibv_pd* p) const;
  void operator()(ibv_mr* p) const;
  void operator()(ibv_mw* p) const;
  void operator()(ibv_comp_channel* p) const;
  void operator()(ibv_cq* p) const;
  void operator()(ibv_qp* p) const;
};
template <typename T>
using Verbs = std::unique_ptr<T, VerbsDeleter>;

// Throws the failure of a verbs call.
[[noreturn]] void fail_verbs(const std::string& call, int error);

// Whose device it is: providers differ where the specification leaves room, and rxe beyond that (docs/interop.md).
enum class Provider : uint8_t { kUroce, kRxe, kOther };
Provider provider_of(const ibv_context* context);

class Device {
 public:
  static constexpr uint8_t kPort = 1;

  Device(const std::string& name, int gid_index);  // empty name: the first device

  ibv_context* context() const { return context_.get(); }
  const ibv_device_attr& attributes() const { return attributes_; }
  const ibv_gid& gid() const { return gid_; }
  uint8_t gid_index() const { return gid_index_; }
  uint32_t active_mtu() const { return active_mtu_; }  // bytes
  // Asynchronous events that no healthy run produces, since the last call; empty when none. `port_changes`: that the
  // port goes down and up is part of the run.
  std::string unexpected_events(bool port_changes);

 private:
  Verbs<ibv_context> context_;
  ibv_device_attr attributes_{};
  ibv_gid gid_{};
  uint8_t gid_index_;
  uint32_t active_mtu_ = 0;
};

struct RegisteredMemory {
  RegisteredMemory(ibv_pd* pd, uint64_t slots, size_t slot_size, uint64_t guard_key, int access);

  GuardedMemory memory;
  Verbs<ibv_mr> mr;
};

// What a WR is for; the whole of its wr_id.
enum class Role : uint8_t { kRequest = 1, kReceive, kBind };
struct WorkId {
  Role role;
  uint32_t qp;      // index, not QPN
  uint64_t number;  // of the message

  uint64_t encode() const { return static_cast<uint64_t>(role) << 56 | static_cast<uint64_t>(qp) << 44 | number; }
  static WorkId decode(uint64_t wr_id);
  std::string describe() const;
};

// The send CQ and the receive CQ of one side, polled always or after an event only.
class Completions {
 public:
  Completions(ibv_context* context, int send_depth, int receive_depth, bool events);

  ibv_cq* send_cq() const { return queues_[0].cq.get(); }
  ibv_cq* receive_cq() const { return queues_[1].cq.get(); }
  int descriptor() const { return channel_ ? channel_->fd : -1; }
  // Takes the completions there are; with events, from the queues that had one.
  void poll(std::vector<ibv_wc>& out);
  // Completions that are there although no event told of them.
  size_t count_without_event();

 private:
  struct Queue {
    Verbs<ibv_cq> cq;
    bool ready = true;  // may hold completions that no event will tell of
    uint64_t arms = 0;
    uint64_t events = 0;
  };
  void take_events();
  static void drain(Queue& queue, std::vector<ibv_wc>& out);
  static void arm(Queue& queue);

  Verbs<ibv_comp_channel> channel_;
  std::array<Queue, 2> queues_;
};

// What the peer needs to know to reach a QP, and the parameters agreed on.
struct QueuePairAddress {
  uint32_t qpn;
  uint32_t psn;
};
struct ConnectionParameters {
  ibv_gid remote_gid;
  uint32_t mtu;             // bytes
  uint8_t initiator_depth;  // READs and atomics outstanding from here
  uint8_t responder_depth;  // READs and atomics accepted at once
  uint8_t ack_timeout;      // 4.096 us * 2^n
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;  // for ever
  uint8_t rnr_timer = 6;  // code of what RNR NAKs from here ask for: 80 us
};

class QueuePair {
 public:
  struct Depths {
    uint32_t sends;
    uint32_t receives;
    uint32_t pieces;  // SGEs per WR
    uint32_t inline_bytes;
  };
  QueuePair(ibv_pd* pd, const Completions& completions, uint32_t index, const Depths& depths);

  uint32_t index() const { return index_; }
  uint32_t qpn() const { return qp_->qp_num; }
  ibv_qp* get() const { return qp_.get(); }
  // RESET to RTS.
  void connect(const Device& device, QueuePairAddress local, QueuePairAddress remote, const ConnectionParameters& p);

  // Post a chain of WRs in one call and remember it.
  void post_send(ibv_send_wr* chain);
  void post_receive(ibv_recv_wr* chain);

  // A WR that is over: `wc` is its completion, or nullptr when it was unsignaled.
  struct Retired {
    WorkId id;
    const ibv_wc* wc;
  };
  // Takes a completion of this QP: everything that it retires, oldest first. Throws on a completion that is not due.
  std::vector<Retired> retire(const ibv_wc& wc);
  size_t receives_outstanding() const { return receives_.size(); }

 private:
  struct Outstanding {
    uint64_t wr_id;
    bool signaled;
  };

  const uint32_t index_;
  Verbs<ibv_qp> qp_;
  std::deque<Outstanding> sends_;
  std::deque<Outstanding> receives_;
};

}  // namespace uroce::transfer
