// SPDX-License-Identifier: BSD-2-Clause
#include "lab.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"

namespace uroce::rdma_cm::test {

wire::IpAddress ip(const std::string& text) {
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) return wire::IpAddress::v4(bytes.data());
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), bytes.data()), 1) << text;
  return wire::IpAddress::v6(bytes.data());
}

// --- the network -----------------------------------------------------------------------------------------------------

namespace {

bool same_network(const wire::IpAddress& a, const wire::IpAddress& b) {
  if (a.is_v4() != b.is_v4() || a.is_link_local() != b.is_link_local()) return false;
  return std::equal(a.bytes.begin(), a.bytes.begin() + (a.is_v4() ? 15 : 8), b.bytes.begin());
}

bool owns(const net::Netdev& netdev, const wire::IpAddress& address) {
  return std::find(netdev.addresses.begin(), netdev.addresses.end(), address) != netdev.addresses.end();
}

}  // namespace

void ScriptedView::add_netdev(int index, const std::vector<std::string>& addresses, uint32_t mtu) {
  {
    const std::lock_guard guard(lock_);
    net::Netdev& netdev = netdevs_[index];
    netdev.index = index;
    netdev.name = "test" + std::to_string(index);
    netdev.mac = {2, 0, 0, 0, 0, static_cast<uint8_t>(index)};
    netdev.mtu = mtu;
    netdev.up = netdev.running = true;
    for (const std::string& address : addresses) netdev.addresses.push_back(ip(address));
    netdev.gids = netdev.addresses;
  }
  announce();
}

void ScriptedView::remove_netdev(int index) {
  {
    const std::lock_guard guard(lock_);
    netdevs_.erase(index);
  }
  announce();
}

void ScriptedView::change_mac(int index) {
  {
    const std::lock_guard guard(lock_);
    netdevs_[index].mac[3] ^= 1;
  }
  announce();
}

void ScriptedView::remove_address(int index, const std::string& address) {
  {
    const std::lock_guard guard(lock_);
    net::Netdev& netdev = netdevs_[index];
    std::erase(netdev.addresses, ip(address));
    netdev.gids = net::gid_table(netdev.gids, netdev.addresses);
  }
  announce();
}

void ScriptedView::remove_gid(int index, const std::string& address) {
  const std::lock_guard guard(lock_);
  net::Netdev& netdev = netdevs_[index];
  std::replace(netdev.gids.begin(), netdev.gids.end(), ip(address), wire::IpAddress{});
}

void ScriptedView::set_neighbour(const std::string& address, net::NeighbourState state) {
  {
    const std::lock_guard guard(lock_);
    neighbours_[ip(address).text()] = state;
    for (const auto& [index, netdev] : netdevs_) {
      if (const auto hop = hops_.find(index, ip(address))) hop->set({state, {2, 1, 1, 1, 1, 1}});
    }
  }
  announce();
}

void ScriptedView::set_gateway(const std::string& destination, int index, const std::string& gateway) {
  const std::lock_guard guard(lock_);
  gateways_.insert_or_assign(ip(destination).text(), Gateway{index, ip(gateway)});
}

uint32_t ScriptedView::asked(const std::string& address) {
  const std::lock_guard guard(lock_);
  return asked_[ip(address).text()];
}

std::vector<net::Netdev> ScriptedView::netdevs() {
  const std::lock_guard guard(lock_);
  std::vector<net::Netdev> all;
  for (const auto& [index, netdev] : netdevs_) all.push_back(netdev);
  return all;
}

std::optional<net::Netdev> ScriptedView::netdev(int index) {
  const std::lock_guard guard(lock_);
  const auto found = netdevs_.find(index);
  return found == netdevs_.end() ? std::nullopt : std::optional(found->second);
}

const net::Netdev* ScriptedView::exit_to(const wire::IpAddress& destination) const {
  const auto gateway = gateways_.find(destination.text());
  for (const auto& [index, netdev] : netdevs_) {
    if (gateway != gateways_.end() && gateway->second.index == index) return &netdev;
    for (const wire::IpAddress& address : netdev.addresses) {
      if (gateway == gateways_.end() && same_network(address, destination)) return &netdev;
    }
  }
  return nullptr;
}

