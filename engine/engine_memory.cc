// SPDX-License-Identifier: BSD-2-Clause
// The memory calls of the engine: regions and windows, changed under the progress lock, so between two packets.
#include <cerrno>
#include <cstdint>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/memory/memory_access.h"

namespace uroce::engine {

namespace {

using memory::MemoryRegion;
using memory::MrTable;

int check(const MemoryRegion& region) {
  const auto base = reinterpret_cast<uintptr_t>(region.base);
  if (base + region.length < base || region.iova + region.length < region.iova) return EINVAL;
  const bool remote_change = region.access & (memory::kRemoteWrite | memory::kRemoteAtomic);
  if (remote_change && !(region.access & memory::kLocalWrite)) return EINVAL;  // IBTA 10.6.3.1
  return 0;
}

// Why a region cannot be removed or replaced.
int obstacle(const MrTable& regions, uint32_t key) {
  const MemoryRegion* region = regions.find(key);
  if (region == nullptr) return EINVAL;
  return region->windows == 0 ? 0 : EBUSY;
}

}  // namespace

int Engine::register_memory(const MemoryRegion& region, uint32_t& key) {
  if (const int error = check(region); error != 0) return error;
  if (const int error = memory::install_fault_handler(); error != 0) return error;
  Progress::Guard guard(device_->progress);
  MrTable& regions = device_->tables.regions;
  if (regions.size() >= MrTable::kMaxRegions) return ENOMEM;
  key = regions.add(region);
  return 0;
}

// Packets that wait for room in the packet I/O point to the old memory. They are lost, and sent again from the new.
int Engine::reregister_memory(uint32_t key, const MemoryRegion& region) {
  if (const int error = check(region); error != 0) return error;
  Progress::Guard guard(device_->progress);
  MrTable& regions = device_->tables.regions;
  if (const int error = obstacle(regions, key); error != 0) return error;
  device_->for_each_datapath([&](Datapath& datapath) { datapath.forget_waiting_packets(*regions.find(key)); });
  regions.replace(key, region);
  return 0;
}

int Engine::deregister_memory(uint32_t key) {
  Progress::Guard guard(device_->progress);
  MrTable& regions = device_->tables.regions;
  if (const int error = obstacle(regions, key); error != 0) return error;
  device_->for_each_datapath([&](Datapath& datapath) { datapath.forget_waiting_packets(*regions.find(key)); });
  regions.remove(key);
  return 0;
}

int Engine::find_memory(uint32_t key, MemoryRegion& region) {
  Progress::Guard guard(device_->progress);
  const MrTable& regions = device_->tables.regions;
  if (const MemoryRegion* found = regions.find(key)) {
    region = *found;
    return 0;
  }
  return regions.find_window(key) != nullptr ? EINVAL : ENOENT;
}

int Engine::allocate_window(memory::WindowType type, uint32_t pd, uint32_t& key) {
  Progress::Guard guard(device_->progress);
  MrTable& regions = device_->tables.regions;
  if (regions.window_count() >= MrTable::kMaxWindows) return ENOMEM;
  key = regions.add_window(type, pd);
  return 0;
}

int Engine::deallocate_window(uint32_t key) {
  Progress::Guard guard(device_->progress);
  return device_->tables.regions.remove_window(key) ? 0 : EINVAL;
}

}  // namespace uroce::engine
