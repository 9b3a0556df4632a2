// SPDX-License-Identifier: BSD-2-Clause
#include "engine/device/device.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/concat.h"
#include "base/random.h"
#include "engine/device/say.h"
#include "engine/io/closed_io.h"

namespace uroce::engine {

namespace {

// As many as threads can run at the same time.
uint32_t most_shards(const DeviceOptions& options) {
  const uint32_t cpus = std::max(1u, std::thread::hardware_concurrency());
  return options.shards != 0 ? options.shards : std::min(std::bit_floor(cpus), io::kMaxShards);
}

}  // namespace

Device::Device(const net::Netdev& netdev, std::shared_ptr<net::NetView> view, const DeviceOptions& options,
               IoOpener opener)
    : netdev_index_(netdev.index),
      name_(netdev.name),
      view_(std::move(view)),
      options_(options),
      opener_(std::move(opener)),
      netdev_(netdev),
      announced_(netdev),
      max_qp_(options.max_qps),
      max_groups_(options.max_multicast_groups),
      tables(secure_random, most_shards(options)),
      progress(std::make_unique<Datapath>(tables), view_->descriptor(),
               [this](bool readable) { return watch_network(readable); }) {
  destinations_.emplace_back(options.congestion);
  view_->add_listener(this, [this](const net::News& news) { note(news); });
}

Device::~Device() {
  view_->remove_listener(this);
}

// In the background thread. Where there was no memory for what is new, nothing of it counts as seen.
Time Device::watch_network(bool readable) {
  try {
    return look_at_network(readable);
  } catch (const std::bad_alloc&) {
    std::lock_guard guard(news_lock_);
    news_.netdevs = true;
    news_.add_all_routes();
    throw;
  }
}

// No lock is held while the terminal takes its time.
int Device::open_io() {
  const Outcome outcome = open_in_silence();
  if (!outcome.failure.empty()) say_once(netdev_index_, name_, outcome.failure);
  if (!outcome.introduction.empty()) say(name_, outcome.introduction);
  return outcome.error;
}

Device::Outcome Device::open_in_silence() {
  std::lock_guard setting_up(setup);
  if (open_) return {};
  view_->process_changes();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev || !present_) return {.error = ENODEV};
  // What can fail comes before anything is attached to the netdev.
  if (const int error = progress.start(); error != 0) {
    const io::IoError failure{
        error, concat("no descriptor or thread to wait with: ", strerrordesc_np(error)),
        io::remedy_for(error, "the limit of threads is reached: ulimit -u, or that of the container")};
    return {.error = error, .failure = failure.text()};
  }
  auto result = opener_(*netdev);
  if (auto* error = std::get_if<io::IoError>(&result)) return {.error = error->code, .failure = error->text()};
  auto& opened = std::get<OpenedIo>(result);
  netdev_ = *netdev;
  kernel_routes_ = opened.io.front()->kernel_routes();
  const uint32_t max_udp_length = opened.io.front()->max_udp_length();
  attach(opened);
  opened_ = std::move(opened);
  host_addresses_.clear();
  tell_host_addresses();
  io_due_.store(Time{});
  progress.wake();                        // to what it has to watch now
  max_udp_length_.store(max_udp_length);  // from here on polls run rounds
  open_ = true;
  return {.introduction = opened_.introduction};
}

void Device::leave_netdev() {
  {
    const std::unique_lock setting_up(setup, std::try_to_lock);
    if (!setting_up || !open_ || !progress.locks_come_free()) return;
  }
  progress.stop();  // it takes `setup`, and keeps descriptors open that it waits for
  std::lock_guard setting_up(setup);
  close_io();
}

// The netdev is gone, and what was attached to it with it; or it is left. Caller holds `setup`.
void Device::close_io() {
  const OpenedIo left = std::exchange(opened_, {});
  std::vector<std::unique_ptr<io::PacketIo>> closed;  // after the locks: captures may take long to come to their end
  closed.reserve(io::kMaxShards);
  {
    Progress::Guard guard(progress);
    for_each_datapath([&](Datapath& datapath) {
      if (datapath.wire() == nullptr) return;
      datapath.forget_waiting_packets();
      closed.push_back(datapath.attach(std::make_unique<io::ClosedIo>(*datapath.wire()), [this] { progress.wake(); }));
    });
  }
  progress.forget_descriptors();
}

int Device::join(const wire::IpAddress& group) {
  if (const int error = opened_.join ? opened_.join(group) : 0; error != 0) return error;
  steer_addresses();
  return 0;
}

void Device::leave(const wire::IpAddress& group) {
  if (opened_.leave) opened_.leave(group);
  steer_addresses();
}

// Tells everybody whom packets may be for: the netdev's addresses, and the groups that QPs are in. Caller holds
// `setup`.
void Device::steer_addresses() {
  std::vector<wire::IpAddress> addresses = netdev_.addresses;
  {
    Progress::Guard guard(progress);
    tables.addresses = addresses;
    if (!opened_.set_addresses) return;
    const std::vector<wire::IpAddress> groups = tables.groups.all();
    addresses.insert(addresses.end(), groups.begin(), groups.end());
  }
  steered_ = opened_.set_addresses(netdev_.mac, addresses) == 0;
  if (!steered_) progress.wake();  // to say so
}

// Caller holds `setup`.
void Device::tell_host_addresses() {
  if (!opened_.set_host_addresses) return;
  std::vector<wire::IpAddress> addresses;
  for (const net::Netdev& netdev : view_->netdevs()) {
    addresses.insert(addresses.end(), netdev.addresses.begin(), netdev.addresses.end());
  }
  if (addresses == host_addresses_) return;
  Progress::Guard guard(progress);
  opened_.set_host_addresses(addresses);
  host_addresses_ = std::move(addresses);
}

std::optional<io::IoCounters> Device::io_counters() {
  Progress::Guard guard(progress);
  std::optional<io::IoCounters> sum;
  for_each_datapath([&sum](const Datapath& datapath) {
    if (datapath.wire() == nullptr) return;
    if (!sum) sum.emplace();
    *sum += datapath.wire()->counters();
  });
  return sum;
}

std::string Device::packet_io() {
  Progress::Guard guard(progress);
  const io::PacketIo* const wire = progress.shard(0).datapath().wire();
  return wire == nullptr ? std::string() : wire->description();
}

}  // namespace uroce::engine
