// SPDX-License-Identifier: BSD-2-Clause
// The objects behind the pointers that applications hold. Each begins with its ibv_* struct as the libibverbs ABI lays
// it out, followed by what the shim keeps with it; from() leads from the one to the other.
// The layouts that applications reach into are in docs/reference/verbs-abi.md and asserted in tests/abi/verbs/.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "abi/verbs/async_source.h"
#include "abi/verbs/event_queue.h"
#include "abi/verbs/wallclock.h"
#include "base/caller_state.h"
#include "base/fork.h"
#include "base/spinlock.h"
#include "base/unique_fd.h"
#include "engine/engine.h"
#include "engine/queue/completion_queue.h"
#include "engine/queue/work_queue.h"
#include "process/host.h"

namespace uroce::verbs {

// --- device ----------------------------------------------------------------------------------------------------------

struct DeviceAbi {
  ibv_device verbs;
  // libmlx5 and libefa look behind ibv_device for their provider's mark; zeroes say "not yours".
  uint64_t provider_marks[8];
};

// Lives as long as the process: a pointer from ibv_get_device_list() never dangles.
struct Device : DeviceAbi {
  engine::DeviceInfo info;
  std::atomic<uint64_t> device_memory_used{0};  // bytes, by ibv_alloc_dm() of all contexts
};

// Device memory in bytes, as max_dm_size reports it.
inline constexpr uint64_t kMaxDeviceMemory = 64u << 20;

inline Device& from(ibv_device* device) {
  return *static_cast<Device*>(reinterpret_cast<DeviceAbi*>(device));
}

// --- context ---------------------------------------------------------------------------------------------------------

// verbs_context grows at its beginning: 648 bytes up to rdma-core 56, 672 from 60, 696 from 64.
inline constexpr size_t kNewestVerbsContextSize = 696;

struct ContextAbi {
  // Slots newer than the header this is built with, and one that nobody knows; null means unsupported.
  void* newer_slots[(kNewestVerbsContextSize - sizeof(verbs_context)) / sizeof(void*) + 1];
  verbs_context verbs;
};

// Objects of one kind that the engine holds for a context.
template <class Object>
class LiveObjects {
 public:
  void add(Object* object) {
    std::lock_guard guard(mutex_);
    objects_.insert(object);
  }
  // False: it is not there, or was taken.
  bool remove(Object* object) {
    std::lock_guard guard(mutex_);
    return objects_.erase(object) != 0;
  }
  std::set<Object*> take_all() {
    std::lock_guard guard(mutex_);
    return std::exchange(objects_, {});
  }

 private:
  std::mutex mutex_;
  std::set<Object*> objects_;
};

struct Ah;
struct Qp;
struct Cq;
struct Srq;
class CommandFile;
struct MemoryHandles;  // memory_objects.h

struct Context : ContextAbi {
  const uint32_t process = process_generation();  // that opened the device; see orphan.h
  std::shared_ptr<engine::Engine> engine;
  std::shared_ptr<engine::QuotaAccount> quota;  // shared with the contexts imported from this one
  engine::EventHandler on_event;                // puts the engine's events into async_events
  EventQueue async_events;
  DeviceSources own_events{{.port_num = 1}};  // into async_events
  std::atomic<uint32_t> users{1};             // the application until it closes the device, PDs, CQs and channels
  LiveObjects<Qp> qps;
  LiveObjects<Srq> srqs;
  LiveObjects<Ah> ahs;
  std::shared_ptr<MemoryHandles> memory;
  LiveObjects<Cq> moderated_cqs;
  std::shared_ptr<CommandFile> command_file;  // shared with the contexts imported from this one
};

inline Context& from(ibv_context* context) {
  auto* bytes = reinterpret_cast<uint8_t*>(context) - offsetof(ContextAbi, verbs.context);
  return *static_cast<Context*>(reinterpret_cast<ContextAbi*>(bytes));
}

// The last user takes the context along: objects that an application forgot still point to it after ibv_close_device.
inline void drop_user(Context& context) {
  if (context.users.fetch_sub(1) == 1) delete &context;
}

// Takes one of the device's quota for an object that is about to be made. False: it has no more of them (ENOMEM).
inline bool take_quota(ibv_context* context, engine::ObjectKind kind) {
  return from(context).quota->take(kind);
}
// Gives it back: the object is gone, or could not be made after all.
inline void give_quota(ibv_context* context, engine::ObjectKind kind) {
  from(context).quota->give(kind);
}

inline Device& device_of(ibv_context* context) {
  return from(context->device);
}

// --- protection domain -----------------------------------------------------------------------------------------------

// What was made on a protection domain and lives. The same domain may have several pointers, in contexts that import
// it: each counts its own users, and all count for the domain.
class PdUsers {
 public:
  PdUsers() : all_(std::make_shared<std::atomic<uint32_t>>(0)) {}
  explicit PdUsers(const std::shared_ptr<std::atomic<uint32_t>>& all) : all_(all) {}
  void operator++() {
    ++own_;
    ++*all_;
  }
  void operator--() {
    --own_;
    --*all_;
  }
  uint32_t own() const { return own_; }
  uint32_t all() const { return *all_; }
  const std::shared_ptr<std::atomic<uint32_t>>& shared() const { return all_; }

