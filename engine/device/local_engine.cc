#include "engine/device/local_engine.h"

#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/random.h"
#include "engine/io/closed_io.h"

namespace uroce::engine {

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
      destinations_(options.congestion),
      tables_(secure_random),
      datapath_(tables_),
      progress_(datapath_, view_->descriptor(), [this](bool readable) { return watch_network(readable); }) {
  view_->add_listener(this, [this](const net::News& news) { note(news); });
}

LocalEngine::~LocalEngine() {
  view_->remove_listener(this);
}

// In the background thread. Where there was no memory for what is new, nothing of it counts as seen.
Time LocalEngine::watch_network(bool readable) {
  try {
    return look_at_network(readable);
  } catch (const std::bad_alloc&) {
    std::lock_guard guard(news_lock_);
    news_.netdevs = true;
    news_.add_all_routes();
    throw;
  }
}

// --- objects --------------------------------------------------------------------------------------------------------

int LocalEngine::open_io() {
  std::lock_guard setup(setup_);
  if (open_) return 0;
  view_->process_changes();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev || !present_) return ENODEV;
  // What can fail comes before anything is attached to the netdev.
  if (const int error = progress_.start(); error != 0) return error;
  auto result = opener_(*netdev, options_);
  if (auto* error = std::get_if<io::IoError>(&result)) return error->code;
  auto& opened = std::get<OpenedIo>(result);
  netdev_ = *netdev;
  set_addresses_ = std::move(opened.set_addresses);
  check_ = std::move(opened.check);
  join_ = std::move(opened.join);
  leave_ = std::move(opened.leave);
  kernel_routes_ = opened.io->kernel_routes();
  const uint32_t max_udp_length = opened.io->max_udp_length();
  {
    Progress::Guard guard(progress_);
    tables_.addresses = netdev_.addresses;
    datapath_.attach(
        std::move(opened.io), [this] { progress_.wake(); }, std::move(opened.loop));
  }
  progress_.wake();                       // to what it has to watch now
  max_udp_length_.store(max_udp_length);  // from here on progress() runs
  open_ = true;
  return 0;
}

void LocalEngine::leave_netdev() {
  {
    const std::unique_lock setup(setup_, std::try_to_lock);
    if (!setup || !open_ || !progress_.lock_comes_free()) return;
  }
  progress_.stop();  // it takes `setup_`, and keeps descriptors open that it waits for
  std::lock_guard setup(setup_);
  close_io();
}

// The netdev is gone, and what was attached to it with it; or it is left. Caller holds setup_.
void LocalEngine::close_io() {
  set_addresses_ = nullptr;
  check_ = nullptr;
  join_ = nullptr;
  leave_ = nullptr;
  std::unique_ptr<io::PacketIo> closed;  // after the lock: captures may take long to come to their end
  Progress::Guard guard(progress_);
  if (datapath_.wire() == nullptr) return;
  datapath_.forget_waiting_packets();
  closed = datapath_.attach(std::make_unique<io::ClosedIo>(*datapath_.wire()), [this] { progress_.wake(); });
}

int LocalEngine::create_qp(const QpInit& init, Qp*& qp) {
  if (const int error = open_io(); error != 0) return error;
  Progress::Guard guard(progress_);
  wire::Qpn qpn;
  if (!tables_.qpns.take(qpn)) return ENOMEM;
  try {
    qp = new Qp(init, qpn, tables_.regions, tables_.srqs, datapath_.completions(), datapath_.counters());
  } catch (const std::bad_alloc&) {
    tables_.qpns.release(qpn);
    return ENOMEM;
  }
  tables_.qpns.bind(qpn, qp);
  datapath_.add(*qp);
  return 0;
}

int LocalEngine::modify_qp(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask) {
  std::lock_guard setup(setup_);  // `netdev_`
  learn_netdev();
  std::shared_ptr<Destination> to;
  std::optional<Path> path;
  if (mask & transport::kQpAddressVector) {
    if (const int error = find_destination(attributes.address, to); error != 0) return error;
    const wire::Qpn remote = (mask & transport::kQpDestQpn) ? attributes.dest_qpn : qp.transport->attributes().dest_qpn;
    path = make_path(attributes.address, to, qp.transport->qpn(), remote);
  }
  transport::QpAttributes adjusted = attributes;
  if (qp.is_ud()) {
    if (mask & transport::kQpPathMtu) return EINVAL;
    adjusted.path_mtu = largest_path_mtu(netdev_.mtu, max_udp_length_.load());
    mask |= transport::kQpPathMtu;
  } else if (mask & transport::kQpPathMtu) {
    const uint32_t mtu = to != nullptr ? to->route.mtu : netdev_.mtu;
    if (attributes.path_mtu > largest_path_mtu(mtu, max_udp_length_.load())) return EINVAL;
  }
  if ((mask & transport::kQpPort) && attributes.port != 1) return EINVAL;
  if ((mask & transport::kQpPkeyIndex) && attributes.pkey_index != 0) return EINVAL;

  // Allocated before the progress lock is taken, and what it replaces is freed after that.
  Qp::Answers answers = Qp::room_for_answers(attributes, mask);

  Progress::Guard guard(progress_);
  qp.remember_answers_in(answers);
  return datapath_.modify(qp, adjusted, mask, std::move(path), monotonic_now());
}

