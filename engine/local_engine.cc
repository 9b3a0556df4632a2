#include "engine/local_engine.h"

#include <cerrno>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/clock.h"
#include "engine/io/closed_io.h"
#include "engine/random.h"

namespace uroce::engine {

namespace {

// Headers around the payload: the longest a message packet has (BTH, XRCETH, RETH, ImmDt) and the ICRC, behind the UDP
// header.
constexpr uint32_t kUdpOverhead = 8 + 12 + 4 + 16 + 4 + 4;
// What Linux subtracts from a netdev's MTU before it picks the path MTU (wire.md "MTU").
constexpr uint32_t kLinuxMtuReserve = 80;

uint32_t largest_path_mtu(uint32_t netdev_mtu, uint32_t max_udp_length) {
  for (uint32_t mtu = 4096; mtu > 256; mtu /= 2) {
    if (mtu + kLinuxMtuReserve <= netdev_mtu && (max_udp_length == 0 || mtu + kUdpOverhead <= max_udp_length))
      return mtu;
  }
  return 256;
}

// QPs and address handles stay with the address they were made with, also when others come and go and it has another
// place in the GID table. False: it is gone.
bool keep_source(const net::Netdev& netdev, const Path& path, transport::AddressVector& address) {
  const auto& gids = netdev.addresses;
  const auto found = std::find(gids.begin(), gids.end(), path.envelope.source);
  if (found == gids.end() || found - gids.begin() > UINT8_MAX) return false;
  address.source_gid_index = static_cast<uint8_t>(found - gids.begin());
  return true;
}

}  // namespace

uint32_t Engine::qpn(const Qp& qp) {
  return qp.transport->qpn().value();
}
queue::SendQueue& Engine::send_queue(Qp& qp) {
  return qp.sq;
}
queue::ReceiveQueue& Engine::receive_queue(Qp& qp) {
  return qp.rq;
}
queue::ReceiveQueue& Engine::receive_queue(Srq& srq) {
  return srq;
}
uint32_t Engine::number(const Srq& srq) {
  return srq.srqn;
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
      announced_(netdev),
      datapath_(secure_random),
      progress_(datapath_, view_->descriptor(), [this](bool news) { look_at_network(news); }) {
  view_->add_listener(this, [this] { progress_.wake(); });
}

LocalEngine::~LocalEngine() {
  view_->remove_listener(this);
}

// Reads what the kernel has to say now. If there is news, whoever read it, the background thread has to act on it.
void LocalEngine::follow_network() {
  view_->process_changes();
  if (view_->generation() != seen_generation_.load()) progress_.wake();
}

// What the kernel says of the netdev now, for a call that depends on it. Packets for an address that the call may use
// are taken from here on; all else that is new is left to the background thread. Caller holds setup_.
void LocalEngine::learn_netdev() {
  follow_network();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev) return;
  const bool moved = netdev->addresses != netdev_.addresses;
  netdev_ = *netdev;
  if (moved) steer_addresses();
}

PortStatus LocalEngine::port_status() {
  follow_network();
  const auto netdev = view_->netdev(netdev_index_);
  PortStatus status;
  status.pkey_violations = static_cast<uint32_t>(counters().get(Counter::kDropWrongPkey));
  status.qkey_violations = static_cast<uint32_t>(counters().get(Counter::kDropWrongQkey));
  if (!netdev) return status;
  status.up = netdev->up;
  status.active = netdev->up && netdev->running;
  status.netdev_mtu = netdev->mtu;
  status.active_mtu = largest_path_mtu(netdev->mtu, max_udp_length_.load());
  status.speed_mbps = netdev->speed_mbps;
  status.gids = netdev->addresses;
  return status;
}

// --- objects --------------------------------------------------------------------------------------------------------

int LocalEngine::open_io() {
  std::lock_guard setup(setup_);
  if (open_) return 0;
  view_->process_changes();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev || !present_) return ENODEV;
  auto result = opener_(*netdev, options_);
  if (auto* error = std::get_if<io::IoError>(&result)) return error->code;
  auto& opened = std::get<OpenedIo>(result);
  netdev_ = *netdev;
  set_addresses_ = std::move(opened.set_addresses);
  join_ = std::move(opened.join);
  leave_ = std::move(opened.leave);
  kernel_routes_ = opened.io->kernel_routes();
  const uint32_t max_udp_length = opened.io->max_udp_length();
  {
    Progress::Guard guard(progress_);
    datapath_.set_addresses(netdev_.addresses);
    datapath_.attach(std::move(opened.io), [this](Path& path) { resolve(path); });
  }
  max_udp_length_.store(max_udp_length);  // from here on progress() runs
  if (const int error = progress_.start(); error != 0) return error;
  open_ = true;
  return 0;
}

