// SPDX-License-Identifier: BSD-2-Clause
// The objects behind memory verbs: regions, windows, device memory. What handles created by ibv_import_* share with the
// handle they come from is a state of its own; a context keeps these states by number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "abi/verbs/objects.h"

namespace uroce::verbs {

// Memory that the shim has mapped.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, size_t length) : address_(address), length_(length) {}
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    swap(other);
    return *this;
  }
  uint8_t* data() const { return static_cast<uint8_t*>(address_); }
  void reset();

 private:
  void swap(Mapping& other) {
    std::swap(address_, other.address_);
    std::swap(length_, other.length_);
  }
  void* address_ = nullptr;
  size_t length_ = 0;
};

// --- device memory: ordinary memory here, behind the calls for memory of the device ----------------------------------

struct DmState {
  Mapping mapping;
  uint8_t* address = nullptr;
  size_t length = 0;                 // bytes
  uint64_t charged = 0;              // bytes of the device's device memory
  std::atomic<uint32_t> regions{0};  // registered on it
};

struct Dm : ibv_dm {
  std::shared_ptr<DmState> state;
};

inline Dm& from(ibv_dm* dm) {
  return *static_cast<Dm*>(dm);
}

// --- memory regions --------------------------------------------------------------------------------------------------

enum class MrKind : uint8_t { kPlain, kDmabuf, kDeviceMemory, kNull };

// What an application asked for.
struct MrRequest {
  ibv_pd* pd = nullptr;
  void* shown_address = nullptr;  // ibv_mr::addr
  uint8_t* base = nullptr;
  size_t length = 0;
  uint64_t iova = 0;
  uint32_t access = 0;  // enum ibv_access_flags
  MrKind kind = MrKind::kPlain;
  Mapping mapping;              // that goes with the region
  std::shared_ptr<DmState> dm;  // that the region is a part of
};

struct MrState {
  MrRequest request;                 // as it is now, with re-registrations; `request.pd` counts this region
  engine::Engine* engine = nullptr;  // while the state is in MemoryHandles
  uint32_t key = 0;
};

struct Mr : ibv_mr {
  std::shared_ptr<MrState> state;
  bool imported = false;
};

inline Mr& from(ibv_mr* mr) {
  return *static_cast<Mr*>(mr);
}

// --- memory windows --------------------------------------------------------------------------------------------------

struct Mw : ibv_mw {
  engine::Engine* engine = nullptr;  // while the window is in MemoryHandles
  uint32_t key = 0;                  // as it was allocated; ibv_mw::rkey follows the binds
};

inline Mw& from(ibv_mw* mw) {
  return *static_cast<Mw*>(mw);
}

// Whether a work request may ask to bind `mw` to what `info` says: 0, EINVAL, EPERM or EOPNOTSUPP. What only the memory
// tables know comes out as a completion (IBV_WC_MW_BIND_ERR). Called where IBV_WR_BIND_MW is posted.
int check_bind(const ibv_mw* mw, const ibv_mw_bind_info& info);
// What the window is called once it is bound under `rkey`: of that only the low eight bits count (mlx5, irdma and rxe),
// the others are the window's own.
uint32_t key_after_bind(const ibv_mw& mw, uint32_t rkey);

// --- handles ---------------------------------------------------------------------------------------------------------

template <class State>
class HandleMap {
 public:
  void add(uint32_t handle, std::shared_ptr<State> state) {
    std::lock_guard guard(mutex_);
    states_.emplace(handle, std::move(state));
  }
  // Null: there is none of this number.
  std::shared_ptr<State> find(uint32_t handle) {
    std::lock_guard guard(mutex_);
    const auto it = states_.find(handle);
    return it == states_.end() ? nullptr : it->second;
  }
  // False: it is not there, or was taken.
  bool remove(uint32_t handle) {
    std::lock_guard guard(mutex_);
    return states_.erase(handle) != 0;
  }
  std::map<uint32_t, std::shared_ptr<State>> take_all() {
    std::lock_guard guard(mutex_);
    return std::exchange(states_, {});
  }

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<State>> states_;
};

// The memory of a context, and of contexts that were imported from it: those share this object and count themselves in.
struct MemoryHandles {
  std::atomic<uint32_t> open_contexts{1};
  HandleMap<MrState> mrs;
  HandleMap<DmState> dms;
  LiveObjects<Mw> mws;
};

// The device is being closed: takes what the application has left from the engine, unless another context shares it.
// QPs are gone.
void close_memory(Context& context);

// In bytes: as the kernel has them.
uintptr_t page_size();

// --- mr.cc, for the files that make or change regions --------------------------------------------------------------

int check_access(uint32_t access);          // 0, EINVAL or EOPNOTSUPP
int check_range(const MrRequest& request);  // of plain memory: 0, EINVAL or EFAULT
bool is_whole_address_space(const MrRequest& request);
memory::MemoryRegion region_of(const MrRequest& request);
ibv_mr* make_mr(MrRequest request);  // null and errno

// dmabuf.cc
ibv_mr* register_dmabuf(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, uint32_t access);

}  // namespace uroce::verbs
