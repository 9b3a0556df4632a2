// Memory regions. Registration checks what hardware would: the range exists and the access rights make sense. Nothing
// is pinned: work that meets memory which the application has unmapped ends with an error
// (engine/memory/memory_access.h).

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_shim/dispatch.h"
#include "verbs_shim/objects.h"

namespace uroce::verbs {
namespace {

constexpr unsigned int kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// Hints that change nothing here: huge pages, and the range of optional flags (relaxed ordering).
constexpr unsigned int kHints = unsigned{IBV_ACCESS_HUGETLB} | IBV_ACCESS_OPTIONAL_RANGE;

// Whether every page of the range is mapped. The caller has checked that it does not wrap.
bool is_mapped(uintptr_t address, size_t length) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char residency[4096];  // one byte a page; not looked at, only ENOMEM is
  const uintptr_t end = address + length;
  for (uintptr_t at = address & ~(page - 1); at < end; at += sizeof(residency) * page) {
    const size_t chunk = std::min(end - at, sizeof(residency) * page);
    if (mincore(reinterpret_cast<void*>(at), chunk, residency) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

ibv_mr* register_region(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned int access) {
  if (access & ~(kRights | kHints)) return fail(EOPNOTSUPP);
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (length == 0 || start + length < start) return fail(EINVAL);
  if (!is_mapped(start, length)) return fail(EFAULT);

  auto* mr = new (std::nothrow) ibv_mr{pd->context, pd, address, length, next_handle(), 0, 0};
  if (mr == nullptr) return fail(ENOMEM);
  const memory::MemoryRegion region{static_cast<uint8_t*>(address), iova, length, access & kRights, pd->handle, 0};
  Context& context = from(pd->context);
  const int error = without_exceptions([&] {
    context.mrs.add(mr);
    return context.engine->register_memory(region, mr->lkey);
  });
  if (error != 0) {
    context.mrs.remove(mr);
    delete mr;
    return fail(error);
  }
  mr->rkey = mr->lkey;
  ++from(pd).users;
  return mr;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_region(pd, addr, length, reinterpret_cast<uintptr_t>(addr), static_cast<unsigned int>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_region(pd, addr, length, iova, static_cast<unsigned int>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  return register_region(pd, addr, length, iova, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
  Context& context = from(mr->context);
  if (context.mrs.remove(mr)) context.engine->deregister_memory(mr->lkey);  // else the device has been closed
  --from(mr->pd).users;
  delete mr;
  return 0;
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  return fail(EOPNOTSUPP);
}

// The old region stays valid: IBV_REREG_MR_ERR_INPUT.
int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;
}

}  // extern "C"