 private:
  std::atomic<uint32_t> own_{0};
  std::shared_ptr<std::atomic<uint32_t>> all_;
};

struct Td : ibv_td {
  std::atomic<uint32_t> users{0};  // parent domains
};

inline Td& from(ibv_td* td) {
  return *static_cast<Td*>(td);
}

// What an application's allocator is asked for memory for (IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS); each provider has
// numbers of its own.
enum class QueueKind : uint64_t { kSend = 1, kReceive = 2, kSharedReceive = 3, kCompletion = 4 };

// How a parent domain's application allocates the memory of queues made on it.
struct QueueAllocator {
  decltype(ibv_parent_domain_init_attr::alloc) allocate = nullptr;  // null: it does not
  decltype(ibv_parent_domain_init_attr::free) release = nullptr;
  ibv_pd* pd = nullptr;
  void* context = nullptr;
};

// Memory for one queue, from the allocator of a parent domain. The allocator is application code: it is called without
// any lock of ours.
class QueueMemory {
 public:
  QueueMemory() = default;
  QueueMemory(QueueMemory&& other) noexcept
      : allocator_(other.allocator_), data_(std::exchange(other.data_, nullptr)), kind_(other.kind_) {}
  QueueMemory& operator=(QueueMemory&&) = delete;
  ~QueueMemory() { release(); }

  // 0, or ENOMEM. Where there is no allocator, or it leaves the memory to us, data() stays null.
  int allocate(const QueueAllocator& allocator, size_t bytes, size_t alignment, QueueKind kind) {
    if (allocator.allocate == nullptr) return 0;
    void* const got =
        allocator.allocate(allocator.pd, allocator.context, bytes, alignment, static_cast<uint64_t>(kind));
    if (got == IBV_ALLOCATOR_USE_DEFAULT) return 0;
    if (got == nullptr || reinterpret_cast<uintptr_t>(got) % alignment != 0) return ENOMEM;
    allocator_ = allocator;
    data_ = got;
    kind_ = kind;
    return 0;
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  void release() {
    if (data_ != nullptr) allocator_.release(allocator_.pd, allocator_.context, data_, static_cast<uint64_t>(kind_));
    data_ = nullptr;
  }
  // Leaves it where it is: of an object that a forked child inherited.
  void abandon() { data_ = nullptr; }

 private:
  QueueAllocator allocator_;
  void* data_ = nullptr;
  QueueKind kind_{};
};

// `handle` is the protection domain's identity in the engine: that of a parent domain is its PD's.
struct Pd : ibv_pd {
  Pd() = default;
  explicit Pd(const std::shared_ptr<std::atomic<uint32_t>>& users_of_all) : users(users_of_all) {}

  // Whether several threads may use a queue made on it at the same time: not if it has a thread domain.
  bool shared_by_threads() const { return thread_domain == nullptr; }

  PdUsers users;         // MRs, QPs, AHs, SRQs, windows, parent domains
  Pd* parent = nullptr;  // of a parent domain: the PD that it extends
  Td* thread_domain = nullptr;
  QueueAllocator allocator;  // of a parent domain
};

inline Pd& from(ibv_pd* pd) {
  return *static_cast<Pd*>(pd);
}

// --- completion channel and queue ------------------------------------------------------------------------------------

struct Cq;

// Its descriptor is an epoll set: the events are in it, and for a program that polls it packets as well
// (engine/datapath/attendance.h).
struct Channel final : ibv_comp_channel, queue::CompletionNotifier {
  EventQueue events{of_all};             // the sources are Cqs
  std::shared_ptr<engine::PollSet> set;  // of `fd`
  std::atomic<uint32_t> users{0};        // CQs
  std::mutex queues_mutex;               // taken under no other lock
  std::vector<Cq*> queues;               // under queues_mutex
  std::atomic<Cq*> taken_of{nullptr};    // whose event was taken last, until somebody asks for the next one; likewise
  std::atomic<bool> polled{false};       // `fd` was O_NONBLOCK when it was looked at last
  std::weak_ptr<engine::Engine> origin;  // of the context, which may be closed first

  static inline EventCounts of_all;  // of all channels

