// SPDX-License-Identifier: BSD-2-Clause
// The completion queue: a ring of CQEs filled by the engine and emptied by application threads.
//
// append() and publish() are called under the lock of the shard that fills the queue (single producer). A queue that
// several shards fill has a lock for them: push_shared(). poll() may be called from any number of threads, unless the
// application promised to use the queue from one thread at a time. arm() and publish() agree through one atomic word,
// so that no completion that is published after arm() goes unseen. What changes the ring itself (resize, purge) holds
// the locks of all shards against the producers and the poll lock, inside them, against the consumers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/spinlock.h"
#include "base/time.h"

namespace uroce::queue {

// The values of enum ibv_wc_status.
enum class WcStatus : uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kFlushError = 5,
  kMwBindError = 6,
  kBadResponseError = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequestError = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kRemoteAborted = 16,
  kFatalError = 19,
  kResponseTimeout = 20,
  kGeneralError = 21,
};

// The values of enum ibv_wc_opcode.
enum class WcOpcode : uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInvalidate = 6,
  kFlush = 8,
  kAtomicWrite = 9,
  kReceive = 128,
  kReceiveRdmaWithImmediate = 129,
};

// The values of enum ibv_wc_flags.
enum WcFlags : uint8_t { kWcGrh = 1u << 0, kWcWithImmediate = 1u << 1, kWcWithInvalidate = 1u << 3 };

// What is in front of a datagram, as ConnectX reports it in place of the SL (IBTA A17.4.5.1 asks for such a flag): bit
// 3 is UDP, the rest the IP version. UCX reads it to find the destination address.
enum class NetworkType : uint8_t { kNone = 0, kIpv6 = 9, kIpv4 = 10 };

struct Cqe {
  uint64_t wr_id = 0;
  uint64_t timestamp = 0;          // ns of the engine's clock, when it was pushed
  uint32_t qpn = 0;                // local QP
  uint32_t source_qpn = 0;         // remote QP, UD only
  uint32_t byte_length = 0;        // receives, READs and atomics
  uint32_t immediate_or_rkey = 0;  // ImmDt as received (network order), or the invalidated rkey (host order)
  uint32_t vendor_error = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  uint8_t flags = 0;  // WcFlags
  NetworkType network_type = NetworkType::kNone;
  bool solicited = false;  // the peer asked for an event, or an error: wakes kSolicited waiters
};

class CompletionQueue;

// Told when an armed queue gets what it was armed for; implemented by the completion channel.
class CompletionNotifier {
 public:
  virtual void on_completion(CompletionQueue& cq) = 0;

 protected:
  ~CompletionNotifier() = default;
};

// Of a ring that the queue has allocated; one in memory that it was given is its owner's.
struct FreeRing {
  bool allocated_here = true;
  void operator()(Cqe* ring) const {
    if (allocated_here) std::free(ring);
  }
};

class CompletionQueue {
 public:
  enum class Arm : uint8_t { kNone = 0, kSolicited = 1, kAny = 2 };

  enum class Overrun : uint8_t { kFail, kOverwrite };

  // `capacity` CQEs at least fit (rounded up to a power of two). `notifier` may be null and must outlive the queue. The
  // ring lies in `memory`, if that is not null: bytes() of it, aligned to kAlignment, until the queue is resized or
  // ends. `consumers`: whether several threads may use the queue at the same time, polling it or destroying its QPs.
  enum class Consumers : uint8_t { kOne, kMany };
  CompletionQueue(uint32_t capacity, CompletionNotifier* notifier, Overrun overrun = Overrun::kFail,
                  std::byte* memory = nullptr, Consumers consumers = Consumers::kMany);
  static size_t bytes(uint32_t capacity);
  static constexpr size_t kAlignment = 64;

  // The producer's; other threads read it while nobody resizes.
  uint32_t capacity() const { return mask_ + 1; }

  // Puts the CQE behind the last one, for consumers to see once it is published. False: overrun, the CQE is lost (IBTA
  // 11.6.3.1: the caller raises CQ_ERR and takes the QP to the error state). With Overrun::kOverwrite the oldest CQE is
  // lost instead, and the result is true.
  bool append(const Cqe& cqe);
  // Shows consumers what was appended, all at once, and notifies of it.
  void publish();
  bool push(const Cqe& cqe) {
    const bool appended = append(cqe);
    publish();
    return appended;
  }

  // Calls consume(const Cqe&) for up to `limit` CQEs, oldest first, and returns how many there were.
  template <class Consume>
  uint32_t poll(uint32_t limit, Consume&& consume) {
    if (empty()) return 0;
    std::lock_guard guard(poll_lock_);
    const uint32_t head = head_.load(std::memory_order_seq_cst);
    uint32_t tail = tail_.load(std::memory_order_relaxed);
    uint32_t count = 0;
    for (; count < limit && tail != head; ++count, ++tail) consume(ring_[tail & mask_]);
    tail_.store(tail, std::memory_order_release);
    return count;
  }

  // Whether there is a CQE, among the `limit` oldest, that the peer has caused, and not by acknowledging: what a
  // program that has posted a request may wait for. By a consumer.
  bool holds_answer(uint32_t limit) {
    std::lock_guard guard(poll_lock_);
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    const uint32_t end = tail + std::min(limit, head_.load(std::memory_order_seq_cst) - tail);
    for (uint32_t at = tail; at != end; ++at) {
      const Cqe& cqe = ring_[at & mask_];
      if (cqe.status != WcStatus::kSuccess || (cqe.opcode != WcOpcode::kSend && cqe.opcode != WcOpcode::kRdmaWrite))
        return true;
    }
    return false;
  }

