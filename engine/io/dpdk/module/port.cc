// SPDX-License-Identifier: BSD-2-Clause
// Ports: set-up, bursts, and the table of functions that uroce_dpdk.so exports.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <memory>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_version.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/unique_fd.h"
#include "engine/io/dpdk/calls.h"
#include "engine/io/dpdk/module/frames.h"
#include "engine/io/dpdk/module/module.h"

namespace uroce::io {

struct DpdkPort {
  uint16_t id = RTE_MAX_ETHPORTS;
  bool running = false;  // not between two attempts to reach a memif's server
  bool memif = false, memif_client = false;
  std::chrono::steady_clock::time_point tried_at{};  // to reach it
  rte_device* device = nullptr;
  rte_mempool* pool = nullptr;
  uint16_t queues = 1;
  uint16_t next_queue = 0;  // where receive() starts, so that no queue starves
  bool interrupts = false;
  std::vector<int> descriptors;     // to sleep on
  bool event_counters = false;      // these count events, and become unreadable by being read
  std::vector<int> packet_sockets;  // of net_af_packet
  uint64_t socket_drops = 0;        // that the kernel has told and forgotten
};

namespace dpdk {
namespace {

constexpr uint16_t kRxDescriptors = 1024;
constexpr uint16_t kTxDescriptors = 512;
constexpr std::chrono::seconds kServerTime{3};
constexpr std::chrono::milliseconds kServerPause{5};
constexpr std::chrono::milliseconds kServerInterval{100};
constexpr uint32_t kBuffersInHand = 256;  // received and not released, reserved and not sent

std::string error_text(int error) {
  const std::string complaint = first_complaint();
  return complaint.empty() ? std::string(rte_strerror(error < 0 ? -error : error)) : complaint;
}

rte_mbuf* mbuf_of(const DpdkBuffer& buffer) {
  return static_cast<rte_mbuf*>(buffer.handle);
}

bool has_link(const DpdkPort& port) {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port.id, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
}

// EAL's thread does nothing to the port meanwhile.
EalStands alone_with(const DpdkPort& port) {
  return port.memif ? let_eal_stand() : EalStands();
}

// The driver tries once, when the port is started. Its server may come back, or have turned the client away because it
// was not ready.
void reach_server(DpdkPort& port) {
  const auto now = std::chrono::steady_clock::now();
  if (now - port.tried_at < kServerInterval) return;
  port.tried_at = now;
  const EalStands alone = alone_with(port);
  if (port.running) rte_eth_dev_stop(port.id);
  port.running = rte_eth_dev_start(port.id) == 0;
}

bool link_up(DpdkPort* port) {
  if (port->running && has_link(*port)) return true;
  if (!port->memif_client) return false;
  reach_server(*port);
  return port->running && has_link(*port);
}

bool is_event_counter(int fd) {
  char target[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return readlink(link.c_str(), target, sizeof(target) - 1) > 0 && std::strstr(target, "[eventfd]") != nullptr;
}

// That the netdev is so by `ip link set`, not for the sockets of a program.
bool is_promiscuous(int ifindex) {
  ifreq request{};
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || if_indextoname(static_cast<unsigned>(ifindex), request.ifr_name) == nullptr) return false;
  return ioctl(fd.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_PROMISC) != 0;
}

class Opener {
 public:
  Opener(const DpdkPortConfig& config, DpdkPortInfo& info) : config_(config), info_(info) {}

  // Empty: the port is open.
  std::string open(DpdkPort& port) {
    begin_complaints();
    std::string problem = start_eal(config_.devargs);
    if (problem.empty()) {
      begin_complaints();
      constexpr const char* kMemif = "net_memif";
      port.memif = std::strncmp(config_.devargs, kMemif, std::strlen(kMemif)) == 0;
      const EalStands alone = alone_with(port);
      problem = probe(port);
    }
    if (problem.empty()) problem = configure(port);  // visitors do not get to a port that has not been started
    if (problem.empty()) problem = start(port);
    if (problem.empty()) find_descriptors(port);
    return problem;
  }

