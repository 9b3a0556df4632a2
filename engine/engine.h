// SPDX-License-Identifier: BSD-2-Clause
// The engine: everything one process does on one netdev. Owns the packet I/O, the QPs, the memory regions and the
// progress of all of them. This is the public face that the verbs shim uses; nothing of the shim is known here, and
// nothing of the engine's inside is known to the shim.
//
// Progress (architecture.md, decision 2): whoever polls, progresses. progress() tries the lock of a shard and runs a
// round in the caller's thread, doorbell() the part of it that sends; a background thread takes over when nobody does,
// and sleeps when nothing happens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/port_counters.h"
#include "engine/device/port_status.h"
#include "engine/memory/mr_table.h"
#include "engine/net/net_view.h"
#include "engine/objects/init.h"
#include "engine/objects/limits.h"
#include "engine/objects/poll_set.h"
#include "engine/objects/quota.h"
#include "engine/objects/waited.h"
#include "engine/queue/completion_queue.h"
#include "engine/queue/work_queue.h"
#include "engine/transport/common/qp_state.h"

namespace uroce::engine {

struct DeviceStatistics;  // device/device_statistics.h
class Qp;                 // opaque outside the engine
class Srq;                // likewise

class Device;  // the inside of the engine (device/device.h)

class Engine {
 public:
  explicit Engine(std::unique_ptr<Device> device);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const std::string& netdev_name() const;
  PortStatus port_status();
  // QPs that can be created; while it is not known whether there is a broker, what it would lease.
  uint32_t max_qp() const;
  // Multicast groups that QPs can be in; likewise.
  uint32_t max_multicast_groups() const;
  // False once the netdev is gone: this engine does not come back, even where the netdev does.
  bool present() const;
  // Of all contexts of this process together.
  Quota& quota() { return quota_; }

  // --- objects. Errors are errno values; messages for people have gone to stderr, naming the remedy. --------------
  // Keys are lkey and rkey alike. EINVAL: range wraps, or remote write/atomic without local write; ENOMEM: no more.
  int register_memory(const memory::MemoryRegion& region, uint32_t& key);
  // The region `key` becomes what `region` says, in one step for all traffic. Else as register_memory() and
  // deregister_memory().
  int reregister_memory(uint32_t key, const memory::MemoryRegion& region);
  // EINVAL: no such region; EBUSY: memory windows are bound to it.
  int deregister_memory(uint32_t key);
  // The region of a local key. ENOENT: there is none; EINVAL: it is a memory window's key.
  int find_memory(uint32_t key, memory::MemoryRegion& region);
  // `key` names the window until work requests bind it under other keys with the same upper 24 bits. ENOMEM: no more.
  int allocate_window(memory::WindowType type, uint32_t pd, uint32_t& key);
  // Unbinds it first; `key` is any that it had. EINVAL: no such window.
  int deallocate_window(uint32_t key);

  // Opens the packet I/O before the first QP does. 0 or an errno value; what is wrong is said once.
  int open_io();
  // The first QP opens the packet I/O and starts the background thread. QP1: EBUSY: the device has it already; ENOTSUP:
  // a broker has it, or a device has several shards.
  int create_qp(const QpInit& init, Qp*& qp);
  int modify_qp(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask);
  transport::QpAttributes query_qp(Qp& qp);
  // Removes the QP and its completions. The caller sees to it that no thread posts any more.
  void destroy_qp(Qp* qp);

  int create_srq(const SrqInit& init, Srq*& srq);
  // Depth and limit (0 disarms). EINVAL: more is posted than would fit; ENOMEM. The caller sees to it that no thread
  // posts.
  int resize_srq(Srq& srq, uint32_t max_wr);
  void arm_srq_limit(Srq& srq, uint32_t limit);
  uint32_t srq_limit(Srq& srq);
  // No QP uses it any more.
  void destroy_srq(Srq* srq);

  // Where UD messages go. EINVAL: no such GID, families differ; ENETUNREACH: no route; ENOMEM: too many.
  int create_address(const transport::AddressVector& address, uint32_t& handle);
  void destroy_address(uint32_t handle);