std::optional<net::Route> ScriptedView::route(int index, const wire::IpAddress&, const wire::IpAddress& to) {
  const std::lock_guard guard(lock_);
  const auto found = netdevs_.find(index);
  if (found == netdevs_.end()) return std::nullopt;
  net::Route route{.next_hop = to, .mtu = found->second.mtu, .local = owns(found->second, to)};
  const auto gateway = gateways_.find(to.text());
  if (gateway != gateways_.end() && gateway->second.index == index) route.next_hop = gateway->second.address;
  const bool on_link = std::any_of(found->second.addresses.begin(), found->second.addresses.end(),
                                   [&](const wire::IpAddress& address) { return same_network(address, to); });
  if (!on_link && route.next_hop == to) return std::nullopt;
  return route;
}

std::optional<net::Departure> ScriptedView::departure(const wire::IpAddress& destination) {
  const std::lock_guard guard(lock_);
  const net::Netdev* const netdev = exit_to(destination);
  if (netdev == nullptr) return std::nullopt;
  for (const wire::IpAddress& address : netdev->addresses) {
    if (address.is_v4() == destination.is_v4() && !address.is_link_local()) {
      return net::Departure{netdev->index, address, owns(*netdev, destination)};
    }
  }
  return std::nullopt;
}

std::shared_ptr<net::NextHop> ScriptedView::next_hop(int index, const wire::IpAddress& address) {
  const std::lock_guard guard(lock_);
  if (auto known = hops_.find(index, address)) return known;
  const auto state = neighbours_.find(address.text());
  return hops_.add(index, address,
                   {state == neighbours_.end() ? net::NeighbourState::kUsable : state->second, {2, 1, 1, 1, 1, 1}});
}

net::Neighbour ScriptedView::neighbour(int index, const wire::IpAddress& address) {
  return next_hop(index, address)->neighbour();
}

void ScriptedView::resolve_neighbour(int, const wire::IpAddress& address) {
  const std::lock_guard guard(lock_);
  ++asked_[address.text()];
}

bool ScriptedView::process_changes() {
  if (!fails_) return false;
  ++failures_;
  throw std::bad_alloc();
}

void ScriptedView::announce() {
  net::News news;
  news.netdevs = news.next_hops = true;
  tell_listeners(news);
}

// --- the wire --------------------------------------------------------------------------------------------------------

Wire::Wire() : thread_([this] { run(); }) {}

