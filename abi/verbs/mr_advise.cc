// SPDX-License-Identifier: BSD-2-Clause
// ibv_advise_mr: brings pages in before work requests touch them. The regions are named by local keys, so the engine is
// asked which they are.

#include <cerrno>
#include <sys/mman.h>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/memory_objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

using memory::MemoryRegion;

// ENOENT: no region of this key with on-demand paging; EINVAL: a window's key; EPERM: of another protection domain, or
// not writable though the advice says so.
int find_region(ibv_pd* pd, uint32_t lkey, bool to_write, MemoryRegion& region) {
  if (const int error = from(pd->context).engine->find_memory(lkey, region)) return error;
  if (!(region.access & IBV_ACCESS_ON_DEMAND)) return ENOENT;
  if (region.pd != pd->handle) return EPERM;
  constexpr uint32_t kWritable =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  return to_write && !(region.access & kWritable) ? EPERM : 0;
}

bool contains(const MemoryRegion& region, const ibv_sge& sge) {
  const uint64_t offset = sge.addr - region.iova;
  return sge.addr >= region.iova && offset <= region.length && sge.length <= region.length - offset;
}

// The region and that it has the range; EFAULT: not all of it.
int find_range(ibv_pd* pd, const ibv_sge& sge, bool to_write, MemoryRegion& region) {
  if (const int error = find_region(pd, sge.lkey, to_write, region)) return error;
  return contains(region, sge) ? 0 : EFAULT;
}

// Pages in now, and says so when it cannot. Kernels before 5.14 only take the hint.
int populate(void* start, size_t length, bool to_write) {
  const int advice = to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const bool known = madvise(start, 0, advice) == 0;
  if (!known) return madvise(start, length, MADV_WILLNEED) == 0 ? 0 : EFAULT;
  while (madvise(start, length, advice) != 0) {
    if (errno != EAGAIN && errno != EINTR) return EFAULT;
  }
  return 0;
}

int prefetch(const MemoryRegion& region, const ibv_sge& sge, bool to_write, bool now) {
  if (sge.length == 0) return 0;
  const uintptr_t address = reinterpret_cast<uintptr_t>(region.base) + (sge.addr - region.iova);
  const uintptr_t start = address & ~(page_size() - 1);
  const size_t length = address + sge.length - start;
  if (now) return populate(reinterpret_cast<void*>(start), length, to_write);
  madvise(reinterpret_cast<void*>(start), length, MADV_WILLNEED);  // best effort
  return 0;
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sg_list, uint32_t num_sge) {
  if (refuses_orphan(pd->context)) return answer(EIO);
  if (number_in(advice) > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return answer(EOPNOTSUPP);
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || num_sge == 0) return answer(EINVAL);
  const bool to_write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  MemoryRegion region;
  for (uint32_t i = 0; i < num_sge; ++i) {
    if (const int error = find_range(pd, sg_list[i], to_write, region)) return answer(error);
  }
  // Pages that are there need no advice, and others must not be brought in.
  if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return 0;
  for (uint32_t i = 0; i < num_sge; ++i) {
    if (const int error = find_range(pd, sg_list[i], to_write, region)) return answer(error);  // it may have changed
    if (const int error = prefetch(region, sg_list[i], to_write, flags & IBV_ADVISE_MR_FLAG_FLUSH))
      return answer(error);
  }
  return 0;
}

}  // namespace uroce::verbs
