// SPDX-License-Identifier: BSD-2-Clause
// Set-up of AfXdp: from the netdev's state to attached program, sockets and memory. The data path is in af_xdp.cc.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <thread>

#include "engine/io/af_xdp/af_xdp.h"
#include "engine/io/af_xdp/error.h"
#include "engine/io/af_xdp/privileges.h"
#include "engine/io/netdev_query.h"
#include "engine/io/xdp_library/xdp_library.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

constexpr uint32_t kRxHeadroom = 256;  // XDP_PACKET_HEADROOM: the kernel keeps it free in front of a received frame
constexpr uint32_t kSmallChunk = 2048;
constexpr uint32_t kLargeChunk = 4096;  // the kernel takes no chunk larger than a page
constexpr size_t kMemoryBudget = size_t{64} << 20;
constexpr uint32_t kMinFrames = 64;              // to receive per queue, and to send, whatever the budget says
constexpr std::chrono::seconds kReleaseTime{3};  // a busy machine takes its time
constexpr std::chrono::milliseconds kReleasePause{1};

// What IP packets can be; whatever the kernel says of a netdev.
constexpr uint32_t kMinMtu = 68, kMaxMtu = 65535;

// The largest frame of the netdev; a tag may be in front of it when hardware does not strip it.
uint32_t frame_limit(uint32_t mtu) {
  return static_cast<uint32_t>(wire::kEthernetSize + wire::kVlanTagSize) + std::min(mtu, kMaxMtu);
}

XskConfig choose_sizes(const AfXdpConfig& config, uint32_t queue_count, XdpProgram::Mode mode) {
  assert(std::has_single_bit(config.rx_frames) && std::has_single_bit(config.tx_frames));
  XskConfig sizes;
  sizes.chunk_size = frame_limit(config.mtu) + kRxHeadroom <= kSmallChunk ? kSmallChunk : kLargeChunk;
  sizes.rx_frames = config.rx_frames;
  sizes.tx_ring_size = config.tx_frames;
  // Of a limited locked memory only half: it is the user's, not the process's, and there may be another netdev.
  const size_t budget = std::min(kMemoryBudget, lockable_memory() / 2) / sizes.chunk_size;
  while (size_t{sizes.rx_frames} * queue_count + sizes.tx_ring_size > budget) {  // the larger share gives way
    uint32_t& larger = sizes.rx_frames * queue_count >= sizes.tx_ring_size ? sizes.rx_frames : sizes.tx_ring_size;
    if (larger <= kMinFrames) break;
    larger /= 2;
  }
  sizes.bind_flags = XDP_USE_NEED_WAKEUP;
  if (mode == XdpProgram::Mode::kGeneric) sizes.bind_flags |= XDP_COPY;  // generic mode never fills zero-copy rings
  if (frame_limit(config.mtu) + kRxHeadroom > kLargeChunk) sizes.bind_flags |= XDP_USE_SG;
  return sizes;
}

// The broker leases a netdev's queues to one process at a time: whoever has them yet is ending.
bool earlier_holder_ends(const AfXdpConfig& config) {
  if (!config.qpns) return false;
  const std::optional<AttachedProgram> attached = attached_xdp_program(config.ifindex);
  return attached && attached->is_ours() && !attached->takes_all();
}

}  // namespace

IoResult<AfXdp> AfXdp::open(const AfXdpConfig& config) {
  std::unique_ptr<AfXdp> io(new AfXdp);
  if (std::optional<IoError> error = io->attach(config)) return *error;
  if (std::optional<IoError> error = io->open_sockets(config)) return *error;
  io->receiver_ = XskReceiver({io->area_.data(0), io->area_.size()}, io->multi_buffer());
  io->set_up_sending(config);
  for (uint32_t queue = 0; queue < io->queues_.size(); ++queue) {
    const int error = io->program_.set_socket(queue, io->queues_[queue]->xsk.fd());
    if (error != 0) return socket_error(config.netdev, queue, error);
  }
  if (const int error = io->set_mac(config.mac)) return program_load_error(config.netdev, error);
  // From here on packets arrive.
  if (const int error = io->set_local_addresses(config.local_addresses))
    return program_load_error(config.netdev, error);
  return io;
}

// Whoever is in one of the VLANs could send packets to this netdev, which the kernel would give to the VLAN's.
std::optional<IoError> AfXdp::vlan_obstacle(const std::string& netdev, const std::vector<std::string>& vlans) {
  if (vlans.empty() || !strips_vlan_tags(netdev)) return std::nullopt;
  return vlan_error(netdev, vlans);
}

std::optional<IoError> AfXdp::obstacle_to_reopening(const std::string& netdev, const std::vector<std::string>& vlans) {
  if (!kernel_has_af_xdp()) return socket_error(netdev, 0, EAFNOSUPPORT);
  if (!netdev_is_up(netdev)) return netdev_down_error(netdev);
  if (!missing_capabilities().empty() || in_user_namespace()) return permission_error(netdev);
  return vlan_obstacle(netdev, vlans);
}