// The netdev is gone, and what was attached to it with it. Caller holds setup_.
void LocalEngine::close_io() {
  set_addresses_ = nullptr;
  join_ = nullptr;
  leave_ = nullptr;
  Progress::Guard guard(progress_);
  if (datapath_.wire() == nullptr) return;
  datapath_.forget_waiting_packets();
  datapath_.attach(std::make_unique<io::ClosedIo>(*datapath_.wire()), [this](Path& path) { resolve(path); });
}

int LocalEngine::create_qp(const QpInit& init, Qp*& qp) {
  if (const int error = open_io(); error != 0) return error;
  Progress::Guard guard(progress_);
  wire::Qpn qpn;
  if (!datapath_.qpns().take(qpn)) return ENOMEM;
  try {
    qp = new Qp(init, qpn, datapath_.memory_regions(), datapath_.srqs(), datapath_.counters());
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
  learn_netdev();
  Path path;
  if (mask & transport::kQpAddressVector) {
    const wire::Qpn remote = (mask & transport::kQpDestQpn) ? attributes.dest_qpn : qp.transport->attributes().dest_qpn;
    if (const int error = resolve_route(*view_, netdev_, attributes.address, qp.transport->qpn(), remote, path);
        error != 0) {
      return error;
    }
    find_neighbour(path);
  }
  transport::QpAttributes adjusted = attributes;
  if (qp.is_ud()) {
    if (mask & transport::kQpPathMtu) return EINVAL;
    adjusted.path_mtu = largest_path_mtu(netdev_.mtu, max_udp_length_.load());
    mask |= transport::kQpPathMtu;
  } else if (mask & transport::kQpPathMtu) {
    const uint32_t mtu = (mask & transport::kQpAddressVector) ? path.mtu : netdev_.mtu;
    if (attributes.path_mtu > largest_path_mtu(mtu, max_udp_length_.load())) return EINVAL;
  }
  if ((mask & transport::kQpPort) && attributes.port != 1) return EINVAL;
  if ((mask & transport::kQpPkeyIndex) && attributes.pkey_index != 0) return EINVAL;

  Progress::Guard guard(progress_);
  const Time now = monotonic_now();
  if (mask & transport::kQpState) datapath_.settle_acks(qp, now);
  const int error = qp.transport->modify(adjusted, mask, now);
  if (error == 0 && (mask & transport::kQpAddressVector)) qp.path = path;
  const transport::QpState state = qp.transport->state();
  // The application has its memory back, so what has not left must not leave any more.
  const bool ended = state == transport::QpState::kReset || state == transport::QpState::kErr;
  if (error == 0 && ended && datapath_.backpressured()) datapath_.forget_waiting_packets();
  if (error == 0 && state == transport::QpState::kReset) datapath_.purge_completions(qp);
  datapath_.reschedule(qp, now);
  return error;
}

transport::QpAttributes LocalEngine::query_qp(Qp& qp) {
  Progress::Guard guard(progress_);
  return qp.transport->attributes();
}

void LocalEngine::destroy_qp(Qp* qp) {
  leave_groups(*qp);
  Progress::Guard guard(progress_);
  datapath_.memory_regions().forget_qp(qp->transport->qpn().value());
  datapath_.remove(*qp, monotonic_now());
  delete qp;
}

int LocalEngine::create_srq(const SrqInit& init, Srq*& srq) {
  Progress::Guard guard(progress_);
  const uint32_t number = datapath_.srqs().next_number();
  if (number == 0) return ENOMEM;
  try {
    auto created = std::make_unique<Srq>(init, number);
    datapath_.srqs().add(*created);
    srq = created.release();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return 0;
}

int LocalEngine::resize_srq(Srq& srq, uint32_t max_wr) {
  Progress::Guard guard(progress_);
  try {
    return srq.resize(max_wr) ? 0 : EINVAL;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

void LocalEngine::arm_srq_limit(Srq& srq, uint32_t limit) {
  Progress::Guard guard(progress_);
  srq.arm_limit(limit);
}

uint32_t LocalEngine::srq_limit(Srq& srq) {
  Progress::Guard guard(progress_);
  return srq.limit();
}

void LocalEngine::destroy_srq(Srq* srq) {
  Progress::Guard guard(progress_);
  datapath_.srqs().remove(*srq);
  datapath_.for_each_qp([srq](Qp& qp) { qp.transport->on_srq_destroyed(*srq); });
  delete srq;
}

int LocalEngine::create_address(const transport::AddressVector& address, uint32_t& handle) {
  std::lock_guard setup(setup_);  // `netdev_`
  learn_netdev();
  Path path;
  if (const int error = resolve_route(*view_, netdev_, address, path); error != 0) return error;
  Progress::Guard guard(progress_);
  find_neighbour(path);
  handle = datapath_.address_handles().add(address, path);
  return handle != 0 ? 0 : ENOMEM;
}

void LocalEngine::destroy_address(uint32_t handle) {
  Progress::Guard guard(progress_);
  // Packets on their way point to its envelope.
  if (datapath_.backpressured()) datapath_.forget_waiting_packets();
  datapath_.address_handles().remove(handle);
}

int LocalEngine::attach_multicast(Qp& qp, const wire::IpAddress& group) {
  if (!is_multicast(group) || !qp.is_ud()) return EINVAL;
  std::lock_guard setup(setup_);
  MulticastGroups& groups = datapath_.groups();
  {
    Progress::Guard guard(progress_);
    if (groups.has(group, qp)) return 0;
    const size_t members = groups.members(group).size();
    if (members >= Limits::kMaxMulticastQps) return ENOMEM;
    if (members == 0 && groups.size() >= Limits::kMaxMulticastGroups) return ENOMEM;
    groups.attach(group, qp);
    if (members > 0) return 0;
  }
  if (const int error = join_ ? join_(group) : 0; error != 0) {
    Progress::Guard guard(progress_);
    groups.detach(group, qp);
    return error;
  }
  steer_addresses();
  return 0;
}

int LocalEngine::detach_multicast(Qp& qp, const wire::IpAddress& group) {
  std::lock_guard setup(setup_);
  {
    Progress::Guard guard(progress_);
    if (!datapath_.groups().detach(group, qp)) return EINVAL;
    if (!datapath_.groups().members(group).empty()) return 0;
  }
  if (leave_) leave_(group);
  steer_addresses();
  return 0;
}

void LocalEngine::leave_groups(Qp& qp) {
  if (!qp.is_ud()) return;
  std::vector<wire::IpAddress> groups;
  {
    Progress::Guard guard(progress_);
    groups = datapath_.groups().of(qp);
  }
  for (const wire::IpAddress& group : groups) detach_multicast(qp, group);
}

// Tells everybody whom packets may be for: the netdev's addresses, and the groups that QPs are in. Caller holds setup_.
void LocalEngine::steer_addresses() {
  std::vector<wire::IpAddress> addresses = netdev_.addresses;
  {
    Progress::Guard guard(progress_);
    datapath_.set_addresses(addresses);
    if (!set_addresses_) return;
    const std::vector<wire::IpAddress> groups = datapath_.groups().all();
    addresses.insert(addresses.end(), groups.begin(), groups.end());
  }
  set_addresses_(addresses);
}

int LocalEngine::resize_cq(queue::CompletionQueue& cq, uint32_t capacity) {
  queue::CompletionQueue::Ring ring = queue::CompletionQueue::make_ring(capacity);
  Progress::Guard guard(progress_);
  return cq.resize(capacity, ring) ? 0 : EINVAL;
}

int LocalEngine::moderate_cq(queue::CompletionQueue& cq, uint16_t count, Duration period) {
  Progress::Guard guard(progress_);
  cq.moderate(count, period);
  datapath_.moderated_cqs().set(cq);
  return 0;
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

void LocalEngine::report_missed(queue::CompletionQueue& cq) {
  Progress::Guard guard(progress_);
  cq.report_missed();
}

// --- the network around us ------------------------------------------------------------------------------------------

// Under the progress lock, for packets whose next hop has no address yet.
void LocalEngine::resolve(Path& path) {
  follow_network();
  find_neighbour(path);
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
  const bool was_present = present_;
  const auto netdev = view_->netdev(netdev_index_);
  present_ = was_present && netdev;
  if (present_) {
    now_netdev = *netdev;
  } else {
    if (was_present) close_io();
    now_netdev.up = now_netdev.running = false;
    now_netdev.addresses.clear();
  }
  netdev_ = now_netdev;
  const net::Netdev before = std::exchange(announced_, std::move(now_netdev));
  if (before.addresses != netdev_.addresses) steer_addresses();
  refresh_paths(netdev_);
  refresh_handles(netdev_);
  announce(before, netdev_, was_present && !present_);
}

// Routes and neighbours of all connected QPs anew. Route look-ups ask the kernel, so equal destinations share one.
void LocalEngine::refresh_paths(const net::Netdev& netdev) {
  Progress::Guard guard(progress_);
  const Time now = monotonic_now();
  std::unordered_map<std::string, Path> known;
  datapath_.for_each_qp([&](Qp& qp) {
    const transport::QpAttributes& attr = qp.transport->attributes();
    if (attr.state != transport::QpState::kRtr && attr.state != transport::QpState::kRts) return;
    transport::AddressVector address = attr.address;
    if (!keep_source(netdev, qp.path, address)) return;
    const auto bytes = [](const wire::IpAddress& ip) {
      return std::string(reinterpret_cast<const char*>(ip.bytes.data()), ip.bytes.size());
    };
    const std::string key = bytes(address.destination) + bytes(qp.path.envelope.source);
    auto it = known.find(key);
    if (it == known.end()) {
      Path path;
      // A route that is gone for the moment leaves the QP where it is: the retry budget decides.
      if (resolve_route(*view_, netdev, address, qp.transport->qpn(), attr.dest_qpn, path) != 0) return;
      path.asked_at = qp.path.asked_at;
      find_neighbour(path);
      it = known.emplace(key, path).first;
    }
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

// The same for address handles.
void LocalEngine::refresh_handles(const net::Netdev& netdev) {
  Progress::Guard guard(progress_);
  datapath_.address_handles().for_each([&](AddressHandle& handle) {
    Path path;
    transport::AddressVector address = handle.address;
    if (!keep_source(netdev, handle.path, address)) return;
    if (resolve_route(*view_, netdev, address, path) != 0) return;
    path.asked_at = handle.path.asked_at;
    find_neighbour(path);
    handle.path = path;
  });
}

// A netdev that is gone takes its device along, as pulling a NIC does: everything stays callable and gets nowhere.
void LocalEngine::announce(const net::Netdev& before, const net::Netdev& after, bool gone) {
  using transport::AsyncEvent;
  const bool was_active = before.up && before.running;
  const bool is_active = after.up && after.running;
  std::lock_guard guard(handlers_lock_);
  for (EventHandler* handler : handlers_) {
    if (was_active != is_active) (*handler)({is_active ? AsyncEvent::kPortActive : AsyncEvent::kPortError});
    if (before.addresses != after.addresses) (*handler)({AsyncEvent::kGidChange});
    if (gone) (*handler)({AsyncEvent::kDeviceFatal});
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

PortCounters LocalEngine::port_counters() {
  Progress::Guard guard(progress_);
  return engine::port_counters(datapath_.counters(),
                               datapath_.wire() == nullptr ? io::IoCounters{} : datapath_.wire()->counters());
}

// From now on somebody wants to know what happens to the netdev, with or without QPs. Where no thread can be had for
// that, the first QP reports it.
void LocalEngine::add_event_handler(EventHandler* handler) {
  {
    std::lock_guard guard(handlers_lock_);
    handlers_.push_back(handler);
  }
  std::lock_guard setup(setup_);
  progress_.start();
}

void LocalEngine::remove_event_handler(EventHandler* handler) {
  std::lock_guard guard(handlers_lock_);
  std::erase(handlers_, handler);
}

}  // namespace uroce::engine
