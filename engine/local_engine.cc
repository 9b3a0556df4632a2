#include "engine/local_engine.h"

#include <cerrno>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/clock.h"
#include "engine/memory/memory_access.h"
#include "engine/random.h"

namespace uroce::engine {

namespace {

// Headers around the payload: the longest a message packet has (BTH, RETH, ImmDt) and the ICRC, behind the UDP header.
constexpr uint32_t kUdpOverhead = 8 + 12 + 16 + 4 + 4;
// What Linux subtracts from a netdev's MTU before it picks the path MTU (wire.md "MTU").
constexpr uint32_t kLinuxMtuReserve = 80;

uint32_t largest_path_mtu(uint32_t netdev_mtu, uint32_t max_udp_length) {
  for (uint32_t mtu = 4096; mtu > 256; mtu /= 2) {
    if (mtu + kLinuxMtuReserve <= netdev_mtu && (max_udp_length == 0 || mtu + kUdpOverhead <= max_udp_length))
      return mtu;
  }
  return 256;
}

}  // namespace

uint32_t Engine::qpn(const Qp& qp) {
  return qp.rc.qpn().value();
}
queue::SendQueue& Engine::send_queue(Qp& qp) {
  return qp.sq;
}
queue::ReceiveQueue& Engine::receive_queue(Qp& qp) {
  return qp.rq;
}
transport::QpState Engine::state(const Qp& qp) {
  return qp.visible_state.load(std::memory_order_seq_cst);
}

LocalEngine::LocalEngine(const net::Netdev& netdev, std::shared_ptr<net::NetView> view, const Options& options,
                         IoOpener opener)
    : netdev_index_(netdev.index),
      name_(netdev.name),
      view_(std::move(view)),
      options_(options),
      opener_(std::move(opener)),
      netdev_(netdev),
      datapath_(secure_random),
      progress_(datapath_, view_->descriptor(), [this](bool news) { look_at_network(news); }) {}

LocalEngine::~LocalEngine() = default;

// Reads what the kernel has to say now. If there is news, whoever read it, the background thread has to act on it.
void LocalEngine::follow_network() {
  view_->process_changes();
  if (view_->generation() != seen_generation_.load()) progress_.wake();
}

PortStatus LocalEngine::port_status() {
  follow_network();
  const auto netdev = view_->netdev(netdev_index_);
  PortStatus status;
  if (!netdev) return status;
  status.active = netdev->up && netdev->running;
  status.netdev_mtu = netdev->mtu;
  status.active_mtu = largest_path_mtu(netdev->mtu, max_udp_length_.load());
  status.speed_mbps = netdev->speed_mbps;
  status.gids = netdev->addresses;
  return status;
}

// --- objects --------------------------------------------------------------------------------------------------------

int LocalEngine::register_memory(const memory::MemoryRegion& region, uint32_t& key) {
  const auto base = reinterpret_cast<uintptr_t>(region.base);
  if (base + region.length < base || region.iova + region.length < region.iova) return EINVAL;
  const bool remote_change = region.access & (memory::kRemoteWrite | memory::kRemoteAtomic);
  if (remote_change && !(region.access & memory::kLocalWrite)) return EINVAL;  // IBTA 10.6.3.1
  if (const int error = memory::install_fault_handler(); error != 0) return error;
  Progress::Guard guard(progress_);
  key = datapath_.memory_regions().add(region);
  return 0;
}

int LocalEngine::deregister_memory(uint32_t key) {
  Progress::Guard guard(progress_);
  datapath_.forget_waiting_packets();
  return datapath_.memory_regions().remove(key) ? 0 : EINVAL;
}

int LocalEngine::open_io() {
  std::lock_guard setup(setup_);
  if (open_) return 0;
  view_->process_changes();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev) return ENODEV;
  auto result = opener_(*netdev, options_);
  if (auto* error = std::get_if<io::IoError>(&result)) return error->code;
  auto& opened = std::get<OpenedIo>(result);
  netdev_ = *netdev;
  seen_generation_ = view_->generation();
  set_addresses_ = std::move(opened.set_addresses);
  kernel_routes_ = opened.io->kernel_routes();
  const uint32_t max_udp_length = opened.io->max_udp_length();
  {
    Progress::Guard guard(progress_);
    datapath_.attach(std::move(opened.io), [this](Qp& qp) { resolve(qp); });
  }
  max_udp_length_.store(max_udp_length);  // from here on progress() runs
  if (const int error = progress_.start(); error != 0) return error;
  open_ = true;
  return 0;
}

