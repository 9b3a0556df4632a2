// SPDX-License-Identifier: BSD-2-Clause
// One AF_XDP socket on queue 0 of a netdev, with its UMEM and, if it receives, an XDP program that redirects everything
// to it. As thin as possible: what the modes of xsk_bench measure is the kernel, not this class.
#pragma once

#include <cstdint>
#include <linux/if_xdp.h>
#include <string>
#include <vector>
#include <xdp/xsk.h>

namespace uroce::limits {

struct XskConfig {
  std::string netdev;
  bool receive = false;       // attach the XDP program (native mode) and fill the FILL ring
  bool multi_buffer = false;  // XDP_USE_SG: a frame may span several UMEM chunks
  bool generic = false;       // SKB mode instead of native
  uint32_t frames = 1024;     // UMEM chunks for each direction in use
};

class Xsk {
 public:
  static constexpr uint32_t kChunkBytes = 4096;  // the largest the kernel takes

  explicit Xsk(const XskConfig& config);  // throws std::system_error that names the failed step
  ~Xsk();
  Xsk(const Xsk&) = delete;
  Xsk& operator=(const Xsk&) = delete;

  uint8_t* at(uint64_t address) { return area_ + address; }
  uint32_t tx_frames() const { return tx_frames_; }

  // Writes the frame template into every chunk of the sending direction. Frames longer than a chunk take several.
  void prepare_tx(uint32_t frame_bytes);

  // Queues `count` frames of the prepared length, each with the stamp {time_ns, first_index + i, count}, without a
  // system call. False, with nothing queued, when that many chunks are not free.
  bool queue(uint32_t count, uint64_t time_ns, uint32_t first_index);

  // The TX system call, if the kernel asks for one. In copy mode it sends at most 32 frames. Returns 0 or errno.
  int kick();

  // Takes back the chunks of sent frames; returns how many are still on their way.
  uint32_t reap();

  // Calls sink(const uint8_t* frame, uint32_t bytes) for each frame received, at most `limit` chunks per call, and
  // gives the chunks back. A frame of several chunks is handed over as its first chunk's start with the length of the
  // whole.
  template <typename Sink>
  uint32_t receive(uint32_t limit, Sink&& sink);

  xdp_statistics statistics() const;

 private:
  void create_umem(uint32_t chunks);
  void create_socket(const XskConfig& config);
  void attach_program(const XskConfig& config, unsigned ifindex);

  uint8_t* area_ = nullptr;
  size_t area_bytes_ = 0;
  xsk_umem* umem_ = nullptr;
  xsk_socket* socket_ = nullptr;
  int fd_ = -1;
  int map_fd_ = -1, program_fd_ = -1, link_fd_ = -1;
  xsk_ring_prod fill_ = {}, tx_ = {};
  xsk_ring_cons completion_ = {}, rx_ = {};

  uint32_t tx_frames_;
  uint32_t frame_bytes_ = 0;
  std::vector<uint64_t> free_;  // chunks not in the TX ring; last in, first out keeps them in the cache
  uint32_t in_flight_ = 0;

  uint64_t open_frame_ = 0;  // first chunk and length so far of a frame whose end has not been seen
  uint32_t open_bytes_ = 0;
};

#ifndef XDP_USE_SG  // Linux 6.6
#define XDP_USE_SG (1 << 4)
#define XDP_PKT_CONTD (1 << 0)
#endif

template <typename Sink>
uint32_t Xsk::receive(uint32_t limit, Sink&& sink) {
  uint32_t rx_index;
  const uint32_t chunks = xsk_ring_cons__peek(&rx_, limit, &rx_index);
  if (chunks == 0) return 0;
  uint32_t fill_index = 0;
  // Never fails: every chunk has a place in the FILL ring. Copy mode never asks for a wake-up of this ring.
  xsk_ring_prod__reserve(&fill_, chunks, &fill_index);
  for (uint32_t i = 0; i < chunks; ++i) {
    const xdp_desc& desc = *xsk_ring_cons__rx_desc(&rx_, rx_index + i);
    if (open_bytes_ == 0) open_frame_ = desc.addr;
    open_bytes_ += desc.len;
    if (!(desc.options & XDP_PKT_CONTD)) {
      sink(static_cast<const uint8_t*>(at(open_frame_)), open_bytes_);
      open_bytes_ = 0;
    }
    *xsk_ring_prod__fill_addr(&fill_, fill_index + i) = desc.addr & ~uint64_t{kChunkBytes - 1};
  }
  xsk_ring_cons__release(&rx_, chunks);
  xsk_ring_prod__submit(&fill_, chunks);
  return chunks;
}

}  // namespace uroce::limits
