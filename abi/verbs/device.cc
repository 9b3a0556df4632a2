// SPDX-License-Identifier: BSD-2-Clause
// ibv_get_device_list and what can be asked of a device without opening it: its name, index and GUID. Nothing is opened
// and no privilege is needed (architecture.md, decision 6).

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <endian.h>
#include <memory>
#include <mutex>
#include <vector>

#include "abi/verbs/objects.h"
#include "engine/net/device_identity.h"

namespace uroce::verbs {
namespace {

// The paths are those that abi/preload/ shows.
std::unique_ptr<Device> make_device(const engine::DeviceInfo& info) {
  auto device = std::make_unique<Device>();
  ibv_device& verbs = device->verbs;
  verbs.node_type = IBV_NODE_CA;
  verbs.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(verbs.name, sizeof(verbs.name), "%s", info.name.c_str());
  std::snprintf(verbs.dev_name, sizeof(verbs.dev_name), "%s", engine::uverbs_name(info.netdev).c_str());
  std::snprintf(verbs.dev_path, sizeof(verbs.dev_path), "/sys/class/infiniband_verbs/%s", verbs.dev_name);
  std::snprintf(verbs.ibdev_path, sizeof(verbs.ibdev_path), "/sys/class/infiniband/%s", verbs.name);
  device->info = info;
  return device;
}

bool same_device(const engine::DeviceInfo& a, const engine::DeviceInfo& b) {
  return a.name == b.name && a.netdev.index == b.netdev.index && a.guid == b.guid;
}

struct Devices {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> all;
};

// The one Device of this netdev: a second listing gives the same pointers.
ibv_device* intern(const engine::DeviceInfo& info) {
  Devices& devices = per_process<Devices>();
  std::lock_guard guard(devices.mutex);
  for (const auto& device : devices.all) {
    if (same_device(device->info, info)) return &device->verbs;
  }
  devices.all.push_back(make_device(info));
  return &devices.all.back()->verbs;
}

// Returns 0 or an errno value.
int list_devices(std::vector<ibv_device*>& devices) {
  engine::Host* host = engine::Host::instance();
  if (host == nullptr) return ENODEV;
  for (const engine::DeviceInfo& info : host->devices()) devices.push_back(intern(info));
  return 0;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  std::vector<ibv_device*> devices;
  if (const int error = without_exceptions([&] { return list_devices(devices); })) return fail(error);
  // NOLINTNEXTLINE(bugprone-sizeof-expression): they are pointers
  auto** list = static_cast<ibv_device**>(std::calloc(devices.size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) return fail(ENOMEM);
  std::copy(devices.begin(), devices.end(), list);
  if (num_devices != nullptr) *num_devices = static_cast<int>(devices.size());
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

int ibv_get_device_index(ibv_device* device) {
  return from(device).info.netdev.index;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  return htobe64(from(device).info.guid);
}

}  // extern "C"