int LocalEngine::create_qp(const QpInit& init, Qp*& qp) {
  if (init.type != transport::QpType::kRc) return EOPNOTSUPP;
  if (const int error = open_io(); error != 0) return error;
  Progress::Guard guard(progress_);
  wire::Qpn qpn;
  if (!datapath_.qpns().take(qpn)) return ENOMEM;
  try {
    qp = new Qp(init, qpn, datapath_.memory_regions(), datapath_.counters());
  } catch (const std::bad_alloc&) {
    datapath_.qpns().release(qpn);
    return ENOMEM;
  }
  datapath_.qpns().bind(qpn, qp);
  datapath_.add(*qp);
  return 0;
}

int LocalEngine::modify_qp(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask) {
  std::lock_guard setup(setup_);  // `netdev_`
  follow_network();
  if (const auto netdev = view_->netdev(netdev_index_)) netdev_ = *netdev;
  Path path;
  if (mask & transport::kQpAddressVector) {
    const wire::Qpn remote = (mask & transport::kQpDestQpn) ? attributes.dest_qpn : qp.rc.attributes().dest_qpn;
    if (const int error = resolve_route(*view_, netdev_, attributes.address, qp.rc.qpn(), remote, path); error != 0) {
      return error;
    }
    find_neighbour(path);
  }
  if (mask & transport::kQpPathMtu) {
    const uint32_t mtu = (mask & transport::kQpAddressVector) ? path.mtu : netdev_.mtu;
    if (attributes.path_mtu > largest_path_mtu(mtu, max_udp_length_.load())) return EINVAL;
  }
  if ((mask & transport::kQpPort) && attributes.port != 1) return EINVAL;
  if ((mask & transport::kQpPkeyIndex) && attributes.pkey_index != 0) return EINVAL;

  Progress::Guard guard(progress_);
  const Time now = monotonic_now();
  if (mask & transport::kQpState) datapath_.settle_acks(qp, now);
  const int error = qp.rc.modify(attributes, mask, now);
  if (error == 0 && (mask & transport::kQpAddressVector)) qp.path = path;
  if (error == 0 && qp.rc.state() == transport::QpState::kReset) datapath_.purge_completions(qp);
  datapath_.reschedule(qp, now);
  return error;
}

transport::QpAttributes LocalEngine::query_qp(Qp& qp) {
  Progress::Guard guard(progress_);
  return qp.rc.attributes();
}

void LocalEngine::destroy_qp(Qp* qp) {
  Progress::Guard guard(progress_);
  datapath_.remove(*qp, monotonic_now());
  delete qp;
}

// --- data path ------------------------------------------------------------------------------------------------------

void LocalEngine::doorbell(Qp& qp) {
  datapath_.ring(qp);
  progress_.poll();
}

void LocalEngine::receive_doorbell(Qp& qp) {
  if (state(qp) == transport::QpState::kErr) doorbell(qp);
}

void LocalEngine::progress() {
  if (max_udp_length_.load(std::memory_order_relaxed) != 0) progress_.poll();
}

void LocalEngine::expect_sleep() {
  progress_.expect_sleep();
}

// --- the network around us ------------------------------------------------------------------------------------------

// Under the progress lock, for a QP that has packets but no address for its next hop.
void LocalEngine::resolve(Qp& qp) {
  follow_network();
  find_neighbour(qp.path);
}

void LocalEngine::find_neighbour(Path& path) {
  if (kernel_routes_) {
    path.resolved = true;
  } else {
    resolve_neighbour(*view_, netdev_index_, monotonic_now(), path);
  }
}

