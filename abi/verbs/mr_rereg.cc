// SPDX-License-Identifier: BSD-2-Clause
// ibv_rereg_mr: another range, protection domain or access for a region under the same keys. For the data path it is
// one step; when it fails, the old region is as it was.

#include <cerrno>
#include <mutex>

#include "abi/verbs/memory_objects.h"
#include "abi/verbs/newer_verbs.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

struct Change {
  uint32_t flags;  // enum ibv_rereg_mr_flags
  ibv_pd* pd;
  void* address;
  size_t length;
  uint32_t access;
};

// What libibverbs refuses before it asks the kernel.
bool is_malformed(const Mr& mr, const Change& change) {
  if (mr.imported || mr.state->request.kind != MrKind::kPlain) return true;
  if (change.flags & ~uint32_t{IBV_REREG_MR_FLAGS_SUPPORTED}) return true;
  const bool translation = change.flags & IBV_REREG_MR_CHANGE_TRANSLATION;
  if (translation && (change.length == 0 || change.address == nullptr)) return true;
  return change.access != 0 && !(change.flags & IBV_REREG_MR_CHANGE_ACCESS);
}

void change_translation(const Change& change, MrRequest& request) {
  request.shown_address = change.address;
  request.base = static_cast<uint8_t*>(change.address);
  request.length = change.length;
  request.iova = reinterpret_cast<uintptr_t>(change.address);
}

// What the region becomes. The part of MrRequest that plain regions have.
int apply(const Change& change, MrRequest& request) {
  const uint32_t before = request.access;
  if (change.flags == 0) return EINVAL;
  if (change.flags & IBV_REREG_MR_CHANGE_PD) {
    if (change.pd == nullptr || from(change.pd->context).memory != from(request.pd->context).memory) return EINVAL;
    request.pd = change.pd;
  }
  if (change.flags & IBV_REREG_MR_CHANGE_ACCESS) {
    if (const int error = check_access(change.access)) return error;
    request.access = change.access;
  }
  const bool translation = change.flags & IBV_REREG_MR_CHANGE_TRANSLATION;
  const uint32_t toggled = before ^ request.access;
  if (translation) {
    change_translation(change, request);
  } else if (toggled & IBV_ACCESS_ON_DEMAND) {
    return EOPNOTSUPP;  // pinned memory becomes pageable, or the reverse, only with its range
  } else if (toggled & IBV_ACCESS_ZERO_BASED) {
    request.iova = reinterpret_cast<uintptr_t>(request.base);
  }
  if (request.access & IBV_ACCESS_ZERO_BASED) request.iova = 0;
  return translation ? check_range(request) : 0;
}

int reregister(Mr& mr, const Change& change) {
  if (refuses_orphan(mr.context)) return EIO;
  static ForkProofLock one_at_a_time;  // two threads that change one region leave it as one of them said
  std::lock_guard guard(one_at_a_time);
  MrState& state = *mr.state;
  if (from(mr.context).memory->mrs.find(mr.handle) == nullptr) return ENOENT;
  MrRequest& old = state.request;
  MrRequest next;
  next.pd = old.pd;
  next.shown_address = old.shown_address;
  next.base = old.base;
  next.length = old.length;
  next.iova = old.iova;
  next.access = old.access;
  if (const int error = apply(change, next)) return error;
  if (const int error = state.engine->reregister_memory(state.key, region_of(next))) return error;
  ++from(next.pd).users;
  --from(old.pd).users;
  mr.pd = next.pd;
  mr.context = next.pd->context;
  mr.addr = next.shown_address;
  mr.length = next.length;
  old = std::move(next);
  return 0;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" int ibv_rereg_mr(ibv_mr* verbs, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  Mr& mr = from(verbs);
  const Change change{static_cast<uint32_t>(flags), pd, addr, length, static_cast<uint32_t>(access)};
  if (is_malformed(mr, change)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  if (const int error = without_exceptions([&] { return reregister(mr, change); })) {
    errno = error;
    return IBV_REREG_MR_ERR_CMD;
  }
  return 0;
}