  // Joins and leaves a group for a UD QP (IGMP, MLD). EINVAL: not a multicast address, or not in it; ENOMEM: a limit.
  int attach_multicast(Qp& qp, const wire::IpAddress& group);
  int detach_multicast(Qp& qp, const wire::IpAddress& group);

  // At least `capacity` CQEs fit from now on. 0, or EINVAL: more are in it; ENOMEM.
  int resize_cq(queue::CompletionQueue& cq, uint32_t capacity);
  // Fewer notifications, see CompletionQueue::moderate(). A queue that has been moderated is to be released with 0, 0
  // before it goes away.
  int moderate_cq(queue::CompletionQueue& cq, uint16_t count, Duration period);

  // --- data path ---------------------------------------------------------------------------------------------------
  // Something is about to be posted: what that needs of the QP comes into the cache meanwhile.
  static void prefetch(const Qp& qp);
  // After send WQEs were published to send_queue(qp).
  void doorbell(Qp& qp);
  // After receive WQEs were posted: only an erroneous QP has work to do then (flush).
  void receive_doorbell(Qp& qp);
  // One iteration in the caller's thread, unless another thread is at it, of what fills the queue. Call when a poll
  // found nothing.
  void progress(const queue::CompletionQueue& cq);
  // The same of all that the device does.
  void progress();
  // The caller is about to sleep (armed a CQ): the background thread has to watch from now on.
  void expect_sleep();
  // The calling thread sleeps until `look` finds an event or `fd` is readable, and moves packets meanwhile. A
  // cancellation point, which may also be left by a jump out of a signal handler.
  Waited wait_for_event(const LookForEvent& look, int fd);
  // A program that polls the descriptor of a channel (datapath/attendance.h). True: one of its sets, which may be
  // `set`, tells of packets, and the caller looks after them by serve_stream() and linger(), and calls leave() before
  // the program may sleep. If there is no event then, report_early().
  bool claim_packets(const std::shared_ptr<PollSet>& set);
  bool serve_stream(const LookForEvent& look, bool woken);
  bool linger(const LookForEvent& look, bool waits);
  static void end_wait();
  // Progress::leave().
  void leave(const std::shared_ptr<PollSet>& set, bool asked_in_vain);
  void release_packets(const PollSet& set);
  // What Attendance::note_request(), note_answer() and note_one_by_one() are told.
  void note_request(const std::shared_ptr<PollSet>& set);
  void note_answer(const PollSet& set);
  void note_one_by_one();
  // Reports the queue, if there is one, as if it had got what it is armed for. Rounds that are under way end before.
  void report_early(queue::CompletionQueue* cq);
  // The queue was armed while it had completions that were not reported: reports them now.
  void report_missed(queue::CompletionQueue& cq);

  static uint32_t qpn(const Qp& qp);
  static queue::SendQueue& send_queue(Qp& qp);
  static queue::ReceiveQueue& receive_queue(Qp& qp);
  static queue::ReceiveQueue& receive_queue(Srq& srq);
  static uint32_t number(const Srq& srq);         // as XRC requests name it
  static transport::QpState state(const Qp& qp);  // atomic snapshot, for post checks

  // At the end of the process: what has arrived is taken, and the ACKs that QPs owe for it leave. False: there is no
  // packet I/O yet. Waits for locks for 10 ms at most and allocates nothing, so that a signal handler may call it.
  bool settle_acks();
  // At the end of the process, when nobody relies on traffic any more: ends the background thread and closes the packet
  // I/O. Packets go nowhere from then on; all calls still work. Does nothing while a thread is in the middle of a call.
  void leave_netdev();

  // All counters that are not zero, one per line, in words.
  std::string counters_text() const;
  PortCounters port_counters() const;
  CounterSums counters() const;
  // For who looks on, with QPs one by one up to `most_qps`; none before the packet I/O is open.
  std::optional<DeviceStatistics> statistics(uint32_t most_qps);

  // A packet in order has come for the QP with this number. False too if there is none.
  bool has_received(uint32_t qpn);

  // Device-wide events (port, GIDs, fatal) go to all handlers registered here.
  void add_event_handler(EventHandler* handler);
  void remove_event_handler(EventHandler* handler);

 private:
  const std::unique_ptr<Device> device_;
  Quota quota_;
};

}  // namespace uroce::engine