 private:
  // The driver takes the device.
  std::string probe(DpdkPort& port) {
    const std::string devargs = config_.devargs;
    const std::string name = devargs.substr(0, devargs.find(','));
    if (rte_eth_dev_get_port_by_name(name.c_str(), &port.id) == 0) {
      // A PCI device is probed when DPDK starts. Any other one is in use, or has been left in use.
      static std::atomic<bool> first{true};
      const bool fresh = first.exchange(false);
      rte_eth_dev_info info{};
      if (!fresh || rte_eth_dev_info_get(port.id, &info) != 0) {
        port.id = RTE_MAX_ETHPORTS;
        return "this process has opened " + name + " already";
      }
      port.device = const_cast<rte_device*>(info.device);
      return "";
    }
    const PacketSockets sockets;
    const int error = rte_dev_probe(devargs.c_str());
    if (error != 0) return error_text(error);
    if (rte_eth_dev_get_port_by_name(name.c_str(), &port.id) != 0) {
      port.id = RTE_MAX_ETHPORTS;
      return "the driver has made no port of it";
    }
    port.packet_sockets = sockets.open();
    if (config_.mac == nullptr) {
      constexpr uint32_t kHeaders = RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
      for (const int fd : port.packet_sockets) {
        take_only(fd, {config_.mtu + kHeaders, config_.first_qpn, config_.qpn_count});
      }
    }
    return "";
  }

  std::string configure(DpdkPort& port) {
    rte_eth_dev_info device{};
    if (const int error = rte_eth_dev_info_get(port.id, &device); error != 0) return error_text(error);
    port.device = const_cast<rte_device*>(device.device);
    port.queues = static_cast<uint16_t>(std::clamp<uint32_t>(
        config_.queues, 1, std::max<uint32_t>(1, std::min(device.max_rx_queues, device.max_tx_queues))));
    rte_eth_conf conf{};
    // Checksums are judged where the NIC can; tags stay in the frame, where it is seen whose they are.
    conf.rxmode.offloads = device.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_SCATTER);
    conf.txmode.offloads = device.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    if (config_.vlan != 0) {
      conf.rxmode.offloads |= device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
      conf.txmode.offloads |= device.tx_offload_capa & RTE_ETH_TX_OFFLOAD_VLAN_INSERT;
      info_.inserts_vlan = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_VLAN_INSERT) != 0;
    }
    const bool takes_mtu = config_.mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN <= device.max_rx_pktlen;
    if (takes_mtu) conf.rxmode.mtu = std::clamp<uint32_t>(config_.mtu, device.min_mtu, device.max_mtu);
    if (port.queues > 1) {
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
      conf.rx_adv_conf.rss_conf.rss_hf = device.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
      if (conf.rx_adv_conf.rss_conf.rss_hf == 0) conf.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
    }
    conf.intr_conf.rxq = 1;
    int error = rte_eth_dev_configure(port.id, port.queues, port.queues, &conf);
    if (error != 0) {
      conf.intr_conf.rxq = 0;
      begin_complaints();
      error = rte_eth_dev_configure(port.id, port.queues, port.queues, &conf);
    }
    if (error != 0) return error_text(error);
    port.interrupts = conf.intr_conf.rxq != 0;
    fill_info(port, device);
    return set_up_queues(port);
  }

  void fill_info(const DpdkPort& port, const rte_eth_dev_info& device) {
    info_.ifindex = static_cast<int>(device.if_index);
    info_.queues = port.queues;
    info_.hugepages = has_hugepages();
    rte_ether_addr mac{};
    rte_eth_macaddr_get(port.id, &mac);
    std::memcpy(info_.mac, mac.addr_bytes, sizeof(info_.mac));
    std::snprintf(info_.driver, sizeof(info_.driver), "%s", device.driver_name);
  }

  std::string set_up_queues(DpdkPort& port) {
    uint16_t rx = kRxDescriptors, tx = kTxDescriptors;
    if (const int error = rte_eth_dev_adjust_nb_rx_tx_desc(port.id, &rx, &tx); error != 0) return error_text(error);
    // All allocations and releases of a port's buffers happen in calls of its user, one at a time: no locks, and no
    // per-thread caches, which threads that DPDK does not know cannot have.
    const uint32_t count = uint32_t{port.queues} * (uint32_t{rx} + tx) + kBuffersInHand;
    const std::string name = "uroce_port_" + std::to_string(port.id);
    const auto room = static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + config_.buffer_size);
    port.pool = rte_pktmbuf_pool_create_by_ops(name.c_str(), count, 0, 0, room, SOCKET_ID_ANY, "ring_sp_sc");
    if (port.pool == nullptr) return "no memory for " + std::to_string(count) + " buffers: " + error_text(rte_errno);
    for (uint16_t queue = 0; queue < port.queues; ++queue) {
      int error = rte_eth_rx_queue_setup(port.id, queue, rx, SOCKET_ID_ANY, nullptr, port.pool);
      if (error == 0) error = rte_eth_tx_queue_setup(port.id, queue, tx, SOCKET_ID_ANY, nullptr);
      if (error != 0) return error_text(error);
    }
    return "";
  }

