// SPDX-License-Identifier: BSD-2-Clause
// Opening, commands on their way to those who answer them, and what all of these need.
#include "abi/rdma_cm_file/manager.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "abi/rdma_cm_file/caller_memory.h"
#include "base/fork.h"
#include "engine/net/device_identity.h"

namespace uroce::rdma_cm {

Manager::Manager(Environment environment)
    : environment_(std::move(environment)), mailbox_(std::make_shared<Mailbox>()) {
  environment_.view->add_listener(this, [mailbox = mailbox_](const net::News&) { mailbox->network_has_changed(); });
}

Manager::~Manager() {
  environment_.view->remove_listener(this);
  if (thread_.joinable()) {
    mailbox_->end();
    thread_.join();
  }
  agent_.reset();
  for (const auto& [inode, channel] : channels_) channel_index::remove(channel->identity());
  if (epoll_ >= 0) ForkGuard().close(epoll_);
}

int Manager::open(int flags, int& fd) {
  try {
    if (memory::install_fault_handler() != 0) return ENODEV;
    const std::lock_guard guard(lock_);
    start();
    ChannelPtr channel;
    if (const int error = Channel::open(flags, channel, fd); error != 0) return error;
    channels_[channel->identity().inode] = channel;
    channel_index::add(channel->identity(), process_generation());
    watch(channel->our_end(), channel->identity().inode);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

// A thread that is cancelled while it waits unwinds through these frames: no handler that would catch that as well.
ssize_t Manager::write(const Identity& channel, int fd, std::span<const uint8_t> command) {
  try {
    return execute(channel, fd, command);
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const std::system_error& error) {
    return -error.code().value();
  }
}

ssize_t Manager::execute(const Identity& identity, int fd, std::span<const uint8_t> bytes) {
  abi::Header header{};
  std::array<uint8_t, abi::kLongest> copy{};
  const size_t size = std::min(bytes.size(), copy.size());
  if (bytes.size() < sizeof(header)) return -EINVAL;
  if (copy_in(copy.data(), bytes.data(), size) != 0) return -EFAULT;
  std::memcpy(&header, copy.data(), sizeof(header));
  if (header.cmd >= abi::kCommands || header.in + sizeof(header) > bytes.size()) return -EINVAL;
  ChannelPtr channel;
  {
    const std::lock_guard guard(lock_);
    const auto found = channels_.find(identity.inode);
    if (found == channels_.end()) return -EBADF;
    channel = found->second;
  }
  const auto command = static_cast<abi::Command>(header.cmd);
  const std::span<const uint8_t> in(copy.data() + sizeof(header), std::min<size_t>(header.in, size - sizeof(header)));
  const Call call{channel, fd, header.in, header.out};
  int error = 0;
  if (command == abi::Command::kGetEvent && in.size() >= sizeof(abi::GetEvent)) {
    abi::GetEvent get{};
    std::memcpy(&get, in.data(), sizeof(get));
    error = get_event(call, get);
  } else {
    const std::lock_guard guard(lock_);
    error = dispatch(command, in, call);
  }
  return error == 0 ? static_cast<ssize_t>(bytes.size()) : -error;
}

namespace {

// Commands that may end before their last field, as they did in older kernels.
template <class Command>
constexpr size_t least_size = sizeof(Command);
template <>
constexpr size_t least_size<abi::Connect> = offsetof(abi::Connect, ece);
template <>
constexpr size_t least_size<abi::Accept> = offsetof(abi::Accept, ece);
template <>
constexpr size_t least_size<abi::BindIp> = offsetof(abi::BindIp, id) + sizeof(uint32_t);

}  // namespace

int Manager::dispatch(abi::Command which, std::span<const uint8_t> in, const Call& call) {
  const auto with = [&]<class Command>(int (Manager::*answer_it)(const Command&, const Call&)) {
    Command command{};
    if (in.size() < least_size<Command>) return EINVAL;
    std::memcpy(&command, in.data(), std::min(in.size(), sizeof(command)));
    return (this->*answer_it)(command, call);
  };
  using enum abi::Command;
  switch (which) {
    case kCreateId:
      return with(&Manager::create_id);
    case kDestroyId:
      return with(&Manager::destroy_id);
    case kBindIp:
      return with(&Manager::bind_ip);
    case kResolveIp:
      return with(&Manager::resolve_ip);
    case kResolveRoute:
      return with(&Manager::resolve_route);
    case kQueryRoute:
      return with(&Manager::query_route);
    case kConnect:
      return with(&Manager::connect);
    case kListen:
      return with(&Manager::listen);
    case kAccept:
      return with(&Manager::accept);
    case kReject:
      return with(&Manager::reject);
    case kDisconnect:
      return with(&Manager::disconnect);
    case kInitQpAttr:
      return with(&Manager::init_qp_attr);
    case kSetOption:
      return with(&Manager::set_option);
    case kNotify:
      return with(&Manager::notify);
    case kJoinIpMcast:
      return with(&Manager::join_ip_mcast);
    case kLeaveMcast:
      return with(&Manager::leave_mcast);
    case kMigrateId:
      return with(&Manager::migrate_id);
    case kQuery:
      return with(&Manager::query);
    case kBind:
      return with(&Manager::bind);
    case kResolveAddr:
      return with(&Manager::resolve_addr);
    case kJoinMcast:
      return with(&Manager::join_mcast);
    case kWriteCmEvent:
      return with(&Manager::write_cm_event);
    case kResolveIbService:
      return EOPNOTSUPP;
    case kGetEvent:  // too short
      return EINVAL;
    case kGetOption:
      break;
  }
  return ENOSYS;
}

// --- events ----------------------------------------------------------------------------------------------------------

int Manager::get_event(const Call& call, const abi::GetEvent& command) {
  // Older applications know neither `reserved` nor what follows it.
  if (call.out < offsetof(abi::Event, reserved)) return ENOSPC;
  while (true) {
    {
      const std::lock_guard guard(lock_);
      const int error = deliver(call, command);
      if (error != EAGAIN) return error;
      call.channel->match_bytes(call.fd);
    }
    if (Identity::of(call.fd) != call.channel->identity()) return EBADF;
    // Waits as a read of this descriptor does: O_NONBLOCK, signals and cancellation are the kernel's to mind.
    uint8_t byte = 0;
    const ssize_t waited = recv(call.fd, &byte, 1, MSG_PEEK);
    if (waited < 0) return errno;
    if (waited == 0) return EIO;
  }
}

// EAGAIN: there is none.
int Manager::deliver(const Call& call, const abi::GetEvent& command) {
  Channel& channel = *call.channel;
  if (channel.events().empty()) return EAGAIN;
  const abi::Event& event = channel.events().front().event;
  if (const int error = answer(command.response, &event, sizeof(event), call); error != 0) return error;
  const QueuedEvent read = channel.pop(call.fd);
  ++read.about->events_reported;
  if (read.group) ++read.group->events_reported;
  if (read.child) {
    read.child->known = true;
    if (read.child->cm != cm::kNoId) ask(cm::TakeRequest{read.child->cm});
  }
  return 0;
}

// --- what commands need ----------------------------------------------------------------------------------------------

int Manager::answer(uint64_t to, const void* from, size_t size, const Call& call) {
  return copy_out(to, from, std::min<size_t>(size, call.out));
}

Manager::Owned Manager::find(uint32_t number, const Call& call) const {
  IdPtr id = ids_.find(number);
  if (!id || !id->known) return {.id = nullptr, .error = ENOENT};
  if (id->channel != call.channel) return {.id = nullptr, .error = EINVAL};
  return {.id = std::move(id)};
}

Manager::Owned Manager::find_bound(uint32_t number, const Call& call) const {
  Owned owned = find(number, call);
  if (owned.id && owned.id->device.netdev == 0) return {.id = nullptr, .error = EINVAL};
  return owned;
}

void Manager::queue(const IdPtr& id, abi::EventKind kind, int32_t status) {
  QueuedEvent queued;
  queued.event.uid = id->uid;
  queued.event.id = id->number;
  queued.event.event = static_cast<uint32_t>(kind);
  queued.event.status = static_cast<uint32_t>(status);
  queued.about = id;
  id->channel->push(std::move(queued));
}

int Manager::bind_to_device(CmId& id, uint32_t netdev) {
  for (const engine::DeviceInfo& device : environment_.devices()) {
    if (static_cast<uint32_t>(device.netdev.index) != netdev) continue;
    id.device = {netdev, device.guid, device.netdev.mac};
    return 0;
  }
  return ENODEV;
}

bool Manager::has_loopback_device() const {
  const auto devices = environment_.devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const engine::DeviceInfo& device) { return device.netdev.type == net::LinkType::kLoopback; });
}

bool Manager::is_wildcard(const Address& address) const {
  return address.is_wildcard(address.is_loopback() && has_loopback_device());
}

std::optional<net::Netdev> Manager::netdev_of(const CmId& id) const {
  return environment_.view->netdev(static_cast<int>(id.device.netdev));
}

// As verbs have it.
std::optional<uint8_t> Manager::sgid_index(const CmId& id) const {
  const auto netdev = netdev_of(id);
  if (!netdev) return std::nullopt;
  const auto found = std::find(netdev->gids.begin(), netdev->gids.end(), id.source.ip);
  const auto index = found - netdev->gids.begin();
  if (found == netdev->gids.end() || index > UINT8_MAX) return std::nullopt;
  return static_cast<uint8_t>(index);
}

std::optional<abi::AhAttr> Manager::address_of(const CmId& id, const wire::IpAddress& to) const {
  const auto index = sgid_index(id);
  if (!index) return std::nullopt;
  abi::AhAttr ah{};
  ah.dgid = to.bytes;
  ah.flow_label = id.path.flow_label;
  ah.sgid_index = *index;
  ah.hop_limit = id.path.hop_limit;
  ah.traffic_class = id.path.traffic_class;
  ah.sl = id.path.sl;
  ah.is_global = 1;
  ah.port_num = 1;
  return ah;
}

// --- ends ------------------------------------------------------------------------------------------------------------

void Manager::forget_connection(CmId& id) {
  if (id.cm == cm::kNoId) return;
  by_cm_.erase(id.cm);
  ask(cm::DestroyRequest{id.cm});
  id.cm = cm::kNoId;
}

// With all that has not been told of it: an unread CONNECT_REQUEST takes its child along.
void Manager::destroy(const IdPtr& id, int fd) {
  resolving_.erase(id);
  awaiting_rtu_.erase(id);
  for (const std::shared_ptr<Group>& group : id->groups) groups_.remove(group->number);
  id->groups.clear();
  const auto dropped = id->channel->extract(fd, [&](const QueuedEvent& queued) { return queued.about == id; });
  for (const QueuedEvent& queued : dropped) {
    if (!queued.child) continue;
    by_cm_.erase(queued.child->cm);  // the connection manager's part goes with the listener's
    ids_.remove(queued.child->number);
  }
  forget_connection(*id);
  if (id->binding != cm::kNoBinding) ask(cm::ReleaseRequest{std::exchange(id->binding, cm::kNoBinding)});
  ids_.remove(id->number);
}

void Manager::closed(uint64_t inode) {
  const std::lock_guard guard(lock_);
  const auto found = channels_.find(inode);
  if (found != channels_.end() && found->second->hung_up()) release(ChannelPtr(found->second));
}

// Nobody has it any more.
void Manager::release(const ChannelPtr& channel) {
  std::vector<IdPtr> owned;
  ids_.for_each([&](const IdPtr& id) {
    if (id->channel == channel) owned.push_back(id);
  });
  for (const IdPtr& id : owned) {
    if (ids_.find(id->number) == id) destroy(id, -1);  // else gone with its listener
  }
  channel_index::remove(channel->identity());
  channels_.erase(channel->identity().inode);
}

void Manager::finish() {
  const std::unique_lock guard(lock_, std::try_to_lock);  // exit() in a signal handler may have interrupted a command
  if (!guard || std::exchange(finished_, true)) return;
  std::vector<IdPtr> all;
  ids_.for_each([&](const IdPtr& id) { all.push_back(id); });
  for (const IdPtr& id : all) forget_connection(*id);
}

size_t Manager::channels() {
  const std::lock_guard guard(lock_);
  return channels_.size();
}

size_t Manager::ids() {
  const std::lock_guard guard(lock_);
  return ids_.size();
}

}  // namespace uroce::rdma_cm
