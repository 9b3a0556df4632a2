// SPDX-License-Identifier: BSD-2-Clause
// Send and receive queues: rings of work queue elements (WQEs) between application threads and the engine.
//
// The application side (post) runs under the QP's post lock, held by the verbs shim. The engine side (everything else)
// runs under the lock of the QP's shard. Work requests are copied into the queue once, checked there before the engine
// can see them, and used where they are: nobody writes to them any more (architecture.md, decision 9).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace uroce::queue {

// The values of enum ibv_wr_opcode.
enum class WrOpcode : uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImmediate = 1,
  kSend = 2,
  kSendWithImmediate = 3,
  kRdmaRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInvalidate = 7,
  kBindMw = 8,
  kSendWithInvalidate = 9,
  kFlush = 14,
  kAtomicWrite = 15,
};

// The values of enum ibv_send_flags.
enum WrFlags : uint8_t { kFence = 1u << 0, kSignaled = 1u << 1, kSolicited = 1u << 2, kInline = 1u << 3 };

struct Sge {
  uint64_t address;
  uint32_t length;
  uint32_t lkey;
};

inline constexpr uint32_t kMaxSge = 16;

// To whom a UD message goes.
struct Datagram {
  uint32_t address_handle;
  uint32_t remote_qpn;
  uint32_t remote_qkey;
};

// What a memory window is to open, beside SendWqe::remote_address.
struct Binding {
  uint64_t length;
  uint32_t region_key;
  uint32_t access;
};

struct Operands {
  uint64_t compare_add;  // atomics: compare operand, or the value to add; FLUSH: bytes
  uint64_t swap;         // compare-and-swap; FLUSH: placement type | selectivity << 4
};

// The head of a slot; its SGEs or its inline data follow. With one SGE it fills a cache line.
struct SendWqe {
  uint64_t wr_id;
  uint64_t remote_address;     // RDMA and atomics; binding: where the window begins
  uint32_t rkey;               // RDMA and atomics; binding: the window's key so far
  uint32_t immediate_or_rkey;  // ImmDt in network order, or the rkey to invalidate or to bind anew in host order
  uint32_t length;             // bytes in all SGEs or inline
  uint8_t sge_count;
  WrOpcode opcode;
  uint8_t flags;  // WrFlags
  union {
    Operands operands;
    Datagram ud;
    Binding bind;
    uint32_t srqn_without_operands;
  };

  // XRC: the shared receive queue that the request is for. What has no immediate has room for it there.
  uint32_t xrc_srqn() const { return has_operands() ? immediate_or_rkey : srqn_without_operands; }
  void set_xrc_srqn(uint32_t srqn) { (has_operands() ? immediate_or_rkey : srqn_without_operands) = srqn; }

 private:
  bool has_operands() const { return opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd; }
};
static_assert(sizeof(SendWqe) + sizeof(Sge) == 64);

// What the requester remembers of a WQE that it has begun to send.
struct SendProgress {
  uint32_t first_psn = 0;
  uint32_t psn_count = 0;  // PSNs that the message consumes
  uint32_t responses = 0;  // READ: response packets received in order so far
  uint32_t message = 0;    // its number on this connection, as the peer's MSN counts: the first is 1
  bool started = false;
  bool taken = false;  // unreliable transports: the bytes of all its packets have been made
};

// The slots of a ring: allocated here, or placed in memory that outlives them. Nothing is written to them before they
// are used, so that the pages of a deep queue cost nothing as long as few requests are posted.
template <class T>
class Slots {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  static constexpr size_t kAlignment = 64;
  static constexpr size_t bytes(size_t count) { return (count * sizeof(T) + kAlignment - 1) & ~(kAlignment - 1); }

  explicit Slots(size_t count) : own_(new T[count]), first_(own_.get()) {}
  // In the next bytes(count) of `memory`, which goes on behind them; null: allocated.
  Slots(size_t count, std::byte*& memory) {
    if (memory == nullptr) {
      *this = Slots(count);
    } else {
      first_ = reinterpret_cast<T*>(memory);
      std::uninitialized_default_construct_n(first_, count);
      memory += bytes(count);
    }
  }
  T& operator[](size_t index) const { return first_[index]; }

 private:
  std::unique_ptr<T[]> own_;
  T* first_ = nullptr;
};

class SendQueue {
 public:
  // `depth` WQEs can be outstanding, of up to `max_sge` SGEs or `max_inline` bytes each. The slots lie in `memory`, if
  // that is not null: bytes() of it, aligned to kAlignment.
  SendQueue(uint32_t depth, uint32_t max_sge, uint32_t max_inline, std::byte* memory = nullptr);
  static size_t bytes(uint32_t depth, uint32_t max_sge, uint32_t max_inline);
  static constexpr size_t kAlignment = Slots<SendWqe>::kAlignment;

  uint32_t depth() const { return depth_; }
  uint32_t max_sge() const { return max_sge_; }
  uint32_t max_inline() const { return max_inline_; }

  // --- application side -------------------------------------------------------------------------------------------
  // A slot to fill, `ahead` places after the last published one; null when the queue is full.
  struct Slot {
    SendWqe* wqe;
    Sge* sges;             // max_sge() of them, or
    uint8_t* inline_data;  // max_inline() bytes, in the same place
  };
  bool reserve(uint32_t ahead, Slot& out);
  // Makes `count` reserved slots visible to the engine, for good: nobody writes to them until they are released. Counts
  // and lengths are what the slots hold, whatever they say.
  void publish(uint32_t count);

