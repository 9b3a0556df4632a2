// SPDX-License-Identifier: BSD-2-Clause
#include "process/host.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "base/capabilities.h"
#include "base/clock.h"
#include "base/concat.h"
#include "base/fork.h"
#include "base/thread.h"
#include "engine/device/device.h"
#include "engine/net/device_identity.h"
#include "engine/net/device_names.h"
#include "process/capture_setup.h"
#include "process/open_io.h"

namespace uroce::engine {

struct Host::Engines {
  struct Place {
    std::weak_ptr<Engine> engine;
    std::shared_ptr<std::atomic<bool>> gone;  // the engine's, once it has left the netdev
  };
  std::mutex lock;
  std::map<int, Place> by_ifindex;
  std::vector<std::shared_ptr<Engine>> kept;
};

Host::Host(Options options, std::shared_ptr<net::NetView> view, IoOpener open)
    : options_(std::move(options)),
      view_(std::move(view)),
      open_(std::move(open)),
      engines_(std::make_shared<Engines>()),
      process_(process_generation()),
      pid_(getpid()) {}

// Never destroyed: applications call into verbs until the very end of the process.
struct Host::Slot {
  std::once_flag once;
  Host* host = nullptr;
};

namespace {

constexpr std::chrono::seconds kLeaveTime{1};
// As long may a thread that the process ends in be kept from the list of its engines.
constexpr std::chrono::milliseconds kLockHeld{10};

std::atomic<Host*> created_host{nullptr};

// After all exit handlers, and the destructors of programs and libraries that are linked with this one.
__attribute__((destructor)) void at_the_very_end() {
  try {
    if (Host* const host = Host::existing()) host->leave_netdevs();
  } catch (const std::exception&) {  // no memory, or no more threads allowed: left to the kernel
  }
}

}  // namespace

Host* Host::existing() {
  Host* const host = created_host.load(std::memory_order_acquire);
  return host != nullptr && host->process_ == process_generation() ? host : nullptr;
}

Host* Host::instance() {
  Slot& slot = per_process<Slot>();
  std::call_once(slot.once, [&slot] { slot.host = create(); });
  return slot.host;
}

void Host::make(Options options, std::shared_ptr<net::NetView> view, IoOpener open) {
  Slot& slot = per_process<Slot>();
  std::call_once(slot.once, [&] {
    slot.host = take(std::unique_ptr<Host>(new Host(std::move(options), std::move(view), std::move(open))));
  });
}

// From now on the one of this process.
Host* Host::take(std::unique_ptr<Host> host) {
  static std::atomic<bool> will_finish{false};  // children inherit that
  if (!will_finish.exchange(true)) std::atexit(at_exit);
  created_host.store(host.get(), std::memory_order_release);
  return host.release();
}

Host* Host::create() {
  Options options;
  if (const auto error = Options::from_environment(options)) {
    std::fputs(concat("uroce: ", *error, "\n").c_str(), stderr);
    return nullptr;
  }
  IoOpener open;
  if (!options.dpdk_tap.empty()) {
    auto opener = opener_with_tap(options);
    if (const auto* const error = std::get_if<io::IoError>(&opener)) {
      std::fputs(concat("uroce: ", error->text(), "\n").c_str(), stderr);
      return nullptr;
    }
    open = std::move(std::get<IoOpener>(opener));
  }
  try {
    const std::shared_ptr<net::NetView> view = net::open_view(options.dpdk_addresses);
    if (!open) open = opener_for(view, options);
    std::unique_ptr<Host> host(new Host(std::move(options), view, std::move(open)));
    if (host->options_.keep_capabilities) keep_ambient_capabilities();
    return take(std::move(host));
  } catch (const std::system_error& e) {
    std::fputs(concat("uroce: ", net::why_not_read(e), "\n").c_str(), stderr);
    return nullptr;
  } catch (const std::runtime_error& e) {  // of open_view()
    std::fputs(concat("uroce: ", e.what(), "\n").c_str(), stderr);
    return nullptr;
  }
}

std::vector<DeviceInfo> Host::devices() {
  view_->process_changes();
  std::vector<DeviceInfo> devices;
  for (net::Netdev& netdev : devices_of(view_->netdevs(), options_.netdev)) {
    DeviceInfo device;
    device.name = device_name(netdev, options_.names);
    device.guid = device_guid(netdev);
    device.netdev = std::move(netdev);
    devices.push_back(std::move(device));
  }
  return devices;
}

void Host::tell_of_orphans() {
  struct Told {
    std::atomic<bool> already{false};
  };
  const char* const quiet = secure_getenv("UROCE_QUIET");
  if (quiet != nullptr && std::string_view(quiet) != "0") return;
  if (per_process<Told>().already.exchange(true)) return;
  std::fputs(
      "uroce: this process has its RDMA device from its parent, by fork() or daemon(); it works there only, and fails "
      "here with EIO: open the device after that, or keep the program in the foreground (often -f or --foreground)\n",
      stderr);
}

// In a child after fork(), only what it has made itself.
void Host::at_exit() {
  if (Host* const host = existing()) host->finish();
}

// A program that ends without destroying its QPs still owes ACKs for what it received. One may wait for an answer that
// does not come any more.
bool Host::settle_acks() {
  bool opened = false;
  const Time limit = monotonic_now() + kLockHeld;
  std::unique_lock guard(engines_->lock, std::defer_lock);
  while (!guard.try_lock()) {
    if (monotonic_now() >= limit) return false;
    std::this_thread::yield();
  }
  for (const auto& [index, place] : engines_->by_ifindex) {
    if (const auto engine = place.engine.lock()) opened |= engine->settle_acks();
  }
  return opened;
}

void Host::before_end(End end) {
  static std::atomic<bool> ending{false};  // it ends in a signal handler that has interrupted this
  Host* const host = created_host.load(std::memory_order_acquire);
  if (host == nullptr || host->pid_ != getpid() || existing() != host || ending.exchange(true)) return;
  try {
    if (host->settle_acks() && end == End::kExit) end_captures_now();
  } catch (const std::exception&) {  // no memory: what has not left is lost, as on a wire
  }
  ending.store(false);
}

void Host::finish() {
  settle_acks();
  if (options_.print_counters) {
    for (const auto& [index, engine] : existing_engines()) std::fputs(engine->counters_text().c_str(), stderr);
  }
  finish_captures();
}

// In a thread, for which the caller does not wait for ever: exit() may have been called in a signal handler, which has
// interrupted who holds a lock.
void Host::leave_netdevs() {
  std::vector<std::shared_ptr<Engine>> engines;
  {
    const std::unique_lock guard(engines_->lock, std::try_to_lock);
    if (!guard) return;
    for (const auto& [index, place] : engines_->by_ifindex) {
      if (auto engine = place.engine.lock()) engines.push_back(std::move(engine));
    }
  }
  if (engines.empty()) return;
  const auto left = std::make_shared<std::promise<void>>();
  start_thread("uroce exit", [engines, left] {
    for (const std::shared_ptr<Engine>& engine : engines) engine->leave_netdev();
    left->set_value();
  }).detach();
  left->get_future().wait_for(kLeaveTime);
}

std::shared_ptr<Engine> Host::engine(const DeviceInfo& device) {
  std::shared_ptr<Engine> engine = find_engine(device);
  // The kernel's traffic goes by the port as well, and so may the program's before it has a QP. What fails is said, and
  // fails again then.
  if (!options_.dpdk_tap.empty()) engine->open_io();
  return engine;
}

std::shared_ptr<Engine> Host::find_engine(const DeviceInfo& device) {
  std::lock_guard guard(engines_->lock);
  Engines::Place& place = engines_->by_ifindex[device.netdev.index];
  std::shared_ptr<Engine> engine = place.engine.lock();
  if (!engine && place.gone) place.gone->wait(false);  // another thread is just closing it
  if (!engine || !engine->present()) {                 // a netdev may come back
    place.gone = std::make_shared<std::atomic<bool>>(false);
    place.engine = engine = make_engine(device.netdev, place.gone);
    if (options_.print_counters) engines_->kept.push_back(engine);  // until they have been printed
  }
  return engine;
}

std::shared_ptr<Engine> Host::make_engine(const net::Netdev& netdev, std::shared_ptr<std::atomic<bool>> gone) {
  const auto open = [this](const net::Netdev& which) {
    auto opened = open_(which);
    if (std::holds_alternative<OpenedIo>(opened)) io_has_opened(which.index);
    return opened;
  };
  return {new Engine(std::make_unique<Device>(netdev, view_, options_.of_devices(), open)),
          [gone = std::move(gone)](const Engine* engine) {
            delete engine;
            gone->store(true);
            gone->notify_all();
          }};
}

// When all devices that the program may use have their packet I/O, the rights that were there for it can go. In the
// thread that has opened the last one.
void Host::io_has_opened(int netdev_index) {
  {
    std::lock_guard guard(opened_lock_);
    opened_.insert(netdev_index);
    for (const DeviceInfo& device : devices()) {
      if (!opened_.contains(device.netdev.index)) return;
    }
  }
  if (!drop_ambient_capabilities() || options_.quiet) return;
  size_t others = threads_with_ambient_capabilities();
  for (int i = 0; i < 20 && others > 0; ++i) {  // one of ours may just be starting
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    others = threads_with_ambient_capabilities();
  }
  if (others == 0) return;
  const std::string text = concat("uroce: ", others, others == 1 ? " thread" : " threads",
                                  " of this program that ran before the packet I/O was open ",
                                  others == 1 ? "keeps" : "keep", " the capabilities for AF_XDP\n");
  std::fputs(text.c_str(), stderr);
}

std::map<int, std::shared_ptr<Engine>> Host::existing_engines() {
  std::lock_guard guard(engines_->lock);
  std::map<int, std::shared_ptr<Engine>> engines;
  for (const auto& [index, place] : engines_->by_ifindex) {
    if (auto engine = place.engine.lock()) engines.emplace(index, std::move(engine));
  }
  return engines;
}

}  // namespace uroce::engine