transport::QpAttributes LocalEngine::query_qp(Qp& qp) {
  Progress::Guard guard(progress_);
  return qp.transport->attributes();
}

void LocalEngine::destroy_qp(Qp* qp) {
  leave_groups(*qp);
  Progress::Guard guard(progress_);
  tables_.regions.forget_qp(qp->transport->qpn().value());
  datapath_.remove(*qp, monotonic_now());
  tables_.qpns.release(qp->transport->qpn());
  delete qp;
}

int LocalEngine::create_srq(const SrqInit& init, Srq*& srq) {
  Progress::Guard guard(progress_);
  const uint32_t number = tables_.srqs.next_number();
  if (number == 0) return ENOMEM;
  try {
    auto created = std::make_unique<Srq>(init, number);
    tables_.srqs.add(*created);
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
  tables_.srqs.remove(*srq);
  // XRC requests name the queue, their QPs do not: any of them may hold a receive request of it.
  if (srq->init.xrcd != 0) datapath_.for_each_qp([srq](Qp& qp) { qp.transport->on_srq_destroyed(*srq); });
  delete srq;
}

int LocalEngine::create_address(const transport::AddressVector& address, uint32_t& handle) {
  std::lock_guard setup(setup_);  // `netdev_`
  learn_netdev();
  std::shared_ptr<Destination> to;
  if (const int error = find_destination(address, to); error != 0) return error;
  const Path path = make_path(address, std::move(to));
  Progress::Guard guard(progress_);
  handle = tables_.address_handles.add(path);
  return handle != 0 ? 0 : ENOMEM;
}

void LocalEngine::destroy_address(uint32_t handle) {
  Progress::Guard guard(progress_);
  const AddressHandle* const found = tables_.address_handles.find(handle);
  if (found == nullptr) return;
  datapath_.forget_waiting_packets(*found);
  tables_.address_handles.remove(handle);
}

int LocalEngine::attach_multicast(Qp& qp, const wire::IpAddress& group) {
  if (!is_multicast(group) || !qp.is_ud()) return EINVAL;
  std::lock_guard setup(setup_);
  MulticastGroups& groups = tables_.groups;
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
    if (!tables_.groups.detach(group, qp)) return EINVAL;
    if (!tables_.groups.members(group).empty()) return 0;
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
    groups = tables_.groups.of(qp);
  }
  for (const wire::IpAddress& group : groups) detach_multicast(qp, group);
}

// Tells everybody whom packets may be for: the netdev's addresses, and the groups that QPs are in. Caller holds setup_.
void LocalEngine::steer_addresses() {
  std::vector<wire::IpAddress> addresses = netdev_.addresses;
  {
    Progress::Guard guard(progress_);
    tables_.addresses = addresses;
    if (!set_addresses_) return;
    const std::vector<wire::IpAddress> groups = tables_.groups.all();
    addresses.insert(addresses.end(), groups.begin(), groups.end());
  }
  steered_ = set_addresses_(netdev_.mac, addresses) == 0;
}

int LocalEngine::resize_cq(queue::CompletionQueue& cq, uint32_t capacity) {
  queue::CompletionQueue::Ring ring = queue::CompletionQueue::make_ring(capacity);
  Progress::Guard guard(progress_);
  return cq.resize(capacity, ring) ? 0 : EINVAL;
}

int LocalEngine::moderate_cq(queue::CompletionQueue& cq, uint16_t count, Duration period) {
  Progress::Guard guard(progress_);
  datapath_.moderated_cqs().moderate(cq, count, period);
  return 0;
}

// --- data path ------------------------------------------------------------------------------------------------------

void LocalEngine::doorbell(Qp& qp) {
  datapath_.ring(qp);
  progress_.after_post();
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

// Those of the packet I/O; none before it is open.
std::optional<io::IoCounters> LocalEngine::io_counters() const {
  Progress::Guard guard(progress_);
  if (datapath_.wire() == nullptr) return std::nullopt;
  return datapath_.wire()->counters();
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
  const std::optional<io::IoCounters> io = io_counters();
  if (!io) return text;
  line("packets received", io->rx_packets);
  line("packets sent", io->tx_packets);
  line("drop: not a well-formed IP/UDP packet", io->rx_malformed);
  line("drop: no receive buffer", io->rx_no_buffer);
  line("backpressure while sending", io->tx_backpressure);
  line("packets the kernel refused to send", io->tx_errors);
  line("times the kernel refused to send: netdev down", io->kick_errors);
  line("entries of AF_XDP rings that cannot be true", io->ring_errors);
  line("packets that captures missed: too slow", io->capture_dropped);
  line("questions to the kernel about the network, of all devices", view_->requests());
  return text;
}

PortCounters LocalEngine::port_counters() {
  return engine::port_counters(datapath_.counters(), io_counters().value_or(io::IoCounters{}));
}

}  // namespace uroce::engine
