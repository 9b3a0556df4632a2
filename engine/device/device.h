// SPDX-License-Identifier: BSD-2-Clause
// The inside of an Engine (engine.h): one netdev of this process with its packet I/O, its tables, its shards and who
// drives them. It follows the netdev and the network around it (network.cc). Engine does on it what the verbs ask for.
//
// Locks: `setup` first, for calls that depend on the netdev or on routes and may ask the kernel; then Progress::Guard,
// under which nothing is asked (network.md "Network").
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/datapath/datapath.h"
#include "engine/datapath/progress.h"
#include "engine/device/device_options.h"
#include "engine/device/port_io.h"
#include "engine/device/port_status.h"
#include "engine/io/steering.h"
#include "engine/objects/tables.h"

namespace uroce::engine {

class Device {
 public:
  Device(const net::Netdev& netdev, std::shared_ptr<net::NetView> view, const DeviceOptions& options, IoOpener opener);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  bool present() const { return present_; }
  Duration patience() const { return options_.patience; }
  bool wakes_by_packets() const { return options_.wakes_by_packets; }
  PortStatus port_status();
  uint32_t max_qp() const { return max_qp_.load(std::memory_order_relaxed); }                    // as Engine::max_qp()
  uint32_t max_multicast_groups() const { return max_groups_.load(std::memory_order_relaxed); }  // likewise
  // Once the packet I/O is open; it stays so.
  bool has_opened() const { return max_udp_length_.load(std::memory_order_relaxed) != 0; }
  // Opens the packet I/O and starts the background thread, if that has not been done. 0 or an errno value.
  int open_io();
  // As Engine::leave_netdev().
  void leave_netdev();
  // Those of the packet I/O; none before it is open.
  std::optional<io::IoCounters> io_counters();
  std::string packet_io();  // in words; likewise
  // Questions to the kernel about the network, of all devices.
  uint64_t network_requests() const { return view_->requests(); }
  void add_event_handler(EventHandler* handler);
  void remove_event_handler(EventHandler* handler);

  // --- the caller holds `setup` -------------------------------------------------------------------------------------
  // Brings netdev() up to date.
  void learn_netdev();
  const net::Netdev& netdev() const { return netdev_; }
  // The largest path MTU on a route with this MTU, in bytes.
  uint32_t path_mtu(uint32_t route_mtu) const { return largest_path_mtu(route_mtu, max_udp_length_.load()); }
  // What packets with this address vector share with all others between the same addresses. 0, EINVAL (no such GID,
  // families differ) or ENETUNREACH.
  int find_destination(const transport::AddressVector& address, uint32_t shard, std::shared_ptr<Destination>& to);
  // The host becomes a member of a multicast group that a QP is in (0 or an errno value), or ceases to be one.
  int join(const wire::IpAddress& group);
  void leave(const wire::IpAddress& group);

  // --- shards: shards.cc
  // ---------------------------------------------------------------------------------------------- Where a new QP
  // belongs; the caller holds the Guard. So it does for a queue whose QPs are to come to a shard.
  uint32_t choose_shard(const QpInit& init);
  uint32_t choose_shard(queue::CompletionQueue& cq);
  uint32_t number_of_shard(const Qp& qp) const { return io::shard_of(qp.transport->qpn(), progress.shard_count()); }
  Shard& shard_of(const Qp& qp) { return progress.shard(number_of_shard(qp)); }
  // Any thread; what a datapath says of its own calls counts.
  template <class F>
  void for_each_datapath(F&& f) {
    for (uint32_t i = 0; i < progress.shard_count(); ++i) f(progress.shard(i).datapath());
  }
  CounterSums counters() const;

 private:
  struct Outcome {
    int error = 0;
    std::string failure{}, introduction{};  // for people
  };
  Outcome open_in_silence();
  void attach(OpenedIo& opened);
  void close_io();
  void steer_addresses();
  void tell_host_addresses();
  Time watch_network(bool readable);
  Time look_at_network(bool readable);
  bool report();
  void note(const net::News& news);
  void follow_netdev();
  void follow_io();
  void apply(Destination& to, Destination::Route&& route, uint64_t generation);
  void refresh_routes(const net::News& news);
  void ask_for_next_hops();
  void announce(const net::Netdev& before, const net::Netdev& after, bool gone);

  const int netdev_index_;
  const std::string name_;
  const std::shared_ptr<net::NetView> view_;
  const DeviceOptions options_;
  const IoOpener opener_;

  // Under `setup`.
  net::Netdev netdev_;
  net::Netdev announced_;                  // as handlers were told last
  std::deque<Destinations> destinations_;  // of the shards
  OpenedIo opened_;                        // without the packet I/O itself, which the datapaths have
  bool open_ = false;
  bool kernel_routes_ = false;
  bool steered_ = true;                          // the packet I/O has taken the addresses
  std::vector<wire::IpAddress> host_addresses_;  // as it was told last

  std::atomic<bool> present_{true};  // the netdev is there and usable
  std::atomic<uint32_t> max_qp_;
  std::atomic<uint32_t> max_groups_;
  std::atomic<uint32_t> max_udp_length_{0};  // of the packet I/O; 0 before it is open

  std::mutex news_lock_;                                                                    // taken with no other one
  net::News news_{.netdevs = true, .all_routes = false, .next_hops = false, .routes = {}};  // to be acted on
  Time next_refresh_{};               // of routes; the background thread's
  std::atomic<Time> io_due_{kNever};  // when to look at the packet I/O again
  NextHopWaits::List wanted_;         // likewise

  std::mutex handlers_lock_;
  std::vector<EventHandler*> handlers_;

  uint32_t next_home_ = 0;  // of completion queues, by turns; under the Guard

 public:
  std::mutex setup;
  Tables tables;
  Progress progress;  // last: its thread uses everything above
};

}  // namespace uroce::engine
