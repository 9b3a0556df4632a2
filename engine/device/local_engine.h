// The engine of one netdev in this process: puts datapath, progress and network view together behind Engine.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/datapath/datapath.h"
#include "engine/datapath/progress.h"
#include "engine/device/open_io.h"
#include "engine/engine.h"
#include "engine/objects/tables.h"
#include "engine/options.h"

namespace uroce::engine {

class LocalEngine final : public Engine {
 public:
  LocalEngine(const net::Netdev& netdev, std::shared_ptr<net::NetView> view, const Options& options, IoOpener opener);
  ~LocalEngine() override;

  const std::string& netdev_name() const override { return name_; }
  PortStatus port_status() override;
  bool present() const override { return present_; }

  int register_memory(const memory::MemoryRegion& region, uint32_t& key) override;
  int reregister_memory(uint32_t key, const memory::MemoryRegion& region) override;
  int deregister_memory(uint32_t key) override;
  int find_memory(uint32_t key, memory::MemoryRegion& region) override;
  int allocate_window(memory::WindowType type, uint32_t pd, uint32_t& key) override;
  int deallocate_window(uint32_t key) override;

  int create_qp(const QpInit& init, Qp*& qp) override;
  int modify_qp(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask) override;
  transport::QpAttributes query_qp(Qp& qp) override;
  void destroy_qp(Qp* qp) override;
  int create_srq(const SrqInit& init, Srq*& srq) override;
  int resize_srq(Srq& srq, uint32_t max_wr) override;
  void arm_srq_limit(Srq& srq, uint32_t limit) override;
  uint32_t srq_limit(Srq& srq) override;
  void destroy_srq(Srq* srq) override;
  int create_address(const transport::AddressVector& address, uint32_t& handle) override;
  void destroy_address(uint32_t handle) override;
  int attach_multicast(Qp& qp, const wire::IpAddress& group) override;
  int detach_multicast(Qp& qp, const wire::IpAddress& group) override;

  int resize_cq(queue::CompletionQueue& cq, uint32_t capacity) override;
  int moderate_cq(queue::CompletionQueue& cq, uint16_t count, Duration period) override;

  void doorbell(Qp& qp) override;
  void receive_doorbell(Qp& qp) override;
  void progress() override;
  void expect_sleep() override;
  void report_missed(queue::CompletionQueue& cq) override;

  void add_event_handler(EventHandler* handler) override;
  void remove_event_handler(EventHandler* handler) override;

  void leave_netdev() override;

  std::string counters_text() const override;
  PortCounters port_counters() override;
  const Counters& counters() const { return datapath_.counters(); }

 private:
  int open_io();
  void close_io();
  Time watch_network(bool readable);
  Time look_at_network(bool readable);
  void note(const net::News& news);
  void follow_netdev();
  void learn_netdev();
  int find_destination(const transport::AddressVector& address, std::shared_ptr<Destination>& to);
  void apply(Destination& to, Destination::Route&& route, uint64_t generation);
  void refresh_routes(const net::News& news);
  void ask_for_next_hops();
  void steer_addresses();
  std::optional<io::IoCounters> io_counters() const;
  void leave_groups(Qp& qp);
  void announce(const net::Netdev& before, const net::Netdev& after, bool gone);

  const int netdev_index_;
  const std::string name_;
  const std::shared_ptr<net::NetView> view_;
  const Options options_;
  const IoOpener opener_;

  std::mutex setup_;  // opening the packet I/O, `netdev_` and `destinations_`
  net::Netdev netdev_;
  net::Netdev announced_;            // as handlers were told last
  std::atomic<bool> present_{true};  // the netdev is there and usable
  Destinations destinations_;
  std::mutex news_lock_;                                                                    // taken with no other one
  net::News news_{.netdevs = true, .all_routes = false, .next_hops = false, .routes = {}};  // to be acted on
  Time next_refresh_{};        // of routes; the background thread's
  NextHopWaits::List wanted_;  // likewise
  bool open_ = false;
  std::atomic<uint32_t> max_udp_length_{0};  // of the packet I/O; 0 before it is open
  std::function<int(const wire::MacAddress&, std::span<const wire::IpAddress>)> set_addresses_;
  std::function<void(const net::Netdev&)> check_;
  bool steered_ = true;  // the packet I/O has taken the addresses
  std::function<int(const wire::IpAddress&)> join_;
  std::function<void(const wire::IpAddress&)> leave_;
  bool kernel_routes_ = false;

  std::mutex handlers_lock_;
  std::vector<EventHandler*> handlers_;

  Tables tables_;
  Datapath datapath_;
  mutable Progress progress_;  // last: its thread uses everything above
};

}  // namespace uroce::engine
