// SPDX-License-Identifier: BSD-2-Clause
// Set-up and transmit side of the AF_XDP socket of xsk_bench.
#include "bench/limits_src/xsk.h"

#include <bpf/bpf.h>
#include <cerrno>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include "bench/limits_src/frame.h"

namespace uroce::limits {
namespace {

constexpr int kBindAttempts = 200;
constexpr useconds_t kBindPauseUs = 5000;

[[noreturn]] void fail(int error, const std::string& step) {
  throw std::system_error(error, std::generic_category(), step);
}

// return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
int load_redirect_program(int map_fd) {
  const bpf_insn program[] = {
      {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, offsetof(xdp_md, rx_queue_index), 0},
      {BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map_fd},
      {0, 0, 0, 0, 0},  // upper half of the 64-bit immediate
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  bpf_prog_load_opts options = {};
  options.sz = sizeof options;
  options.prog_flags = BPF_F_XDP_HAS_FRAGS;
  return bpf_prog_load(BPF_PROG_TYPE_XDP, "limits_redirect", "GPL", program, std::size(program), &options);
}

}  // namespace

Xsk::Xsk(const XskConfig& config) : tx_frames_(config.frames) {
  const unsigned ifindex = if_nametoindex(config.netdev.c_str());
  if (ifindex == 0) fail(errno, "netdev " + config.netdev);
  create_umem(2 * config.frames);
  create_socket(config);
  if (config.receive) attach_program(config, ifindex);
}

Xsk::~Xsk() {
  if (link_fd_ >= 0) close(link_fd_);
  if (program_fd_ >= 0) close(program_fd_);
  if (map_fd_ >= 0) close(map_fd_);
  xsk_socket__delete(socket_);
  xsk_umem__delete(umem_);
  munmap(area_, area_bytes_);
}

void Xsk::create_umem(uint32_t chunks) {
  area_bytes_ = size_t{chunks} * kChunkBytes;
  void* area = mmap(nullptr, area_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (area == MAP_FAILED) fail(errno, "UMEM memory");
  area_ = static_cast<uint8_t*>(area);
  const xsk_umem_config umem_config = {
      .fill_size = chunks, .comp_size = chunks, .frame_size = kChunkBytes, .frame_headroom = 0, .flags = 0};
  if (int e = xsk_umem__create(&umem_, area_, area_bytes_, &fill_, &completion_, &umem_config)) fail(-e, "UMEM");
}

void Xsk::create_socket(const XskConfig& config) {
  xsk_socket_config socket_config = {};
  socket_config.rx_size = config.frames;
  socket_config.tx_size = config.frames;
  socket_config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  socket_config.bind_flags = XDP_USE_NEED_WAKEUP | XDP_COPY;
  if (config.multi_buffer) socket_config.bind_flags |= XDP_USE_SG;
  // The kernel frees the queue of a process that ended only from a work queue, some time later: EBUSY until then.
  int error = -EBUSY;
  for (int attempt = 0; error == -EBUSY && attempt < kBindAttempts; ++attempt) {
    if (attempt != 0) usleep(kBindPauseUs);
    error = xsk_socket__create(&socket_, config.netdev.c_str(), 0, umem_, &rx_, &tx_, &socket_config);
  }
  if (error != 0) fail(-error, "AF_XDP socket on " + config.netdev);
  fd_ = xsk_socket__fd(socket_);
}

void Xsk::attach_program(const XskConfig& config, unsigned ifindex) {
  uint32_t index;
  if (xsk_ring_prod__reserve(&fill_, config.frames, &index) != config.frames) fail(ENOBUFS, "FILL ring");
  for (uint32_t i = 0; i < config.frames; ++i) {
    *xsk_ring_prod__fill_addr(&fill_, index + i) = uint64_t{config.frames + i} * kChunkBytes;
  }
  xsk_ring_prod__submit(&fill_, config.frames);

  map_fd_ = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "limits_xsks", sizeof(uint32_t), sizeof(uint32_t), 1, nullptr);
  if (map_fd_ < 0) fail(errno, "XSKMAP");
  if (int e = xsk_socket__update_xskmap(socket_, map_fd_)) fail(-e, "XSKMAP entry");
  program_fd_ = load_redirect_program(map_fd_);
  if (program_fd_ < 0) fail(errno, "XDP program");
  // A link that is not pinned: the program leaves with the process, however it ends.
  bpf_link_create_opts options = {};
  options.sz = sizeof options;
  options.flags = config.generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
  link_fd_ = bpf_link_create(program_fd_, static_cast<int>(ifindex), BPF_XDP, &options);
  if (link_fd_ < 0) fail(errno, "attach XDP program to " + config.netdev);
}

void Xsk::prepare_tx(uint32_t frame_bytes) {
  frame_bytes_ = frame_bytes;
  std::vector<uint8_t> frame(frame_bytes);
  write_frame(frame.data(), frame_bytes);
  free_.clear();
  for (uint32_t i = 0; i < tx_frames_; ++i) {
    std::memcpy(at(uint64_t{i} * kChunkBytes), frame.data(), std::min(frame_bytes, kChunkBytes));
    free_.push_back(uint64_t{i} * kChunkBytes);
  }
}

bool Xsk::queue(uint32_t count, uint64_t time_ns, uint32_t first_index) {
  const uint32_t per_frame = (frame_bytes_ + kChunkBytes - 1) / kChunkBytes;
  if (free_.size() < size_t{count} * per_frame) return false;
  uint32_t slot;
  if (xsk_ring_prod__reserve(&tx_, count * per_frame, &slot) == 0) return false;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t left = frame_bytes_;
    for (uint32_t part = 0; part < per_frame; ++part) {
      const uint64_t address = free_.back();
      free_.pop_back();
      if (part == 0) set_stamp(at(address), {time_ns, first_index + i, count});
      const uint32_t bytes = std::min(left, kChunkBytes);
      left -= bytes;
      *xsk_ring_prod__tx_desc(&tx_, slot++) = {address, bytes, left != 0 ? uint32_t{XDP_PKT_CONTD} : 0};
    }
  }
  xsk_ring_prod__submit(&tx_, count * per_frame);
  in_flight_ += count * per_frame;
  return true;
}

int Xsk::kick() {
  if (!xsk_ring_prod__needs_wakeup(&tx_)) return 0;
  return sendto(fd_, nullptr, 0, MSG_DONTWAIT, nullptr, 0) < 0 ? errno : 0;
}

uint32_t Xsk::reap() {
  uint32_t index;
  const uint32_t done = xsk_ring_cons__peek(&completion_, in_flight_, &index);
  for (uint32_t i = 0; i < done; ++i) free_.push_back(*xsk_ring_cons__comp_addr(&completion_, index + i));
  if (done != 0) xsk_ring_cons__release(&completion_, done);
  in_flight_ -= done;
  return in_flight_;
}

xdp_statistics Xsk::statistics() const {
  xdp_statistics statistics = {};
  socklen_t length = sizeof statistics;
  if (getsockopt(fd_, SOL_XDP, XDP_STATISTICS, &statistics, &length) != 0) fail(errno, "XDP_STATISTICS");
  return statistics;
}

}  // namespace uroce::limits
