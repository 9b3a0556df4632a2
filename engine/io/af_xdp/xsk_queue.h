// SPDX-License-Identifier: BSD-2-Clause
// AF_XDP sockets through libxdp: the registered UMEM, and one socket with its four rings per receive queue of the
// netdev. AfXdp owns them; nothing here knows what is in a packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <linux/if_xdp.h>
#include <span>
#include <string>
#include <xdp/xsk.h>

#include "engine/io/af_xdp/umem.h"
#include "engine/io/af_xdp/xsk_receiver.h"

// From kernel 6.6, missing in older headers.
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif

namespace uroce::io {

struct XskConfig {
  uint32_t chunk_size = 2048;    // 2048 or 4096
  uint32_t rx_frames = 4096;     // chunks for receiving per queue; a power of two
  uint32_t tx_ring_size = 2048;  // a power of two, and at least the chunks that can be under way
  uint16_t bind_flags = 0;       // XDP_USE_NEED_WAKEUP, XDP_USE_SG, XDP_COPY

  // The kernel publishes what it took from the FILL ring only when its prefetched entries are used up. With twice the
  // room, chunks can always be given back whatever it has published.
  uint32_t fill_ring_size() const { return 2 * rx_frames; }
};

// The area registered with the kernel. The rings of the first socket are made together with it.
class XskUmem {
 public:
  XskUmem() = default;
  ~XskUmem();
  XskUmem(const XskUmem&) = delete;
  XskUmem& operator=(const XskUmem&) = delete;

  // Returns 0 or an errno value.
  int create(UmemArea& area, const XskConfig& config, xsk_ring_prod& first_fill, xsk_ring_cons& first_completion);
  xsk_umem* get() const { return umem_; }

 private:
  xsk_umem* umem_ = nullptr;
};

class XskQueue {
 public:
  XskQueue() = default;
  ~XskQueue();
  XskQueue(const XskQueue&) = delete;
  XskQueue& operator=(const XskQueue&) = delete;

  // Binds to the netdev's queue; its FILL ring is empty. Returns 0 or an errno value. All queues of one umem have the
  // same config; its flags take effect with the first.
  int open(const std::string& netdev, uint32_t queue_id, XskUmem& umem, const XskConfig& config);

  int fd() const { return xsk_socket__fd(socket_); }
  bool zero_copy() const;
  // What the kernel dropped: for want of ring entries or chunks; and frames that need more than the one chunk they may.
  struct Dropped {
    uint64_t no_buffer = 0, too_long = 0;
  };
  Dropped dropped() const;

  xsk_ring_prod& fill_ring() { return fill_; }
  xsk_ring_cons& completion_ring() { return completion_; }

  // Receiving: look at up to `n` descriptors, then release as many. The chunks stay ours until they are filled in.
  uint32_t peek_rx(uint32_t n, uint32_t& index) { return xsk_ring_cons__peek(&rx_, n, &index); }
  const xdp_desc& rx_descriptor(uint32_t index) const { return *xsk_ring_cons__rx_desc(&rx_, index); }
  void release_rx(uint32_t n) { xsk_ring_cons__release(&rx_, n); }
  bool rx_empty() const { return __atomic_load_n(rx_.producer, __ATOMIC_ACQUIRE) == rx_.cached_cons; }

  // Gives chunks to the kernel. False: there is no room, and it got none.
  bool fill(std::span<const uint64_t> addresses);
  // Tells a driver that ran out of chunks that there are new ones.
  void wake_rx_if_needed();

  // Sending: room for descriptors, then push and submit them; kick() makes the kernel look.
  uint32_t tx_room(uint32_t wanted) { return xsk_prod_nb_free(&tx_, wanted); }
  void push_tx(uint64_t address, uint32_t size, bool more);
  void submit_tx();
  bool tx_pending() const { return __atomic_load_n(tx_.consumer, __ATOMIC_ACQUIRE) != *tx_.producer; }

  enum class Kick {
    kDone,   // everything is on its way
    kLater,  // the kernel is short of something for now: kick again
    kError,  // refused, e.g. the netdev is down
  };
  // Hands pending descriptors to the kernel. `lost` goes up by the packets that the netdev refused.
  Kick kick(uint64_t& lost);

  // Returns the chunks that the kernel has sent to `slots`. `wrong` goes up by those that it names and never had.
  void reap(TxSlots& slots, uint64_t& wrong);

 private:
  xsk_socket* socket_ = nullptr;
  xsk_ring_cons rx_{};
  xsk_ring_prod tx_{};
  xsk_ring_prod fill_{};
  xsk_ring_cons completion_{};
  uint32_t pushed_ = 0;       // descriptors not yet submitted
  uint32_t outstanding_ = 0;  // descriptors submitted and not completed
  bool copies_ = false;       // copy mode: the kernel copies and sends inside the kick
  bool multi_buffer_ = false;
};

}  // namespace uroce::io