  std::string start(DpdkPort& port) {
    if (config_.mac == nullptr && is_promiscuous(info_.ifindex)) rte_eth_promiscuous_enable(port.id);  // stays so
    EalStands alone = alone_with(port);
    const int error = rte_eth_dev_start(port.id);
    if (alone) alone.unlock();
    port.memif_client = port.memif && std::strstr(config_.devargs, "role=server") == nullptr;
    port.running = error == 0;
    if (port.memif_client) wait_for_server(port);
    if (!port.running) return error_text(error);
    if (config_.mac != nullptr) take_own_frames(port.id);
    return "";
  }

  // The server may be starting as well.
  static void wait_for_server(DpdkPort& port) {
    port.tried_at = std::chrono::steady_clock::now();
    const auto deadline = port.tried_at + kServerTime;
    while (!link_up(&port) && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kServerPause);
  }

  // Where the driver has no other address than its own, all frames are shown, and the reader picks.
  void take_own_frames(uint16_t id) const {
    rte_ether_addr mac{};
    std::memcpy(mac.addr_bytes, config_.mac, sizeof(mac.addr_bytes));
    if (rte_eth_dev_default_mac_addr_set(id, &mac) != 0) rte_eth_promiscuous_enable(id);
    rte_eth_allmulticast_enable(id);
  }

  // The packet sockets of net_af_packet can be polled themselves.
  void find_descriptors(DpdkPort& port) {
    port.descriptors = port.packet_sockets;
    if (!port.descriptors.empty()) {
      port.interrupts = false;
    } else if (port.interrupts) {
      find_interrupts(port);
    }
    if (port.descriptors.size() > DpdkPortInfo::kMaxDescriptors) {
      port.descriptors.clear();
      port.interrupts = false;
    }
    info_.descriptor_count = static_cast<uint32_t>(port.descriptors.size());
    std::copy(port.descriptors.begin(), port.descriptors.end(), info_.descriptors);
  }

  // A descriptor of each queue, or none at all.
  static void find_interrupts(DpdkPort& port) {
    for (uint16_t queue = 0; queue < port.queues; ++queue) {
      const int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port.id, queue);
      if (fd >= 0) port.descriptors.push_back(fd);
      port.event_counters = fd >= 0 && is_event_counter(fd);
    }
    // net_tap's are the device's own descriptors, which need not be asked for.
    const bool can_arm = rte_eth_dev_rx_intr_enable(port.id, 0) == 0;
    port.interrupts = can_arm && port.event_counters;
    if (port.descriptors.size() == port.queues && port.interrupts == port.event_counters) return;
    port.descriptors.clear();
    port.interrupts = false;
  }

  const DpdkPortConfig& config_;
  DpdkPortInfo& info_;
};

void close_port(DpdkPort* port) {
  if (port->id != RTE_MAX_ETHPORTS) {
    const EalStands alone = alone_with(*port);
    if (port->running) rte_eth_dev_stop(port->id);
    rte_eth_dev_close(port->id);
    if (port->device != nullptr) rte_dev_remove(port->device);
  }
  rte_mempool_free(port->pool);
  delete port;
}

DpdkPort* open_port(const DpdkPortConfig* config, DpdkPortInfo* info, DpdkText* error) {
  *info = {};
  auto port = std::make_unique<DpdkPort>();
  const std::string problem = Opener(*config, *info).open(*port);
  if (problem.empty()) return port.release();
  close_port(port.release());
  std::snprintf(error->text, sizeof(error->text), "%s", problem.c_str());
  return nullptr;
}

size_t receive(DpdkPort* port, DpdkBuffer* frames, size_t count) {
  constexpr size_t kMost = 64;
  rte_mbuf* mbufs[kMost];
  size_t all = 0;
  const EalRests rests = port->memif ? eal_rests() : EalRests();
  if (port->memif && !rests) return 0;
  count = port->running ? std::min(count, kMost) : 0;
  for (uint16_t i = 0; i < port->queues && all < count; ++i) {
    const auto queue = static_cast<uint16_t>((port->next_queue + i) % port->queues);
    all += rte_eth_rx_burst(port->id, queue, mbufs + all, static_cast<uint16_t>(count - all));
  }
  port->next_queue = static_cast<uint16_t>((port->next_queue + 1) % port->queues);
  for (size_t i = 0; i < all; ++i) frames[i] = describe(mbufs[i]);
  return all;
}