// In the background thread, without the progress lock.
void LocalEngine::look_at_network(bool news) {
  if (news) view_->process_changes();
  if (view_->generation() == seen_generation_.load()) return;
  std::lock_guard setup(setup_);
  seen_generation_ = view_->generation();
  net::Netdev now_netdev = netdev_;
  if (const auto netdev = view_->netdev(netdev_index_)) {
    now_netdev = *netdev;
  } else {
    now_netdev.up = now_netdev.running = false;
    now_netdev.addresses.clear();
  }
  const net::Netdev before = std::exchange(netdev_, now_netdev);
  if (before.addresses != netdev_.addresses && set_addresses_) set_addresses_(netdev_.addresses);
  refresh_paths(netdev_);
  announce(before, netdev_);
}

// Routes and neighbours of all connected QPs anew. Route look-ups ask the kernel, so equal destinations share one.
void LocalEngine::refresh_paths(const net::Netdev& netdev) {
  Progress::Guard guard(progress_);
  const Time now = monotonic_now();
  std::unordered_map<std::string, Path> known;
  datapath_.for_each_qp([&](Qp& qp) {
    const transport::QpAttributes& attr = qp.rc.attributes();
    if (attr.state != transport::QpState::kRtr && attr.state != transport::QpState::kRts) return;
    const std::string key(reinterpret_cast<const char*>(attr.address.destination.bytes.data()), 16);
    const std::string full_key = key + static_cast<char>(attr.address.source_gid_index);
    auto it = known.find(full_key);
    if (it == known.end()) {
      Path path;
      // A route that is gone for the moment leaves the QP where it is: the retry budget decides.
      if (resolve_route(*view_, netdev, attr.address, qp.rc.qpn(), attr.dest_qpn, path) != 0) return;
      path.asked_at = qp.path.asked_at;
      find_neighbour(path);
      it = known.emplace(full_key, path).first;
    }
    // A QP stays with the addresses it was connected with.
    if (it->second.envelope.source != qp.path.envelope.source) return;
    const uint16_t port = qp.path.envelope.source_port;
    const uint8_t traffic_class = qp.path.envelope.traffic_class;
    const uint32_t flow_label = qp.path.envelope.flow_label;
    qp.path = it->second;
    qp.path.envelope.source_port = port;
    qp.path.envelope.traffic_class = traffic_class;
    qp.path.envelope.flow_label = flow_label;
    datapath_.reschedule(qp, now);
  });
}

void LocalEngine::announce(const net::Netdev& before, const net::Netdev& after) {
  using transport::AsyncEvent;
  const bool was_active = before.up && before.running;
  const bool is_active = after.up && after.running;
  std::lock_guard guard(handlers_lock_);
  for (EventHandler* handler : handlers_) {
    if (was_active != is_active) (*handler)({is_active ? AsyncEvent::kPortActive : AsyncEvent::kPortError});
    if (before.addresses != after.addresses) (*handler)({AsyncEvent::kGidChange});
  }
}

std::string LocalEngine::counters_text() const {
  std::string text;
  const auto line = [&](const char* name, uint64_t value) {
    if (value != 0) text += name_ + ": " + name + ": " + std::to_string(value) + "\n";
  };
  for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
    const auto counter = static_cast<Counter>(i);
    line(Counters::text(counter), datapath_.counters().get(counter));
  }
  if (datapath_.wire() == nullptr) return text;
  const io::IoCounters io = datapath_.wire()->counters();
  line("packets received", io.rx_packets);
  line("packets sent", io.tx_packets);
  line("drop: not a well-formed IP/UDP packet", io.rx_malformed);
  line("drop: no receive buffer", io.rx_no_buffer);
  line("backpressure while sending", io.tx_backpressure);
  line("packets the kernel refused to send", io.tx_errors);
  return text;
}

void LocalEngine::add_event_handler(EventHandler* handler) {
  std::lock_guard guard(handlers_lock_);
  handlers_.push_back(handler);
}

void LocalEngine::remove_event_handler(EventHandler* handler) {
  std::lock_guard guard(handlers_lock_);
  std::erase(handlers_, handler);
}

}  // namespace uroce::engine
