// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/view.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <new>
#include <pthread.h>
#include <string>
#include <system_error>
#include <vector>

#include "abi/preload/sysfs_view/contents.h"
#include "abi/preload/sysfs_view/hardware.h"
#include "abi/preload/sysfs_view/tree.h"
#include "engine/net/device_identity.h"
#include "engine/net/device_names.h"

namespace uroce::files {
namespace {

// All of it is initialised before any code runs: hooks are called by constructors of other libraries.
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Tree* tree = nullptr;                                           // never destroyed: threads may run on after exit()
using GidTables = std::map<int, std::vector<wire::IpAddress>>;  // by netdev
GidTables* gid_tables = nullptr;                                // as last shown; never destroyed
bool ended = false;                                             // the process runs its exit handlers
bool fork_is_known = false;                                     // to pthread_atfork
bool complained = false;

// Set while this thread makes the view: what it opens on the way is real, also from a signal handler that comes
// between.
[[gnu::tls_model("initial-exec")]] thread_local bool inside = false;

void before_fork() {
  pthread_mutex_lock(&mutex);
}
void after_fork() {
  pthread_mutex_unlock(&mutex);
}

// While it lives this thread makes the view. Nobody cancels it meanwhile: reading files is a cancellation point.
class Inside {
 public:
  Inside() {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    inside = true;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    inside = false;
    pthread_setcancelstate(cancel_state_, nullptr);
  }