  // Makes `fd`. 0 or an errno value.
  int open();
  void on_completion(queue::CompletionQueue& cq) override;
  // Until there may be an event. A cancellation point.
  engine::Waited wait(engine::Engine& engine);
  // A queue has been armed, and the program may wait next. False: somebody has to watch for it.
  bool leave(engine::Engine& engine);
  // The program looks after packets itself when it polls the descriptor.
  bool attends(engine::Engine& engine) { return polled.load(std::memory_order_relaxed) && engine.claim_packets(set); }
  // There are events that the calling thread is expected to take before it sleeps (return_habit.h).
  static bool comes_back();
  // Where it does: takes what has come.
  void attend(engine::Engine& engine);
  // It asks for the next event before it has polled the queue of the last one: it is not about to sleep.
  bool is_to_be_polled();
  // Where packets may have woken the program, which takes EAGAIN for an error: there is an event, if a queue is armed.
  bool tell_early(engine::Engine& engine);
  void add(Cq& cq);  // throws std::bad_alloc
  void remove(Cq& cq);
  void forget_taken(Cq& cq);
  // engine::LookForEvent.
  bool look_for_event(const std::function<void()>& rounds);
  void block(engine::Engine& engine);
};

inline Channel& from(ibv_comp_channel* channel) {
  return *static_cast<Channel*>(channel);
}

// A base, so that it is there before the queue that lies in it and goes after it.
struct CqMemory {
  QueueMemory memory;
};

struct Cq : ibv_cq_ex, CqMemory, queue::CompletionQueue, EventSource {
  Cq(uint32_t capacity, ibv_comp_channel* events_to, Overrun overrun, Consumers consumers, QueueMemory ring)
      : ibv_cq_ex{},
        CqMemory{std::move(ring)},
        CompletionQueue(capacity, events_to == nullptr ? nullptr : &from(events_to), overrun, memory.data(), consumers),
        extended_poll_lock(consumers == Consumers::kMany) {}

  engine::Engine* engine = nullptr;
  Pd* parent_domain = nullptr;
  std::atomic<uint32_t> users{0};  // QPs; one that has it for both directions counts twice
  CqSources async_events{{.cq = reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this))}};
  // Events handed to the application; ibv_cq counts the acknowledged ones. Under the lock of the respective queue.
  uint32_t completion_events_taken = 0;
  uint32_t async_events_taken = 0;
  std::atomic<uint32_t> empty_polls{0};  // since it was armed
  // ibv_start_poll .. ibv_end_poll.
  OptionalLock extended_poll_lock;
  queue::Cqe current;
  CompletionWallclock<> wallclock;
};

inline Cq& from(ibv_cq_ex* cq) {
  return *static_cast<Cq*>(cq);
}
inline Cq& from(ibv_cq* cq) {
  return from(reinterpret_cast<ibv_cq_ex*>(cq));
}

// --- address handle --------------------------------------------------------------------------------------------------

struct Ah : ibv_ah {
  uint32_t engine_handle = 0;
};

inline Ah& from(ibv_ah* ah) {
  return *static_cast<Ah*>(ah);
}

// --- XRC domain and shared receive queue -----------------------------------------------------------------------------

// One per XRC domain, however often it was opened.
struct XrcDomain {
  uint32_t number = 0;
  uint64_t device = 0, inode = 0;   // of the file that it is known by; 0: none
  UniqueFd file;                    // keeps it open, so that no other file gets this inode number
  std::atomic<uint32_t> opened{0};  // ibv_xrcd that stand for it
  std::atomic<uint32_t> users{0};   // SRQs and QPs
  std::mutex mutex;
  std::set<std::shared_ptr<struct QpCore>> targets;  // under mutex
};

struct Xrcd : ibv_xrcd {
  std::shared_ptr<XrcDomain> domain;
};

inline Xrcd& from(ibv_xrcd* xrcd) {
  return *static_cast<Xrcd*>(xrcd);
}

struct Srq : ibv_srq {
  explicit Srq(bool shared_by_threads) : ibv_srq{}, receive_lock(shared_by_threads) {}

  engine::Engine* engine = nullptr;
  engine::Srq* engine_srq = nullptr;
  queue::ReceiveQueue* receive_queue = nullptr;
  QueueMemory memory;  // of the queue
  OptionalLock receive_lock;
  std::shared_ptr<XrcDomain> domain;  // null: not for XRC
  ibv_cq* cq = nullptr;               // XRC: where receives complete
  std::atomic<uint32_t> users{0};     // QPs
  SrqSources async_events{{.srq = this}};
  uint32_t async_events_taken = 0;  // see Cq
};