  // --- engine side --------------------------------------------------------------------------------------------------
  // Indices count up for ever and wrap at 2^32; [tail, fetched) have been begun, [fetched, head) are posted.
  uint32_t head() const { return head_.load(std::memory_order_acquire); }
  uint32_t fetched() const { return fetched_; }
  uint32_t tail() const { return tail_.load(std::memory_order_relaxed); }

  struct Entry {
    const SendWqe& wqe;
    std::span<const Sge> sges;   // empty when inline
    const uint8_t* inline_data;  // wqe.length bytes when flagged kInline
    SendProgress& progress;
  };
  // What the WQE posted at `index`, in [fetched, head), is to do.
  WrOpcode posted_opcode(uint32_t index) const { return wqe(index).opcode; }
  // Begins the next posted WQE: no progress so far.
  void fetch() { progress_[fetched_++ & mask_] = SendProgress{}; }
  Entry entry(uint32_t index) {
    SendWqe& slot = wqe(index);
    return {slot, {sges(slot), slot.sge_count}, inline_data(slot), progress_[index & mask_]};
  }
  // Frees the oldest entry for posting.
  void release() { tail_.store(tail() + 1, std::memory_order_release); }
  // Drops everything (QP to RESET). The caller excludes posters.
  void reset();

 private:
  struct alignas(64) CacheLine {
    std::byte bytes[64];
  };
  static size_t lines(uint32_t depth, size_t stride);

  SendWqe& wqe(uint32_t index) const {
    return *reinterpret_cast<SendWqe*>(reinterpret_cast<std::byte*>(&slots_[0]) + size_t{index & mask_} * stride_);
  }
  // Behind the WQE.
  static Sge* sges(SendWqe& wqe) { return reinterpret_cast<Sge*>(&wqe + 1); }
  static uint8_t* inline_data(SendWqe& wqe) { return reinterpret_cast<uint8_t*>(&wqe + 1); }
  void check(SendWqe& wqe) const;

  // A cache line that the poster writes: the engine has to look at it anyway.
  alignas(64) const uint32_t depth_;
  const uint32_t mask_;
  const uint32_t max_sge_;
  const uint32_t max_inline_;
  const uint32_t stride_;  // from slot to slot
  const Slots<CacheLine> slots_;
  const std::unique_ptr<SendProgress[]> progress_;
  std::atomic<uint32_t> head_{0};
  uint32_t seen_tail_ = 0;  // as much of `tail_` as the poster has had to know so far
  // One that the engine writes.
  alignas(64) std::atomic<uint32_t> tail_{0};
  uint32_t fetched_ = 0;
};

struct ReceiveWqe {
  uint64_t wr_id = 0;
  uint32_t sge_count = 0;
  uint32_t length = 0;  // bytes in all SGEs
};

class ReceiveQueue {
 public:
  // `memory` as for a SendQueue.
  ReceiveQueue(uint32_t depth, uint32_t max_sge, std::byte* memory = nullptr);
  static size_t bytes(uint32_t depth, uint32_t max_sge);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  uint32_t depth() const { return depth_; }
  uint32_t max_sge() const { return max_sge_; }

  // --- application side -------------------------------------------------------------------------------------------
  // Begins the receive request `ahead` places after the last published one: room for its SGEs, to be filled. Null when
  // the queue is full, or with more than max_sge() SGEs.
  Sge* reserve(uint32_t ahead, uint64_t wr_id, size_t sge_count);
  // Makes `count` reserved requests visible to the engine.
  void publish(uint32_t count);
  // One request; false when full or with more than max_sge() SGEs.
  bool post(uint64_t wr_id, std::span<const Sge> sges);

  // --- engine side --------------------------------------------------------------------------------------------------
  bool empty() const { return available() == 0; }
  // Receive requests that are posted and not taken. Sequentially consistent with publish(): either the poster sees that
  // the QP has failed, or what it posted is seen here (Schedule::publish_state).
  uint32_t available() const { return head_.load(std::memory_order_seq_cst) - tail_.load(std::memory_order_relaxed); }
  // Takes the oldest request: copies it to `wqe` and `sges`, which has room for max_sge(); more than there is room for
  // is left out. False when empty.
  bool take(ReceiveWqe& wqe, std::span<Sge> sges);
  void reset();
  // From now on `depth` requests fit. False: more are posted, nothing changes. No thread posts meanwhile. Throws
  // std::bad_alloc.
  bool resize(uint32_t depth);

  // Shared receive queues: from now on limit_reached() is true once, when fewer than `limit` requests are left
  // (IBTA 10.2.9.2). 0 disarms.
  void arm_limit(uint32_t limit) { limit_ = limit; }
  uint32_t limit() const { return limit_; }
  bool limit_reached() {
    if (limit_ == 0 || available() >= limit_) return false;
    limit_ = 0;
    return true;
  }

 private:
  // Cache lines as in a SendQueue.
  alignas(64) uint32_t depth_;
  uint32_t mask_;
  const uint32_t max_sge_;
  uint32_t seen_tail_ = 0;
  Slots<ReceiveWqe> wqes_;
  Slots<Sge> sges_;
  std::atomic<uint32_t> head_{0};
  alignas(64) std::atomic<uint32_t> tail_{0};
  uint32_t limit_ = 0;  // under the lock of the shard
};

}  // namespace uroce::queue