Wire::~Wire() {
  {
    const std::lock_guard guard(lock);
    ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Wire::attach(TestAgent* agent) {
  const std::lock_guard guard(lock);
  agents_.insert(agent);
}

// An event that is just being handed on is waited for.
void Wire::detach(TestAgent* agent) {
  const std::lock_guard guard(lock);
  agents_.erase(agent);
}

void Wire::post(const cm::Datagram& datagram) {
  under_way_.push_back(datagram);
  changed_.notify_all();
}

void Wire::wake() {
  changed_.notify_all();
}

void Wire::lose(std::optional<wire::CmAttribute> kind) {
  const std::lock_guard guard(lock);
  lost_ = kind;
}

void Wire::carry(const cm::Datagram& datagram) {
  wire::CmMad mad;
  if (lost_ && wire::parse_cm(datagram.mad, mad) == wire::CmParseError::kNone &&
      wire::load_be16(&datagram.mad[16]) == static_cast<uint16_t>(*lost_)) {
    return;
  }
  for (TestAgent* const agent : agents_) {
    for (const net::Netdev& netdev : agent->view_.netdevs()) {
      if (!owns(netdev, datagram.destination) || !agent->service_) continue;
      cm::Datagram arrived = datagram;
      arrived.netdev = static_cast<uint32_t>(netdev.index);
      return agent->service_->on_datagram(arrived, monotonic_now());
    }
  }
}

void Wire::run() {
  std::unique_lock guard(lock);
  while (!ended_) {
    for (; !under_way_.empty(); under_way_.pop_front()) carry(cm::Datagram(under_way_.front()));
    Time deadline = kNever;
    for (TestAgent* const agent : agents_) {
      // Handed on under the lock: the handler only puts it into a box.
      for (const cm::Event& event : std::exchange(agent->events_, {})) agent->handler_.on_event(event);
      if (!agent->service_) continue;
      if (agent->service_->deadline() <= monotonic_now()) agent->service_->on_timer(monotonic_now());
      deadline = std::min(deadline, agent->service_->deadline());
    }
    const auto again = [this] {
      return ended_ || !under_way_.empty() || std::any_of(agents_.begin(), agents_.end(), [](const TestAgent* agent) {
               return !agent->events_.empty();
             });
    };
    if (again()) continue;
    const auto left = deadline == kNever ? std::chrono::hours(1) : deadline - monotonic_now();
    changed_.wait_for(guard, std::min<Duration>(left, std::chrono::hours(1)), again);
  }
}

TestAgent::TestAgent(Wire& wire, ScriptedView& view, Handler handler)
    : wire_(wire), view_(view), handler_(std::move(handler)) {
  service_.reset(new cm::Service(cm::Limits{}, engine::secure_random, *this, *this));
  wire_.attach(this);
}

TestAgent::~TestAgent() {
  wire_.detach(this);
}

cm::Reply TestAgent::ask(const cm::Request& request) {
  const std::lock_guard guard(wire_.lock);
  if (!service_) return {.error = ENOTCONN};
  const cm::Reply reply = service_->ask(cm::ClientId{1}, request, monotonic_now());
  wire_.wake();
  return reply;
}

void TestAgent::lose() {
  {
    const std::lock_guard guard(wire_.lock);
    service_.reset();
    events_.clear();
  }
  handler_.on_loss();
}

void TestAgent::restore() {
  {
    const std::lock_guard guard(wire_.lock);
    service_.reset(new cm::Service(cm::Limits{}, engine::secure_random, *this, *this));
  }
  handler_.on_return();
}

size_t TestAgent::endpoints() {
  const std::lock_guard guard(wire_.lock);
  return service_ ? service_->manager().size() : 0;
}

size_t TestAgent::bindings() {
  const std::lock_guard guard(wire_.lock);
  return service_ ? service_->ports().size() : 0;
}

bool TestAgent::has_address(uint32_t netdev, const wire::IpAddress& address) {
  for (const net::Netdev& one : view_.netdevs()) {
    if ((netdev == 0 || static_cast<uint32_t>(one.index) == netdev) && owns(one, address)) return true;
  }
  return false;
}

// --- a host ----------------------------------------------------------------------------------------------------------

LabHost::LabHost(Wire& wire) {
  Environment environment;
  environment.view = &view_;
  environment.devices = [this] {
    std::vector<engine::DeviceInfo> devices;
    for (net::Netdev& netdev : view_.netdevs()) {
      engine::DeviceInfo device;
      device.guid = 0x1000u + static_cast<uint64_t>(netdev.index);
      device.netdev = std::move(netdev);
      devices.push_back(std::move(device));
    }
    return devices;
  };
  environment.has_received = [this](uint32_t, uint32_t qpn) {
    const std::lock_guard guard(lock_);
    return received_.count(qpn) != 0;
  };
  environment.make_agent = [this, &wire](cm::Agent::Handler handler) -> ChosenAgent {
    if (agent_error_ != 0) return {.error = agent_error_, .text = "the test wants no agent"};
    agent_ = std::make_shared<TestAgent>(wire, view_, std::move(handler));
    return {.agent = agent_};
  };
  environment.binds_v6_only = [this] { return binds_v6_only_.load(); };
  manager_ = std::make_unique<Manager>(std::move(environment));
}

LabHost::~LabHost() {
  manager_.reset();
}

void LabHost::receive_for(uint32_t qpn) {
  const std::lock_guard guard(lock_);
  received_.insert(qpn);
}

// --- a client --------------------------------------------------------------------------------------------------------

abi::Storage sockaddr_of(const std::string& address, uint16_t port, uint32_t scope) {
  Address made{.family = ip(address).is_v4() ? Family::kV4 : Family::kV6, .ip = ip(address), .port = port};
  made.scope = scope;
  abi::Storage bytes{};
  store_address(made, bytes);
  return bytes;
}

uint16_t size_of(const abi::Storage& address) {
  return address_size(address);
}

Client::Client(Manager& manager, int flags) : manager_(manager) {
  EXPECT_EQ(manager.open(O_RDWR | O_CLOEXEC | flags, fd_), 0);
}

Client::~Client() {
  close();
}

void Client::close() {
  if (fd_ < 0) return;
  const auto identity = Identity::of(fd_);
  ::close(fd_);
  manager_.closed(identity->inode);
  fd_ = -1;
}

ssize_t Client::write(const void* bytes, size_t size) {
  const auto identity = Identity::of(fd_);
  if (!identity) return -EBADF;
  return manager_.write(*identity, fd_, {static_cast<const uint8_t*>(bytes), size});
}

namespace {

uint64_t pointer(void* to) {
  return reinterpret_cast<uintptr_t>(to);
}

abi::ConnParam param_of(uint32_t qpn, const std::string& data) {
  abi::ConnParam param{};
  param.qp_num = qpn;
  param.qkey = 0x111;  // which is for AF_IB only
  std::copy(data.begin(), data.end(), param.private_data.begin());
  param.private_data_len = static_cast<uint8_t>(data.size());
  param.responder_resources = 4;
  param.initiator_depth = 3;
  param.retry_count = 5;
  param.rnr_retry_count = 6;
  param.valid = 1;
  return param;
}

}  // namespace

int Client::create(wire::PortSpace space, uint64_t uid, uint32_t& id, uint8_t qp_type) {
  abi::NewId made{};
  abi::CreateId body{};
  body.uid = uid;
  body.response = pointer(&made);
  body.ps = static_cast<uint16_t>(space);
  body.qp_type = qp_type;
  const int error = command(abi::Command::kCreateId, body, sizeof(made));
  id = made.id;
  return error;
}

uint32_t Client::create(wire::PortSpace space, uint64_t uid) {
  uint32_t id = 0;
  EXPECT_EQ(create(space, uid, id), 0);
  return id;
}

int Client::destroy(uint32_t id, uint32_t* reported) {
  abi::EventsReported answer{};
  const int error = command(abi::Command::kDestroyId, abi::DestroyId{pointer(&answer), id, 0}, sizeof(answer));
  if (reported != nullptr) *reported = answer.events_reported;
  return error;
}

int Client::bind(uint32_t id, const abi::Storage& address) {
  return command(abi::Command::kBind, abi::Bind{id, size_of(address), 0, address});
}

int Client::listen(uint32_t id, int32_t backlog) {
  return command(abi::Command::kListen, abi::Listen{id, backlog});
}

int Client::resolve(uint32_t id, const abi::Storage& to, uint32_t ms, const abi::Storage* from) {
  abi::ResolveAddr body{};
  body.id = id;
  body.timeout_ms = ms;
  body.dst_size = size_of(to);
  body.dst_addr = to;
  if (from != nullptr) {
    body.src_size = size_of(*from);
    body.src_addr = *from;
  }
  return command(abi::Command::kResolveAddr, body);
}

int Client::resolve_route(uint32_t id, uint32_t ms) {
  return command(abi::Command::kResolveRoute, abi::ResolveRoute{id, ms});
}

int Client::connect(uint32_t id, uint32_t qpn, const std::string& data) {
  abi::Connect body{};
  body.conn_param = param_of(qpn, data);
  body.id = id;
  return command(abi::Command::kConnect, body);
}

int Client::accept(uint32_t id, uint64_t uid, uint32_t qpn, const std::string& data) {
  abi::Accept body{};
  body.uid = uid;
  body.conn_param = param_of(qpn, data);
  body.conn_param.responder_resources = 3;
  body.conn_param.initiator_depth = 2;
  body.id = id;
  return command(abi::Command::kAccept, body);
}

int Client::confirm(uint32_t id) {
  abi::Accept body{};
  body.id = id;
  return command(abi::Command::kAccept, body);
}

int Client::reject(uint32_t id, const std::string& data, uint8_t reason) {
  abi::Reject body{};
  body.id = id;
  body.private_data_len = static_cast<uint8_t>(data.size());
  body.reason = reason;
  std::copy(data.begin(), data.end(), body.private_data.begin());
  return command(abi::Command::kReject, body);
}

int Client::disconnect(uint32_t id) {
  return command(abi::Command::kDisconnect, abi::Disconnect{id});
}

int Client::notify(uint32_t id, uint32_t event) {
  return command(abi::Command::kNotify, abi::Notify{id, event});
}

int Client::set_option(uint32_t id, uint32_t level, uint32_t name, const void* value, uint32_t size) {
  const auto at = reinterpret_cast<uintptr_t>(value);
  return command(abi::Command::kSetOption, abi::SetOption{at, id, level, name, size});
}

int Client::query(uint32_t id, uint32_t option, abi::QueryAddrAnswer& out) {
  return command(abi::Command::kQuery, abi::Query{pointer(&out), id, option}, sizeof(out));
}

int Client::query_path(uint32_t id, abi::QueryPathAnswer& out) {
  return command(abi::Command::kQuery, abi::Query{pointer(&out), id, abi::kQueryPath}, sizeof(out));
}

int Client::query_route(uint32_t id, abi::QueryRouteAnswer& out) {
  return command(abi::Command::kQueryRoute, abi::QueryRoute{pointer(&out), id, 0}, sizeof(out));
}

int Client::init_qp_attr(uint32_t id, uint32_t state, abi::QpAttr& out) {
  return command(abi::Command::kInitQpAttr, abi::InitQpAttr{pointer(&out), id, state}, sizeof(out));
}

int Client::join(uint32_t id, const abi::Storage& group, uint64_t uid, uint32_t& number, uint16_t flags) {
  abi::NewId made{};
  abi::JoinMcast body{};
  body.response = pointer(&made);
  body.uid = uid;
  body.id = id;
  body.addr_size = size_of(group);
  body.join_flags = flags;
  body.addr = group;
  const int error = command(abi::Command::kJoinMcast, body, sizeof(made));
  number = made.id;
  return error;
}

int Client::leave(uint32_t number, uint32_t* reported) {
  abi::EventsReported answer{};
  const int error = command(abi::Command::kLeaveMcast, abi::LeaveMcast{pointer(&answer), number, 0}, sizeof(answer));
  if (reported != nullptr) *reported = answer.events_reported;
  return error;
}

int Client::migrate(Client& from, uint32_t id, uint32_t* reported) {
  abi::EventsReported answer{};
  const abi::MigrateId body{pointer(&answer), id, static_cast<uint32_t>(from.fd())};
  const int error = command(abi::Command::kMigrateId, body, sizeof(answer));
  if (reported != nullptr) *reported = answer.events_reported;
  return error;
}

int Client::get_event(abi::Event& event) {
  return command(abi::Command::kGetEvent, abi::GetEvent{pointer(&event)}, sizeof(event));
}

bool Client::readable(int milliseconds) const {
  pollfd state{fd_, POLLIN, 0};
  return poll(&state, 1, milliseconds) > 0 && (state.revents & POLLIN) != 0;
}

abi::Event Client::next() {
  abi::Event event{};
  constexpr int kPatience = 10'000;
  if (!readable(kPatience)) {
    ADD_FAILURE() << "no event";
    return event;
  }
  EXPECT_EQ(get_event(event), 0);
  return event;
}

abi::Event Client::expect(abi::EventKind kind) {
  const abi::Event event = next();
  EXPECT_EQ(event.event, static_cast<uint32_t>(kind));
  return event;
}

uint16_t Client::port_of(uint32_t id) {
  abi::QueryAddrAnswer out{};
  EXPECT_EQ(query(id, abi::kQueryAddr, out), 0);
  return parse_address(out.src_addr).port;
}

// --- a pair ----------------------------------------------------------------------------------------------------------

Pair::Pair() : host_a(wire), host_b(wire), a(host_a.manager()), b(host_b.manager()) {
  host_a.view().add_netdev(2, {"192.0.2.1", "2001:db8::1", "fe80::1"});
  host_b.view().add_netdev(3, {"192.0.2.2", "2001:db8::2", "fe80::2"});
}

uint32_t Pair::listen(uint16_t& port, uint64_t uid, wire::PortSpace space) {
  const uint32_t id = b.create(space, uid);
  EXPECT_EQ(b.bind(id, sockaddr_of("0.0.0.0", 0)), 0);
  EXPECT_EQ(b.listen(id), 0);
  port = b.port_of(id);
  return id;
}

uint32_t Pair::route(uint16_t port, uint64_t uid, wire::PortSpace space) {
  const uint32_t id = a.create(space, uid);
  EXPECT_EQ(a.resolve(id, sockaddr_of("192.0.2.2", port)), 0);
  a.expect(abi::EventKind::kAddrResolved);
  EXPECT_EQ(a.resolve_route(id), 0);
  a.expect(abi::EventKind::kRouteResolved);
  return id;
}

Pair::Connected Pair::connect() {
  uint16_t port = 0;
  Connected connected{};
  connected.listener = listen(port);
  connected.active = route(port);
  EXPECT_EQ(a.connect(connected.active, 0x111), 0);
  connected.passive = b.expect(abi::EventKind::kConnectRequest).id;
  EXPECT_EQ(b.accept(connected.passive, 300, 0x222), 0);
  a.expect(abi::EventKind::kConnectResponse);
  EXPECT_EQ(a.confirm(connected.active), 0);
  b.expect(abi::EventKind::kEstablished);
  return connected;
}

}  // namespace uroce::rdma_cm::test