inline Srq& from(ibv_srq* srq) {
  return *static_cast<Srq*>(srq);
}

// --- queue pair ------------------------------------------------------------------------------------------------------

struct QpAbi {
  ibv_qp_ex verbs;
  void* newer_slots[1];  // ibv_qp_ex grows at its end
};
// wr_flush (rdma-core 45): in one of the two, as the header has it.
inline constexpr size_t kWrFlushOffset = offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*);
static_assert(kWrFlushOffset + sizeof(void*) <= sizeof(QpAbi));

// Work requests between ibv_wr_start() and ibv_wr_complete(); the send lock is held meanwhile.
struct WrBuilder {
  uint32_t count = 0;  // reserved slots
  int error = 0;       // the first failure; then nothing of the batch is posted
  queue::SendQueue::Slot slot{};
};

// The QP that one or several handles stand for: XRC targets can be opened again (ibv_open_qp). What events of the
// engine name.
struct QpCore {
  engine::Qp* engine_qp = nullptr;
  std::shared_ptr<XrcDomain> domain;  // XRC targets
  std::mutex mutex;
  std::set<Qp*> handles;  // under mutex
};

struct Qp : QpAbi {
  explicit Qp(bool shared_by_threads) : QpAbi{}, send_lock(shared_by_threads), receive_lock(shared_by_threads) {}

  // What posting needs is together.
  engine::Engine* engine = nullptr;
  engine::Qp* engine_qp = nullptr;  // core->engine_qp
  queue::SendQueue* send_queue = nullptr;
  queue::ReceiveQueue* receive_queue = nullptr;
  OptionalLock send_lock;
  OptionalLock receive_lock;
  uint32_t send_opcodes = 0;  // 1 << queue::WrOpcode, what its transport can do
  std::shared_ptr<QpCore> core;

  QueueMemory send_memory, receive_memory;  // of the queues
  WrBuilder builder;
  uint64_t send_ops = 0;  // enum ibv_qp_create_send_ops_flags asked for; 0: no ibv_wr_* functions
  uint32_t create_flags = 0;
  bool signal_all = false;
  QpSources async_events{{.qp = &verbs.qp_base}};
  uint32_t async_events_taken = 0;  // see Cq
};

inline Qp& from(ibv_qp_ex* qp) {
  return *static_cast<Qp*>(reinterpret_cast<QpAbi*>(qp));
}
inline Qp& from(ibv_qp* qp) {
  return from(reinterpret_cast<ibv_qp_ex*>(qp));
}

// After a doorbell of the QP: the peer's answer, if it sends one, comes to the channel of its receive CQ.
inline void note_request(const Qp& qp) {
  const ibv_cq* const cq = qp.verbs.qp_base.recv_cq;
  if (cq == nullptr || cq->channel == nullptr) return;
  const Channel& channel = from(cq->channel);
  if (channel.polled.load(std::memory_order_relaxed)) qp.engine->note_request(channel.set);
}

// Takes the handle from the engine, and the QP with the last one.
void release_engine_qp(Qp& qp);

// --- helpers ---------------------------------------------------------------------------------------------------------

// A number for the `handle` fields, and for PDs their identity in the engine. Unique within the process.
inline uint32_t next_handle() {
  static std::atomic<uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// How verbs report the failure of a create function: errno and null.
inline std::nullptr_t fail(int error) {
  errno = error;
  return nullptr;
}

// How the functions of int that report through errno do it.
inline int fail_minus_one(int error) {
  errno = error;
  return -1;
}

// How functions that return an errno value do it: as behind the kernel's command path, errno has it as well. Programs
// print strerror(errno) whichever way an error came.
inline int answer(int error) {
  if (error != 0) errno = error;
  return error;
}

// Keeps exceptions inside: answers what `body` returns, or the errno value of what it threw. Keeps the thread inside as
// well: pthread_cancel() would unwind it through objects half made.
template <class Body>
int without_exceptions(Body&& body) noexcept {
  const NoCancellation uncancelled;
  try {
    return answer(body());
  } catch (const std::bad_alloc&) {
    return answer(ENOMEM);
  } catch (const std::length_error&) {  // a container was asked for more than there can be
    return answer(ENOMEM);
  } catch (const std::system_error& error) {
    return answer(error.code().value() > 0 ? error.code().value() : EIO);
  } catch (const std::exception&) {
    return answer(EIO);
  }
}

// Waits until the application has acknowledged as many events as it took. `mutex`, `condition` and `acknowledged` are
// the fields that ibv_cq and ibv_qp have for it.
void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& condition, const uint32_t& acknowledged,
                               uint32_t taken);
// The other side of it.
void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, uint32_t& acknowledged, uint32_t count);

}  // namespace uroce::verbs
