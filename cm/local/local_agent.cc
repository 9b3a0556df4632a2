// SPDX-License-Identifier: BSD-2-Clause
#include "cm/local/local_agent.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/random.h"
#include "base/thread.h"

namespace uroce::rdma_cm {
namespace {

constexpr cm::ClientId kThisProcess{1};
constexpr Duration kLookAgain = std::chrono::seconds(1);

}  // namespace

LocalAgent::LocalAgent(cm::Surroundings& surroundings, Devices devices, Handler handler, const cm::Limits& limits)
    : devices_(std::move(devices)),
      handler_(std::move(handler)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      service_(limits, engine::secure_random, surroundings, *this) {
  if (!wake_) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = start_thread("uroce-cm", [this] { work(); });
}

LocalAgent::~LocalAgent() {
  {
    const std::lock_guard guard(lock_);
    const Time now = monotonic_now();
    service_.end_client(kThisProcess, now);
    while (service_.is_ending()) service_.on_timer(now);
  }
  ends_ = true;
  wake();
  thread_.join();
}

// Any thread, under whatever locks.
void LocalAgent::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));  // full: it is awake
}

cm::Reply LocalAgent::ask(const cm::Request& request) {
  cm::Reply reply;
  {
    const std::lock_guard guard(lock_);
    reply.error = prepare(request);
    if (reply.error == 0) reply = service_.ask(kThisProcess, request, monotonic_now());
  }
  wake();  // there may be events, or a sooner deadline
  return reply;
}

void LocalAgent::send(const cm::Datagram& datagram) {
  const auto port = ports_.find(datagram.netdev);
  if (port != ports_.end()) port->second.gsi->send(datagram);  // an error is a loss
}

void LocalAgent::on_event(const cm::Event& event) {
  events_.push_back(event);
}

// Opens the devices that the request needs.
int LocalAgent::prepare(const cm::Request& request) {
  if (const auto* const connect = std::get_if<cm::ConnectRequest>(&request)) return use(connect->connect.path.netdev);
  if (const auto* const adopt = std::get_if<cm::AdoptRequest>(&request)) return use(adopt->qp.path.netdev);
  const auto* const listen = std::get_if<cm::ListenRequest>(&request);
  if (listen == nullptr) return 0;
  if (listen->listen.netdev != 0) return use(listen->listen.netdev);
  // Of which netdev an address is may change.
  const int error = use_all();
  if (error == 0) all_ = true;
  return error;
}

int LocalAgent::use(uint32_t netdev) {
  if (ports_.contains(netdev)) return 0;
  const std::vector<Device> devices = devices_();
  const auto device =
      std::find_if(devices.begin(), devices.end(), [netdev](const Device& d) { return d.netdev == netdev; });
  return device == devices.end() ? ENODEV : open(*device);
}

// 0: at least one can be used.
int LocalAgent::use_all() {
  look_again_ = monotonic_now() + kLookAgain;
  std::erase_if(ports_, [](const auto& port) { return !port.second.device.engine->present(); });
  int error = ENODEV;
  for (const Device& device : devices_()) {
    if (ports_.contains(device.netdev)) continue;
    if (const int failed = open(device); failed != 0 && error == ENODEV) error = failed;
  }
  return ports_.empty() ? error : 0;
}

int LocalAgent::open(const Device& device) {
  if (device.engine == nullptr) return ENODEV;
  std::unique_ptr<GsiQp> gsi;
  if (const int error = GsiQp::open(
          device.engine, [this] { wake(); }, gsi))
    return error;
  ports_[device.netdev] = {device, std::move(gsi)};
  return 0;
}

void LocalAgent::work() {
  std::vector<cm::Event> events;
  while (!ends_) {
    int timeout = 0;
    {
      const std::lock_guard guard(lock_);
      const Time now = monotonic_now();
      const bool more = take_datagrams(now);
      if (service_.deadline() <= now) service_.on_timer(now);
      if (all_ && now >= look_again_) use_all();
      events.swap(events_);
      if (!more) timeout = patience(now);
    }
    for (const cm::Event& event : events) handler_.on_event(event);
    events.clear();
    pollfd wait{wake_.get(), POLLIN, 0};
    if (poll(&wait, 1, timeout) > 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    }
  }
}

// True: there are more.
bool LocalAgent::take_datagrams(Time now) {
  bool more = false;
  for (auto& [netdev, port] : ports_) {
    const wire::Guid guid = port.device.guid;
    more |= port.gsi->receive([&, index = netdev](const cm::Datagram& came) {
      cm::Datagram datagram = came;
      datagram.netdev = index;
      datagram.ca_guid = guid;
      service_.on_datagram(datagram, now);
    });
  }
  return more;
}

// Milliseconds until something is to be done; -1: for ever.
int LocalAgent::patience(Time now) {
  Time next = service_.deadline();
  if (all_) next = std::min(next, look_again_);
  if (next == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace uroce::rdma_cm