std::optional<IoError> AfXdp::obstacle(int ifindex, const std::string& netdev, const std::vector<std::string>& vlans) {
  if (std::optional<IoError> error = obstacle_to_reopening(netdev, vlans)) return error;
  if (const std::optional<AttachedProgram> other = attached_xdp_program(ifindex)) {
    return program_present_error(netdev, *other);
  }
  return std::nullopt;
}

std::optional<IoError> AfXdp::attach(const AfXdpConfig& config) {
  opened_mtu_ = config.mtu;
  queue_count_ = rx_queue_count(config.netdev);
  const auto deadline = std::chrono::steady_clock::now() + kReleaseTime;
  while (earlier_holder_ends(config) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kReleasePause);
  }
  if (std::optional<IoError> error = obstacle(config.ifindex, config.netdev, config.vlans)) return error;
  if (std::optional<IoError> error = load_xdp_library()) return error;
  if (const int error = program_.load(queue_count_, config.qpns)) return program_load_error(config.netdev, error);
  if (const int error = program_.attach(config.ifindex, config.force_generic)) {
    return program_attach_error(config.netdev, config.ifindex, config.mtu, error, program_);
  }
  return std::nullopt;
}

std::optional<IoError> AfXdp::open_sockets(const AfXdpConfig& config) {
  xsk_config_ = choose_sizes(config, queue_count_, program_.mode());
  const size_t chunks = size_t{xsk_config_.rx_frames} * queue_count_ + xsk_config_.tx_ring_size;
  if (const int error = area_.map(chunks * xsk_config_.chunk_size)) {
    return umem_error(config.netdev, error, chunks * xsk_config_.chunk_size);
  }
  std::optional<IoError> error = open_queues(config.netdev);
  // Before Linux 6.6 the kernel refuses XDP_USE_SG; frames are then limited to one chunk.
  if (error && error->code == EINVAL && multi_buffer()) {
    xsk_config_.bind_flags &= static_cast<uint16_t>(~XDP_USE_SG);
    error = open_queues(config.netdev);
  }
  return error;
}

// When a socket is closed the kernel lets go of its queue and its locked memory a moment later: whoever opens the
// netdev after another has to wait for that. Queues that are open stay so meanwhile: to close them again would take
// longer.
std::optional<IoError> AfXdp::open_queues(const std::string& netdev) {
  const auto deadline = std::chrono::steady_clock::now() + kReleaseTime;
  while (queues_.size() < queue_count_) {
    std::optional<IoError> error = open_queue(netdev, static_cast<uint32_t>(queues_.size()));
    const bool may_be_released = error && (error->code == EBUSY || error->code == ENOBUFS);
    if (error && (!may_be_released || std::chrono::steady_clock::now() > deadline)) return error;
    if (error) std::this_thread::sleep_for(kReleasePause);
  }
  return std::nullopt;
}

std::optional<IoError> AfXdp::open_queue(const std::string& netdev, uint32_t id) {
  auto queue = std::make_unique<Queue>();
  if (id == 0) {
    umem_ = std::make_unique<XskUmem>();
    const int error = umem_->create(area_, xsk_config_, queue->xsk.fill_ring(), queue->xsk.completion_ring());
    if (error != 0) return umem_error(netdev, error, area_.size());
  }
  const int error = queue->xsk.open(netdev, id, *umem_, xsk_config_);
  if (error != 0) {
    if (id == 0) umem_.reset();  // before `queue`, in which its rings are
    return socket_error(netdev, id, error);
  }
  const uint64_t first_rx_chunk = uint64_t{id} * xsk_config_.rx_frames * xsk_config_.chunk_size;
  queue->source.chunks = RxChunks(first_rx_chunk, xsk_config_.rx_frames, xsk_config_.chunk_size);
  queue->source.chunks.publish(queue->xsk);
  queues_.push_back(std::move(queue));
  return std::nullopt;
}

void AfXdp::set_up_sending(const AfXdpConfig& config) {
  const uint32_t chunks_per_slot = multi_buffer() ? kMaxFrameSize / xsk_config_.chunk_size : 1;
  const uint64_t first_slot = uint64_t{queues_.size()} * xsk_config_.rx_frames * xsk_config_.chunk_size;
  tx_slots_ = TxSlots(first_slot, xsk_config_.tx_ring_size / chunks_per_slot, xsk_config_.chunk_size, chunks_per_slot);

  const uint32_t largest_frame = multi_buffer() ? kMaxFrameSize : xsk_config_.chunk_size - kRxHeadroom;
  const auto ip_headers = static_cast<uint32_t>(wire::kIpv6Size);  // the longer ones
  max_udp_length_ = std::clamp(config.mtu, kMinMtu, largest_frame - frame_limit(0)) - ip_headers;
  for (const std::unique_ptr<Queue>& queue : queues_) wait_descriptors_.push_back({queue->xsk.fd(), POLLIN, 0});
}

}  // namespace uroce::io
