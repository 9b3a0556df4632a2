// SPDX-License-Identifier: BSD-2-Clause
// The contract between the engine and whatever moves packets: AF_XDP, UDP sockets, a memory link, and the wrappers
// (fault injector, capture) that are PacketIo themselves.
//
// A device has one for each of its shards (steering.h). It is called only by the holder of the shard's lock, so
// implementations need no locks. Calls are per burst.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <poll.h>
#include <span>
#include <string>

#include "engine/io/tx_packet.h"
#include "wire/envelope.h"
#include "wire/ip_udp.h"

namespace uroce::io {

// What a fault injector did to a packet; bits.
enum Fault : uint8_t {
  kFaultDropped = 1,
  kFaultDuplicated = 2,  // sent: it left twice; received: this is the second copy
  kFaultReordered = 4,   // received: it was held back until others had gone ahead
  kFaultCorrupted = 8,   // received: one bit of `ib` was flipped
};

// A received RoCE v2 packet: the envelope as values, the InfiniBand part (BTH to ICRC, both included) as bytes.
// `ib` has the length that UDP and IP agree on, never the frame's. Nothing in it has been checked beyond that.
struct RxPacket {
  wire::Envelope envelope;
  std::span<const uint8_t> ib;  // one contiguous piece; valid until the next receive()
  // Everything that arrived, from the Ethernet header to the padding, with `ib` inside; valid as long. Empty: not seen,
  // as through a UDP socket.
  std::span<const uint8_t> frame{};
  uint8_t faults = 0;  // bits of Fault
  // It came through memory, and the last four bytes of `ib` are no ICRC: nothing is to be checked.
  bool without_icrc = false;
  // The payload, with pad and ICRC, where it does not lie in `ib`, which has the headers only then; valid until the
  // next receive() or send(). Its sender may still write to it: to be copied without being looked at.
  std::span<const uint8_t> apart{};
  uint32_t psns = 1;    // TxPacket::psns
  bool in_run = false;  // it came with others in one message of the kernel
  // What the sender says of it, if it is this very process (memory links).
  wire::Qpn source_qpn{};
  io::SendReason reason = io::SendReason::kFirst;

  // Before another packet takes this place: all but `envelope` and `ib` as of a new one. Not by assignment of a new
  // one, which compilers clear on the stack first: that took 5 % of a receiver's time.
  void renew() {
    frame = apart = {};
    faults = 0;
    without_icrc = in_run = false;
    psns = 1;
    source_qpn = {};
    reason = io::SendReason::kFirst;
  }
};

// Counts that a backend keeps; monotonic.
struct IoCounters {
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;      // UDP length
  uint64_t rx_malformed = 0;  // not IP/UDP 4791 as we expect it: options, fragments, length mismatch
  // A socket that is bound to no netdev, as those from the broker are, got it from another one than the device's. A run
  // counts as one.
  uint64_t rx_wrong_netdev = 0;
  uint64_t rx_forged = 0;    // a frame from the wire with an address of this host as its source
  uint64_t rx_too_long = 0;  // longer than any packet: mostly a run that nobody has cut; AF_XDP only, which drops it
  // The kernel dropped it: ring full, no chunk, socket buffer full. A socket counts messages: a run of packets is one.
  uint64_t rx_no_buffer = 0;
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;
  // Messages of several packets that the kernel or the NIC cut or joined (UDP_SEGMENT, UDP_GRO), and their packets.
  uint64_t rx_runs = 0, rx_run_packets = 0;
  uint64_t tx_runs = 0, tx_run_packets = 0;
  uint64_t tx_run_refusals = 0;                 // times that the kernel refused a run whose packets it took one by one
  uint64_t rx_by_memory = 0, tx_by_memory = 0;  // of all packets, those from and to other processes of this host
  uint64_t tx_unread = 0;                       // lost: another process of this host has not read what it was sent
  uint64_t tx_stalls = 0;        // times that such a process has read nothing for a second; it is woken once more
  uint64_t tx_backpressure = 0;  // send() took fewer packets than offered
  uint64_t tx_errors = 0;        // the kernel refused a packet; it is lost, retransmission repairs it
  uint64_t kick_errors = 0;  // the kernel refused to look at what was queued: the netdev is down; nothing is lost yet
  uint64_t ring_errors = 0;  // entries of rings (the kernel's, another process's) that cannot be true
  uint64_t capture_dropped = 0;  // packets that moved and are missing in captures, which were too slow

