// SPDX-License-Identifier: BSD-2-Clause
// Memory regions. Registration checks what hardware would: the range exists and the access rights make sense. Nothing
// is pinned: work that meets memory which the application has unmapped ends with an error
// (engine/memory/memory_access.h). So on-demand paging costs nothing, and only leaves out the check that the range
// exists. Changing a region is in mr_rereg.cc, registering file descriptors in dmabuf.cc.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/memory_objects.h"
#include "abi/verbs/newer_verbs.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

// What the engine acts on.
constexpr uint32_t kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND | kAccessFlushGlobal;
// Besides, what means something here or changes nothing: huge pages, and the range of optional flags (ordering).
constexpr uint32_t kKnownMrAccess =
    kRights | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | kAccessFlushPersistent | uint32_t{IBV_ACCESS_OPTIONAL_RANGE};

// Whether every page of the range is mapped. The caller has checked that it does not wrap.
bool is_mapped(uintptr_t address, size_t length) {
  const uintptr_t page = page_size();
  unsigned char residency[4096];  // one byte a page; not looked at, only ENOMEM is
  const uintptr_t end = address + length;
  for (uintptr_t at = address & ~(page - 1); at < end; at += sizeof(residency) * page) {
    const size_t chunk = std::min(end - at, sizeof(residency) * page);
    if (mincore(reinterpret_cast<void*>(at), chunk, residency) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

ibv_mr* register_plain(ibv_pd* pd, void* address, size_t length, uint64_t iova, uint32_t access) {
  MrRequest request;
  request.pd = pd;
  request.shown_address = address;
  request.base = static_cast<uint8_t*>(address);
  request.length = length;
  request.iova = (access & IBV_ACCESS_ZERO_BASED) ? 0 : iova;
  request.access = access;
  if (const int error = check_access(access)) return fail(error);
  if (const int error = check_range(request)) return fail(error);
  return make_mr(std::move(request));
}

// EBUSY: windows are bound to it.
int take_from_engine(MrState& state, uint32_t handle, MemoryHandles& handles) {
  if (const int error = state.engine->deregister_memory(state.key); error == EBUSY) return error;
  handles.mrs.remove(handle);
  return 0;
}

// What a region held apart from its place in the engine.
void release(MrRequest& request) {
  if (request.pd == nullptr) return;
  --from(request.pd).users;
  request.pd = nullptr;
  if (request.dm != nullptr) --request.dm->regions;
  request.dm.reset();
  request.mapping.reset();
}

}  // namespace

uintptr_t page_size() {
  return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
}

void Mapping::reset() {
  if (address_ != nullptr) munmap(address_, length_);
  address_ = nullptr;
}

// In the order in which the kernel looks.
int check_access(uint32_t access) {
  const bool remote_change = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  if (remote_change && !(access & IBV_ACCESS_LOCAL_WRITE)) return EINVAL;  // IBTA 10.6.3.1
  if (access & ~kKnownMrAccess) return EINVAL;
  return (access & kAccessFlushPersistent) ? EOPNOTSUPP : 0;  // there is no persistent memory behind a process
}

// How implicit on-demand paging is asked for.
bool is_whole_address_space(const MrRequest& request) {
  return (request.access & IBV_ACCESS_ON_DEMAND) && request.base == nullptr && request.length == SIZE_MAX;
}

int check_range(const MrRequest& request) {
  const uintptr_t offset_in_page = page_size() - 1;
  if (is_whole_address_space(request)) {
    return request.iova == 0 && !(request.access & IBV_ACCESS_HUGETLB) ? 0 : EINVAL;
  }
  const auto start = reinterpret_cast<uintptr_t>(request.base);
  const uintptr_t end = start + request.length;
  if (end < start || end + offset_in_page < end) return EINVAL;
  const bool zero_based = request.access & IBV_ACCESS_ZERO_BASED;
  if (!zero_based && ((start ^ request.iova) & offset_in_page) != 0) return EINVAL;
  // A region of no bytes needs no memory: nothing reaches anything through it.
  const bool needs_pages = request.length != 0 && !(request.access & IBV_ACCESS_ON_DEMAND);
  return !needs_pages || is_mapped(start, request.length) ? 0 : EFAULT;
}

memory::MemoryRegion region_of(const MrRequest& request) {
  return {.base = request.base,
          .iova = request.iova,
          .length = request.length,
          .access = request.access & kRights,
          .pd = request.pd->handle,
          .null = request.kind == MrKind::kNull};
}

ibv_mr* make_mr(MrRequest request) {
  ibv_pd* const pd = request.pd;
  if (refuses_orphan(pd->context)) return fail(EIO);
  Context& context = from(pd->context);
  auto mr = std::make_unique<Mr>();
  const int error = without_exceptions([&] {
    mr->state = std::make_shared<MrState>();
    MrState& state = *mr->state;
    state.request = std::move(request);
    state.engine = context.engine.get();
    mr->handle = next_handle();
    context.memory->mrs.add(mr->handle, mr->state);
    const memory::MemoryRegion region = region_of(state.request);
    const int result = without_exceptions([&] { return state.engine->register_memory(region, state.key); });
    if (result != 0) context.memory->mrs.remove(mr->handle);
    return result;
  });
  if (error != 0) return fail(error);

  const MrRequest& made = mr->state->request;
  ++from(pd).users;
  if (made.dm != nullptr) ++made.dm->regions;
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = made.shown_address;
  mr->length = made.length;
  mr->lkey = mr->state->key;
  mr->rkey = made.kind == MrKind::kNull ? 0 : mr->lkey;
  return mr.release();
}

// Whatever is written there is lost, what is read is zeroes; for receives and sends whose data nobody wants.
ibv_mr* alloc_null_mr(ibv_pd* pd) {
  MrRequest request;
  request.pd = pd;
  request.length = SIZE_MAX;
  request.access = IBV_ACCESS_LOCAL_WRITE;
  request.kind = MrKind::kNull;
  return make_mr(std::move(request));
}

void close_memory(Context& context) {
  MemoryHandles& handles = *context.memory;
  if (--handles.open_contexts != 0) return;
  for (const Mw* mw : handles.mws.take_all()) mw->engine->deallocate_window(mw->key);
  for (const auto& [handle, state] : handles.mrs.take_all()) state->engine->deregister_memory(state->key);
  for (const auto& [handle, state] : handles.dms.take_all()) {
    device_of(&context.verbs.context).device_memory_used -= state->charged;
  }
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_plain(pd, addr, length, reinterpret_cast<uintptr_t>(addr), static_cast<uint32_t>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_plain(pd, addr, length, iova, static_cast<uint32_t>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  return register_plain(pd, addr, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  return register_dmabuf(pd, offset, length, iova, fd, static_cast<uint32_t>(access));
}

// All of the above and ibv_reg_buf_mr() behind one call (rdma-core 59).
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* given) {
  const auto* const attr = reinterpret_cast<const MrInitAttr*>(given);
  constexpr uint64_t kSupported = kMrInitIova | kMrInitAddr | kMrInitFd | kMrInitFdOffset | kMrInitBuf;
  if (attr->comp_mask & ~kSupported) return fail(EOPNOTSUPP);  // DMA handles among them
  const bool has_address = attr->comp_mask & kMrInitAddr, has_fd = attr->comp_mask & kMrInitFd;
  const bool has_offset = attr->comp_mask & kMrInitFdOffset;
  if (has_address == has_fd || has_fd != has_offset) return fail(EINVAL);
  if (attr->comp_mask & kMrInitBuf) {
    const bool valid = has_address && is_part_of(*attr->buf, pd, attr->addr, attr->length);
    if (!valid) return fail(EINVAL);
  }
  const auto access = static_cast<uint32_t>(attr->access);
  const bool has_iova = attr->comp_mask & kMrInitIova;
  if (has_fd) {
    return register_dmabuf(pd, attr->fd_offset, attr->length, has_iova ? attr->iova : 0, attr->fd, access);
  }
  const uint64_t iova = has_iova ? attr->iova : reinterpret_cast<uintptr_t>(attr->addr);
  return register_plain(pd, attr->addr, attr->length, iova, access);
}

// ENOENT: the region has been deregistered through another handle (ibv_import_mr); what is left is to unimport this
// one.
int ibv_dereg_mr(ibv_mr* verbs) {
  Mr& mr = from(verbs);
  if (orphaned(mr.context)) return forget(mr);
  MemoryHandles& handles = *from(mr.context).memory;
  if (handles.mrs.find(mr.handle) != nullptr) {
    if (const int error = take_from_engine(*mr.state, mr.handle, handles)) return answer(error);
  } else if (handles.open_contexts != 0) {
    return answer(ENOENT);
  }
  release(mr.state->request);
  delete &mr;
  return 0;
}

}  // extern "C"
