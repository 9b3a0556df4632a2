// SPDX-License-Identifier: BSD-2-Clause
// Device memory. A device that is a process has none of its own: ordinary memory stands for it, of a size that is
// reported and held to, so that applications that want some get what they ask for.

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/memory_objects.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

constexpr uint32_t kDmAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | uint32_t{IBV_ACCESS_OPTIONAL_RANGE};

bool contains(const DmState& dm, uint64_t offset, size_t length) {
  return offset <= dm.length && length <= dm.length - offset;
}

// Copies are of words, as on devices that have such memory (mlx5: EFAULT beyond the end, then EINVAL).
int check_copy(const DmState& dm, uint64_t offset, size_t length) {
  constexpr uint64_t kWord = 4;
  if (!contains(dm, offset, length)) return EFAULT;
  return offset % kWord == 0 && length % kWord == 0 ? 0 : EINVAL;
}

int copy_to(ibv_dm* dm, uint64_t offset, const void* host, size_t length) {
  const DmState& state = *from(dm).state;
  if (const int error = check_copy(state, offset, length)) return answer(error);
  if (length != 0) std::memcpy(state.address + offset, host, length);
  return 0;
}

int copy_from(void* host, ibv_dm* dm, uint64_t offset, size_t length) {
  const DmState& state = *from(dm).state;
  if (const int error = check_copy(state, offset, length)) return answer(error);
  if (length != 0) std::memcpy(host, state.address + offset, length);
  return 0;
}

bool charge(Device& device, uint64_t bytes) {
  uint64_t used = device.device_memory_used.load();
  do {
    if (bytes > kMaxDeviceMemory - used) return false;
  } while (!device.device_memory_used.compare_exchange_weak(used, used + bytes));
  return true;
}

// Aligned as asked: more than a page by mapping more than is used.
int map(DmState& dm, uint64_t alignment) {
  const size_t slack = alignment > page_size() ? alignment : 0;
  void* area = mmap(nullptr, dm.charged + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return ENOMEM;
  dm.mapping = Mapping(area, dm.charged + slack);
  const auto start = reinterpret_cast<uintptr_t>(area);
  dm.address = reinterpret_cast<uint8_t*>(slack == 0 ? start : (start + alignment - 1) & ~(alignment - 1));
  return 0;
}

std::unique_ptr<Dm> make_handle(ibv_context* context, uint32_t handle, std::shared_ptr<DmState> state) {
  auto dm = std::make_unique<Dm>();
  dm->context = context;
  dm->memcpy_to_dm = copy_to;
  dm->memcpy_from_dm = copy_from;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = handle;
  dm->state = std::move(state);
  return dm;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  if (refuses_orphan(context)) return fail(EIO);
  constexpr uint32_t kMaxLogAlignment = 26;  // that of all device memory
  if (attr->comp_mask != 0 || attr->length == 0 || attr->length > kMaxDeviceMemory) return fail(EINVAL);
  if (attr->log_align_req > kMaxLogAlignment) return fail(EINVAL);
  Device& device = device_of(context);
  const uint64_t charged = (attr->length + page_size() - 1) & ~(page_size() - 1);
  if (!charge(device, charged)) return fail(ENOMEM);
  std::unique_ptr<Dm> dm;
  const int error = without_exceptions([&] {
    auto state = std::make_shared<DmState>();
    state->length = attr->length;
    state->charged = charged;
    if (const int failure = map(*state, uint64_t{1} << attr->log_align_req)) return failure;
    dm = make_handle(context, next_handle(), state);
    from(context).memory->dms.add(dm->handle, std::move(state));
    return 0;
  });
  if (error == 0) return dm.release();
  device.device_memory_used -= charged;
  return fail(error);
}

// ENOENT: it has been freed through another handle (ibv_import_dm); what is left is to unimport this one.
int free_dm(ibv_dm* verbs) {
  Dm& dm = from(verbs);
  if (orphaned(dm.context)) return forget(dm);
  if (dm.state->regions != 0) return answer(EBUSY);
  MemoryHandles& handles = *from(dm.context).memory;
  if (handles.dms.remove(dm.handle)) {
    device_of(dm.context).device_memory_used -= dm.state->charged;
  } else if (handles.open_contexts != 0) {
    return answer(ENOENT);
  }
  delete &dm;
  return 0;
}

// Offsets into it are the addresses, so it has to be zero-based. A region of no bytes is one that nothing reaches.
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned int access) {
  MrRequest request;
  request.dm = from(dm).state;
  if (!(access & IBV_ACCESS_ZERO_BASED) || (access & ~kDmAccess)) return fail(EINVAL);
  if (const int error = check_access(access)) return fail(error);
  if (!contains(*request.dm, offset, length)) return fail(EINVAL);
  request.pd = pd;
  request.base = request.dm->address + offset;
  request.length = length;
  request.access = access;
  request.kind = MrKind::kDeviceMemory;
  return make_mr(std::move(request));
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

// The same memory under a second handle. There is one process, so it lies at the same address.
ibv_dm* ibv_import_dm(ibv_context* context, uint32_t dm_handle) {
  if (refuses_orphan(context)) return fail(EIO);
  std::shared_ptr<DmState> state = from(context).memory->dms.find(dm_handle);
  if (state == nullptr) return fail(ENOENT);
  std::unique_ptr<Dm> dm;
  const int error = without_exceptions([&] {
    dm = make_handle(context, dm_handle, std::move(state));
    return 0;
  });
  return error == 0 ? dm.release() : fail(error);
}

void ibv_unimport_dm(ibv_dm* dm) {
  delete &from(dm);
}

// Mappable memory is not a DMA buffer, which only the kernel can make.
int ibv_dm_export_dmabuf_fd(ibv_dm*) {
  return fail_minus_one(EOPNOTSUPP);
}

}  // extern "C"