  IoCounters& operator+=(const IoCounters& other) {
    rx_packets += other.rx_packets;
    rx_bytes += other.rx_bytes;
    rx_malformed += other.rx_malformed;
    rx_wrong_netdev += other.rx_wrong_netdev;
    rx_forged += other.rx_forged;
    rx_too_long += other.rx_too_long;
    rx_no_buffer += other.rx_no_buffer;
    tx_packets += other.tx_packets;
    tx_bytes += other.tx_bytes;
    rx_runs += other.rx_runs;
    rx_run_packets += other.rx_run_packets;
    tx_runs += other.tx_runs;
    tx_run_packets += other.tx_run_packets;
    tx_run_refusals += other.tx_run_refusals;
    rx_by_memory += other.rx_by_memory;
    tx_by_memory += other.tx_by_memory;
    tx_unread += other.tx_unread;
    tx_stalls += other.tx_stalls;
    tx_backpressure += other.tx_backpressure;
    tx_errors += other.tx_errors;
    kick_errors += other.kick_errors;
    ring_errors += other.ring_errors;
    capture_dropped += other.capture_dropped;
    return *this;
  }
};

class PacketIo {
 public:
  virtual ~PacketIo() = default;

  // Fills `out` from the front and returns how many packets arrived (0: none now). Never blocks. Views handed out
  // by the previous call become invalid.
  virtual size_t receive(std::span<RxPacket> out) = 0;

  // From now on receive() looks where it does not look each time as well, until it has found the end there.
  virtual void look_everywhere() {}
  // It has. If it brings nothing then, all that had arrived before look_everywhere() has been returned.
  virtual bool looked_everywhere() const { return true; }

  // The last receive() has found the end of what had arrived, and would have paid a system call to hear so once more.
  virtual bool drained() const { return false; }

  // Takes packets from the front of `burst` and returns how many it took; fewer means backpressure, offer the rest
  // again later. All memory the packets refer to may be reused on return. May only be queued until flush().
  // A packet whose payload cannot be read any more is taken, not sent, and marked `unreadable`.
  virtual size_t send(std::span<io::TxPacket> burst) = 0;

  // False: packets are lost for now, as another one has to be opened in its place first (replaceable_io.h).
  virtual bool is_open() const { return true; }

  // How many packets of one QP in a row, of so many bytes with the UDP header, can leave together, at little more than
  // the price of one.
  virtual size_t run([[maybe_unused]] uint32_t udp_length) const { return 1; }
  // False: the kernel has refused runs to there lately, and packets leave one by one.
  virtual bool takes_runs([[maybe_unused]] const wire::IpAddress& to) const { return true; }

  // How many bytes of payload one packet to the QP `to` may have, of another process of this host that is reached
  // through memory, if that may be more than the path MTU. 0: it may not.
  virtual uint32_t long_payload([[maybe_unused]] wire::Qpn to) const { return 0; }
  // Somebody looks at the packets: they are to arrive as on a wire, in one piece and not longer than the path MTU. Some
  // that have left already may be longer.
  virtual void show_packets([[maybe_unused]] bool shown) {}

  // How many packets send() is sure to take now. Unknown, and as many as you like: it may refuse them all the same.
  virtual size_t room() const { return SIZE_MAX; }

  // Gets everything that send() queued on its way (the kernel kick). Cheap when there is nothing. False: the kernel put
  // some of it off, and nobody will say when it has time: call again soon.
  virtual bool flush() = 0;

  // Descriptors to sleep on: readable when receive() would return packets; `events` asks for POLLOUT as well while
  // send() lacks room and the kernel will tell when there is some. Valid until the next call.
  virtual std::span<const pollfd> wait_descriptors() const = 0;

  // Packets have been taken from the kernel that receive() has not returned yet: wait_descriptors() do not tell of
  // them.
  virtual bool left_over() const { return false; }

  // Called before a sleep on wait_descriptors(); false: do not sleep, packets may be waiting already.
  virtual bool prepare_to_wait() = 0;

  // Of a link within the process: what this end has sent, or some of it, has not been received yet.
  virtual bool sent_waits() const { return false; }

  // The largest UDP length (header, IB part and ICRC) that goes out and comes in in one piece. Bounds the path MTU.
  virtual uint32_t max_udp_length() const = 0;

  // One line for people: "af_xdp, native, copy, 1 queue" or "udp".
  virtual std::string description() const = 0;

  // True when the kernel picks route and neighbour (UDP sockets): the envelope's MAC addresses are not used.
  virtual bool kernel_routes() const { return false; }

  virtual IoCounters counters() const = 0;

  // `observer` sees the frames that arrive and are no packet (rx_malformed), and nobody else does. Without effect where
  // no frames are seen.
  using MalformedObserver = std::function<void(std::span<const uint8_t> frame, wire::FrameError error)>;
  // NOLINTNEXTLINE(performance-unnecessary-value-param): whoever sees frames keeps it
  virtual void observe_malformed(MalformedObserver) {}

  // Somebody wants to know what became of the packets of each receive(): a capture that is on. Then the engine tells
  // it for every one of them, in order and before the next call of receive(), as the counters that moved on its
  // account (Counters::moved_since).
  virtual bool wants_verdicts() const { return false; }
  virtual void on_verdicts(std::span<const uint64_t>) {}
};

}  // namespace uroce::io