 private:
  int cancel_state_ = 0;
};

class Guard {
 public:
  Guard() { pthread_mutex_lock(&mutex); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { pthread_mutex_unlock(&mutex); }
};

// What the engines of this process have counted, by netdev; that of netdev 0 is what there is to count. Empty without
// liburoce.so. Asked for without the lock: it takes those of the engines.
using Counters = std::map<int, std::map<std::string, uint64_t>>;
Counters read_counters() {
  using Each = void(void* to, int netdev_index, const char* name, uint64_t value);
  using Read = void(Each * each, void* to);
  static Read* const read = reinterpret_cast<Read*>(dlsym(RTLD_DEFAULT, "uroce_port_counters"));
  Counters counters;
  if (read == nullptr) return counters;
  const auto take = [](void* to, int netdev_index, const char* name, uint64_t value) {
    (*static_cast<Counters*>(to))[netdev_index].insert_or_assign(name, value);
  };
  read(take, &counters);
  return counters;
}

// The GID tables that verbs answer from, by netdev. Empty without liburoce.so, and before the process has asked it for
// devices. Asked for without the lock, as the counters.
GidTables read_gids() {
  using Each = void(void* to, int netdev_index, size_t gid_index, const uint8_t* gid);
  using Read = void(Each * each, void* to);
  static Read* const read = reinterpret_cast<Read*>(dlsym(RTLD_DEFAULT, "uroce_gids"));
  GidTables tables;
  if (read == nullptr) return tables;
  const auto take = [](void* to, int netdev_index, size_t gid_index, const uint8_t* gid) {
    std::vector<wire::IpAddress>& table = (*static_cast<GidTables*>(to))[netdev_index];
    if (table.size() <= gid_index) table.resize(gid_index + 1);
    table[gid_index] = wire::IpAddress::v6(gid);
  };
  read(take, &tables);
  return tables;
}

const rdma_cm::Functions* find_rdma_cm() {
  auto* const get = reinterpret_cast<rdma_cm::GetFunctions*>(dlsym(RTLD_DEFAULT, rdma_cm::kFunctionsSymbol));
  return get == nullptr ? nullptr : get();
}

std::string port_file() {
  const char* const file = secure_getenv("UROCE_DPDK_ADDRESSES");
  return file == nullptr ? "" : file;
}

// liburoce.so says what is wrong with it, and has no devices then.
std::string device_names() {
  const char* const names = secure_getenv("UROCE_NAMES");
  return names == nullptr || !engine::wrong_device_names(names).empty() ? "" : names;
}

// The devices of this network namespace, as ibv_get_device_list() gives them. Indices of GIDs stay from look to look.
std::vector<Device> read_devices(const Counters& counters, const GidTables& shared) {
  if (gid_tables == nullptr) gid_tables = new GidTables;
  const char* const tap = secure_getenv("UROCE_DPDK_TAP");
  const char* const chosen = tap != nullptr && *tap != 0 ? tap : secure_getenv("UROCE_NETDEV");
  const std::string names = device_names();
  std::vector<Device> devices;
  const std::vector<net::Netdev> all = net::open_view(port_file())->netdevs();
  for (net::Netdev& netdev : engine::devices_of(all, chosen == nullptr ? "" : chosen)) {
    std::vector<wire::IpAddress>& gids = (*gid_tables)[netdev.index];
    const auto known = shared.find(netdev.index);
    gids = known != shared.end() ? known->second : net::gid_table(std::move(gids), netdev.addresses);
    netdev.gids = gids;
    Device device;
    device.hardware = hardware_of(netdev);
    const auto counted = counters.find(counters.count(netdev.index) != 0 ? netdev.index : 0);
    if (counted != counters.end()) device.counters = counted->second;
    device.name = engine::device_name(netdev, names);
    device.netdev = std::move(netdev);
    devices.push_back(std::move(device));
  }
  return devices;
}

void complain(const std::string& why) {
  if (complained) return;
  complained = true;
  std::fprintf(stderr, "uroce: no files under /sys/class/infiniband: %s\n", why.c_str());
}

// True: `tree` is there and shows `wanted`.
bool show(const Contents& wanted) {
  if (tree != nullptr && tree->usable() && tree->update(wanted)) return true;
  if (tree != nullptr && tree->usable()) tree->remove();
  delete tree;
  tree = Tree::create().release();
  if (tree != nullptr && tree->update(wanted)) return true;
  complain(std::string("neither /dev/shm nor /tmp can be written: ") + std::strerror(errno));
  return false;
}

// The network is read under the lock: an older state never replaces a newer one.
bool refresh(const Counters& counters, const GidTables& gids) {
  try {
    const RdmaCm rdma_cm = rdma_cm_functions() != nullptr ? RdmaCm::kPresent : RdmaCm::kAbsent;
    return show(describe(read_devices(counters, gids), online_cpus(), rdma_cm));
  } catch (const std::system_error& error) {
    complain(net::why_not_read(error));
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  }
  return false;
}

std::string path_in_tree(const std::string& path, DeviceNodes nodes) {
  if (nodes == DeviceNodes::kThemselves && is_device_node(path)) {
    // What follows the name stays: "uverbs3/x" is an error of its own kind.
    const size_t end = path.find('/', path.rfind("infiniband/") + std::strlen("infiniband/"));
    if (tree->has(path.substr(0, end))) return "/dev/null" + (end == std::string::npos ? "" : path.substr(end));
  }
  return tree->path() + "/" + path;
}

// The last moment at which the process is certain to pass by.
[[gnu::destructor]] void end() {
  if (inside) return;  // a signal handler that calls exit()
  const Inside making;
  const Guard guard;
  ended = true;
  if (tree != nullptr && tree->usable()) tree->remove();
}

}  // namespace

constinit std::atomic<const rdma_cm::Functions*> known_rdma_cm{nullptr};

const rdma_cm::Functions* rdma_cm_functions() {
  const rdma_cm::Functions* functions = known_rdma_cm.load(std::memory_order_acquire);
  if (functions == nullptr) {
    const int error = errno;
    functions = find_rdma_cm();
    known_rdma_cm.store(functions, std::memory_order_release);
    errno = error;
  }
  return functions;
}

std::optional<std::string> real_path(const std::string& path, DeviceNodes nodes) {
  if (inside) return std::nullopt;
  const Inside making;
  const Counters counters = read_counters();
  const GidTables gids = read_gids();
  const Guard guard;
  if (ended) return std::nullopt;
  if (!fork_is_known) fork_is_known = pthread_atfork(before_fork, after_fork, after_fork) == 0;
  if (!refresh(counters, gids)) return std::nullopt;
  return path_in_tree(path, nodes);
}

}  // namespace uroce::files
