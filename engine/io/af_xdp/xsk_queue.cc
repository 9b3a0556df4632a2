// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/xsk_queue.h"

#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"

namespace uroce::io {
namespace {

// Neither a program that the application starts nor a child of it may keep the socket alive: libxdp leaves that out.
void keep_to_this_process(ForkGuard& guard, int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  guard.close_in_children(fd);
}

// A mapped ring keeps its socket alive as a descriptor does. It begins where a page does, with the producer among the
// first bytes, and ends with its last entry.
template <class Ring>
void keep_ring_to_this_process(const Ring& ring, size_t entry_size) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(ring.producer) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(ring.ring) + size_t{ring.size} * entry_size;
  madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTFORK);
}

}  // namespace

XskUmem::~XskUmem() {
  if (umem_ == nullptr) return;
  ForkGuard guard;
  guard.forget(xsk_umem__fd(umem_));
  xsk_umem__delete(umem_);
}

int XskUmem::create(UmemArea& area, const XskConfig& config, xsk_ring_prod& first_fill,
                    xsk_ring_cons& first_completion) {
  xsk_umem_config umem_config{};
  umem_config.fill_size = config.fill_ring_size();
  umem_config.comp_size = config.tx_ring_size;
  umem_config.frame_size = config.chunk_size;
  ForkGuard guard;
  const int error = xsk_umem__create(&umem_, area.data(0), area.size(), &first_fill, &first_completion, &umem_config);
  if (error != 0) return -error;
  keep_to_this_process(guard, xsk_umem__fd(umem_));
  return 0;
}

XskQueue::~XskQueue() {
  if (socket_ == nullptr) return;
  ForkGuard guard;
  guard.forget(fd());
  xsk_socket__delete(socket_);
}

int XskQueue::open(const std::string& netdev, uint32_t queue_id, XskUmem& umem, const XskConfig& config) {
  xsk_socket_config socket_config{};
  socket_config.rx_size = config.rx_frames;
  socket_config.tx_size = config.tx_ring_size;
  socket_config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  socket_config.bind_flags = config.bind_flags;
  ForkGuard guard;
  const int error = xsk_socket__create_shared(&socket_, netdev.c_str(), queue_id, umem.get(), &rx_, &tx_, &fill_,
                                              &completion_, &socket_config);
  if (error != 0) return -error;
  keep_to_this_process(guard, fd());
  keep_ring_to_this_process(rx_, sizeof(xdp_desc));
  keep_ring_to_this_process(tx_, sizeof(xdp_desc));
  keep_ring_to_this_process(fill_, sizeof(uint64_t));
  keep_ring_to_this_process(completion_, sizeof(uint64_t));
  // In copy mode each packet under way is charged to the send buffer; the ring alone shall limit it.
  const int send_buffer = 16 << 20;
  if (setsockopt(fd(), SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof(send_buffer)) != 0) {
    setsockopt(fd(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
  }
  copies_ = !zero_copy();
  multi_buffer_ = (config.bind_flags & XDP_USE_SG) != 0;
  return 0;
}

bool XskQueue::zero_copy() const {
  xdp_options options{};
  socklen_t size = sizeof(options);
  return getsockopt(fd(), SOL_XDP, XDP_OPTIONS, &options, &size) == 0 && (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
}

// What found the FILL ring empty is among the dropped. Without multi-buffer the others were too long (xsk_rcv_check).
XskQueue::Dropped XskQueue::dropped() const {
  xdp_statistics statistics{};
  socklen_t size = sizeof(statistics);
  if (getsockopt(fd(), SOL_XDP, XDP_STATISTICS, &statistics, &size) != 0) return {};
  const bool tells = size == sizeof(statistics);  // not before Linux 5.9
  const uint64_t too_long = tells && !multi_buffer_ && statistics.rx_dropped > statistics.rx_fill_ring_empty_descs
                                ? statistics.rx_dropped - statistics.rx_fill_ring_empty_descs
                                : 0;
  return {.no_buffer = statistics.rx_dropped - too_long + statistics.rx_ring_full, .too_long = too_long};
}

bool XskQueue::fill(std::span<const uint64_t> addresses) {
  const auto count = static_cast<uint32_t>(addresses.size());
  uint32_t index = 0;
  if (xsk_ring_prod__reserve(&fill_, count, &index) != count) return false;
  for (const uint64_t address : addresses) *xsk_ring_prod__fill_addr(&fill_, index++) = address;
  xsk_ring_prod__submit(&fill_, count);
  return true;
}

void XskQueue::wake_rx_if_needed() {
  if (xsk_ring_prod__needs_wakeup(&fill_)) recvfrom(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

void XskQueue::push_tx(uint64_t address, uint32_t size, bool more) {
  uint32_t index = 0;
  [[maybe_unused]] const uint32_t reserved = xsk_ring_prod__reserve(&tx_, 1, &index);
  assert(reserved == 1);
  *xsk_ring_prod__tx_desc(&tx_, index) = {address, size, more ? uint32_t{XDP_PKT_CONTD} : 0};
  ++pushed_;
}

void XskQueue::submit_tx() {
  if (pushed_ == 0) return;
  xsk_ring_prod__submit(&tx_, pushed_);
  outstanding_ += pushed_;
  pushed_ = 0;
}

// Copy mode sends at most 32 packets per call and says EAGAIN when there are more; it says EAGAIN as well when it got
// stuck, so go on only as long as the consumer moves.
XskQueue::Kick XskQueue::kick(uint64_t& lost) {
  while (tx_pending() && xsk_ring_prod__needs_wakeup(&tx_)) {
    const uint32_t before = __atomic_load_n(tx_.consumer, __ATOMIC_ACQUIRE);
    if (sendto(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0) return Kick::kDone;
    const int error = errno;
    if (error != EAGAIN && error != EBUSY && error != ENOBUFS && error != EINTR) return Kick::kError;
    // Copy mode: the netdev dropped the packet it was given, e.g. because its queue is full.
    if (error == EBUSY && copies_) ++lost;
    if (__atomic_load_n(tx_.consumer, __ATOMIC_ACQUIRE) == before) return Kick::kLater;
  }
  return Kick::kDone;
}

void XskQueue::reap(TxSlots& slots, uint64_t& wrong) {
  if (outstanding_ == 0) return;
  uint32_t index = 0;
  const uint32_t count = xsk_ring_cons__peek(&completion_, outstanding_, &index);
  for (uint32_t i = 0; i < count; ++i) {
    if (!slots.complete(*xsk_ring_cons__comp_addr(&completion_, index + i))) ++wrong;
  }
  xsk_ring_cons__release(&completion_, count);
  outstanding_ -= count;
}

}  // namespace uroce::io