void release(const DpdkBuffer* frames, size_t count) {
  for (size_t i = 0; i < count; ++i) rte_pktmbuf_free(mbuf_of(frames[i]));
}

size_t gather(const DpdkBuffer* frame, uint8_t* out, size_t room) {
  return gather_segments(*frame, out, room);
}

size_t reserve(DpdkPort* port, DpdkBuffer* buffers, size_t count) {
  constexpr size_t kMost = 64;
  rte_mbuf* mbufs[kMost];
  if (count > kMost || rte_pktmbuf_alloc_bulk(port->pool, mbufs, static_cast<unsigned>(count)) != 0) return 0;
  for (size_t i = 0; i < count; ++i) {
    buffers[i] = {.handle = mbufs[i],
                  .data = rte_pktmbuf_mtod(mbufs[i], uint8_t*),
                  .size = rte_pktmbuf_tailroom(mbufs[i]),
                  .total = 0,
                  .segments = 1,
                  .vlan = 0,
                  .bad_checksum = false};
  }
  return count;
}

size_t send(DpdkPort* port, uint32_t queue, const DpdkBuffer* frames, size_t count) {
  constexpr size_t kMost = 64;
  rte_mbuf* mbufs[kMost];
  const EalRests rests = port->memif ? eal_rests() : EalRests();
  if (port->memif && !rests) return 0;
  count = port->running ? std::min(count, kMost) : 0;
  for (size_t i = 0; i < count; ++i) {
    mbufs[i] = mbuf_of(frames[i]);
    mbufs[i]->data_len = static_cast<uint16_t>(frames[i].size);
    mbufs[i]->pkt_len = frames[i].size;
    if (frames[i].vlan == 0) continue;
    mbufs[i]->vlan_tci = frames[i].vlan;
    mbufs[i]->ol_flags |= RTE_MBUF_F_TX_VLAN;
  }
  return rte_eth_tx_burst(port->id, static_cast<uint16_t>(queue), mbufs, static_cast<uint16_t>(count));
}

// Where the descriptor is an event counter, what was counted is taken before interrupts are asked for anew: the frames
// behind it are looked for afterwards.
bool arm(DpdkPort* port) {
  if (!port->interrupts) return true;
  for (const int fd : port->descriptors) {
    uint64_t events = 0;
    if (fcntl(fd, F_GETFL) & O_NONBLOCK) static_cast<void>(!read(fd, &events, sizeof(events)));
  }
  for (uint16_t queue = 0; queue < port->queues; ++queue) {
    rte_eth_dev_rx_intr_enable(port->id, queue);
    if (rte_eth_rx_queue_count(port->id, queue) > 0) return false;
  }
  return true;
}

void counters(DpdkPort* port, DpdkPortCounters* out) {
  rte_eth_stats stats{};
  rte_eth_stats_get(port->id, &stats);
  for (const int fd : port->packet_sockets) {  // the kernel forgets what it has told
    tpacket_stats told{};
    socklen_t size = sizeof(told);
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &told, &size) == 0) port->socket_drops += told.tp_drops;
  }
  *out = {.rx_no_buffer = stats.imissed + stats.rx_nombuf + port->socket_drops, .tx_errors = stats.oerrors};
}

}  // namespace
}  // namespace dpdk
}  // namespace uroce::io

extern "C" [[gnu::visibility("default")]] const uroce::io::DpdkCalls uroce_dpdk_calls = {
    .interface = UROCE_DPDK_INTERFACE,
    .version = rte_version,
    .open = uroce::io::dpdk::open_port,
    .close = uroce::io::dpdk::close_port,
    .receive = uroce::io::dpdk::receive,
    .release = uroce::io::dpdk::release,
    .gather = uroce::io::dpdk::gather,
    .reserve = uroce::io::dpdk::reserve,
    .send = uroce::io::dpdk::send,
    .link_up = uroce::io::dpdk::link_up,
    .arm = uroce::io::dpdk::arm,
    .counters = uroce::io::dpdk::counters,
};