  // Whether only one thread at a time may be a consumer.
  bool has_one_consumer() const { return !poll_lock_.needed(); }

  // Sequentially consistent, as what a poll after arm() must see is ordered by that (see publish()).
  bool empty() const { return head_.load(std::memory_order_seq_cst) == tail_.load(std::memory_order_relaxed); }

  // One notification for the next matching CQE (IBTA 11.4.2.2). A stronger arm is never weakened by a weaker one.
  void arm(Arm arm);
  bool armed() const { return armed_.load(std::memory_order_relaxed) != 0; }
  // The producer's: another number after every notification.
  uint32_t reported() const { return reported_.load(std::memory_order_relaxed); }
  // After arm(): perhaps there are completions that nobody has polled and that came after the last notification, while
  // the queue was not armed. ConnectX notifies of those at once, as it is told the consumer's position with the arming;
  // UCX relies on it and does not poll between arming and sleeping. Then report_missed(), under the locks of
  // all shards.
  bool has_missed() const { return missed_from() != head_.load(std::memory_order_seq_cst); }
  void report_missed();
  // Reports an armed queue although nothing has come. Likewise.
  void report_early();

  // Where the last completion is, to be taken after an append() for the purge() of its QP. The producer's.
  struct Mark {
    uint32_t end;      // behind it then
    uint64_t removed;  // how many purge() had removed before
  };
  Mark mark() const { return {filled_, removed_}; }
  // Removes the completions of a QP that is being destroyed: of `qpn`, none behind `last`. Costs nothing where those
  // have been polled, however many there are of others. Caller holds the locks of all shards.
  void purge(uint32_t qpn, const Mark& last);
  void purge(uint32_t qpn) { purge(qpn, mark()); }

  // A completion has been lost.
  bool overrun() const { return overrun_.load(std::memory_order_relaxed); }
  // True for the first who asks: it tells the application.
  bool tell_overrun() { return !overrun_told_.exchange(true, std::memory_order_relaxed); }

  // --- the shards of the device that fill it, as bits. Changed under the locks of all of them.
  uint32_t shards() const { return shards_.load(std::memory_order_relaxed); }
  void add_shard(uint32_t shard) {
    if (shards() == 0) home_ = shard;
    shards_.store(shards() | 1u << shard, std::memory_order_relaxed);
  }
  // The first of them; there is one.
  uint32_t home() const { return home_; }
  bool shared() const { return (shards() & (shards() - 1)) != 0; }
  // append(), publish() and mark() where it is shared. Under the lock of one of the shards.
  bool push_shared(const Cqe& cqe, Mark& last);

  // From now on at least `capacity` CQEs fit; what is in the queue stays. False, and nothing changes: there are more of
  // them. Caller holds the locks of all shards; `ring` comes from make_ring(capacity) before and is the old one after,
  // so that nobody allocates under locks.
  using Ring = std::unique_ptr<Cqe[], FreeRing>;
  static Ring make_ring(uint32_t capacity);  // throws std::bad_alloc
  bool resize(uint32_t capacity, Ring& ring);

  // --- moderation: fewer notifications. Set under the locks of all shards; expire() under that of home(). ---
  // An armed queue is reported when `count` completions of the kind it was armed for have come, or `period` after the
  // first of them. Either being 0 switches it off, as in ConnectX: a queue could hold back the last event for ever. A
  // queue that several shards fill holds nothing back.
  // Whenever there is a new deadline and it is sooner than `*soonest`, it is written there.
  void moderate(uint16_t count, Duration period, Time* soonest = nullptr);
  bool moderated() const { return moderation_count_ > 1; }
  // When expire() has a notification to deliver; kNever if none.
  Time deadline() const { return deadline_; }
  void expire(Time now);

 private:
  friend class CompletionBurst;

  bool full();
  bool make_room();
  bool matches(uint8_t armed, const Cqe& cqe) const;
  uint32_t missed_from() const;
  bool hold_back(const Cqe& cqe);
  void notify(uint32_t reported);

  uint32_t mask_;
  Ring ring_;
  CompletionNotifier* const notifier_;
  const Overrun on_overrun_;
  uint64_t removed_ = 0;  // by purge(), so far; the producer's
  // The producer's: completions since the queue was armed that have not been reported.
  uint16_t moderation_count_ = 0;
  uint16_t held_back_ = 0;
  Duration moderation_period_{};
  Time deadline_ = kNever;
  Time* soonest_ = nullptr;
  uint32_t home_ = 0;
  CompletionQueue* next_in_burst_ = nullptr;  // CompletionBurst's
  bool in_burst_ = false;                     // likewise
  // The producer's: the next to fill, and as much of `tail_` as it has had to know so far.
  uint32_t filled_ = 0;
  uint32_t seen_tail_ = 0;
  SpinLock fill_lock_;                         // of the shards, where there are several
  alignas(64) std::atomic<uint32_t> head_{0};  // behind the last that is published
  std::atomic<uint8_t> armed_{0};
  std::atomic<bool> overrun_{false}, overrun_told_{false};
  std::atomic<uint32_t> shards_{0};
  std::atomic<uint32_t> reported_{0};  // head at the last notification: the application knows of what is before it
  alignas(64) std::atomic<uint32_t> tail_{0};  // next to take
  OptionalLock poll_lock_;
};

}  // namespace uroce::queue
