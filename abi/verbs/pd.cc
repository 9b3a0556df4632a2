// SPDX-License-Identifier: BSD-2-Clause
// Protection domains, and what extends them: thread domains, parent domains, and domains imported from another context
// of the same command descriptor. The engine knows them by number only.

#include <cerrno>
#include <memory>

#include "abi/verbs/command_file.h"
#include "abi/verbs/dispatch.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {
namespace {

// The part that all protection domains of an application's have in common. `make()` gives the object or null with the
// error in `error`.
template <class Make>
ibv_pd* create_pd(ibv_context* context, Make&& make) {
  if (refuses_orphan(context)) return fail(EIO);
  std::unique_ptr<Pd> pd;
  const int error = without_exceptions([&] { return make(pd); });
  if (error != 0) return fail(error);
  pd->context = context;
  ++from(context).users;
  return pd.release();
}

void leave_parent_domain(Pd& pd) {
  --pd.parent->users;
  if (pd.thread_domain != nullptr) --pd.thread_domain->users;
}

}  // namespace

// The application's promise to use the queues made on it (through a parent domain) from one thread at a time: they have
// no locks then.
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (refuses_orphan(context)) return fail(EIO);
  if (attr->comp_mask != 0) return fail(EINVAL);
  auto* td = new (std::nothrow) Td;
  if (td == nullptr) return fail(ENOMEM);
  td->context = context;
  ++from(context).users;
  return td;
}

int dealloc_td(ibv_td* verbs) {
  Td& td = from(verbs);
  if (orphaned(td.context)) return forget(td);
  if (td.users != 0) return answer(EBUSY);
  drop_user(from(td.context));
  delete &td;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr uint32_t kAllocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  constexpr uint32_t kKnown = kAllocators | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr->pd == nullptr || attr->pd->context != context || (attr->comp_mask & ~kKnown)) return fail(EINVAL);
  if (attr->td != nullptr && attr->td->context != context) return fail(EINVAL);
  const bool allocates = attr->comp_mask & kAllocators;
  if (allocates && (attr->alloc == nullptr || attr->free == nullptr)) return fail(EINVAL);
  return create_pd(context, [&](std::unique_ptr<Pd>& pd) {
    pd = std::make_unique<Pd>();
    pd->handle = attr->pd->handle;
    pd->parent = &from(attr->pd);
    if (allocates) {
      const bool has_context = attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
      pd->allocator = {attr->alloc, attr->free, pd.get(), has_context ? attr->pd_context : nullptr};
    }
    ++pd->parent->users;
    if (attr->td != nullptr) {
      pd->thread_domain = &from(attr->td);
      ++pd->thread_domain->users;
    }
    return 0;
  });
}

}  // namespace uroce::verbs

using namespace uroce::verbs;
using uroce::engine::ObjectKind;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return create_pd(context, [&](std::unique_ptr<Pd>& pd) {
    pd = std::make_unique<Pd>();
    if (!take_quota(context, ObjectKind::kPd)) return ENOMEM;
    pd->handle = next_handle();
    const int error = without_exceptions([&] {
      from(context).command_file->add(*pd);
      return 0;
    });
    if (error != 0) give_quota(context, ObjectKind::kPd);
    return error;
  });
}

int ibv_dealloc_pd(ibv_pd* verbs) {
  Pd& pd = from(verbs);
  if (orphaned(pd.context)) return forget(pd);
  if (pd.parent != nullptr) {
    if (pd.users.all() != 0) return answer(EBUSY);
    leave_parent_domain(pd);
  } else {
    if (const int error = from(pd.context).command_file->remove(pd)) return answer(error);
    give_quota(pd.context, ObjectKind::kPd);
  }
  drop_user(from(pd.context));
  delete &pd;
  return 0;
}

ibv_pd* ibv_import_pd(ibv_context* context, uint32_t pd_handle) {
  return create_pd(context, [&](std::unique_ptr<Pd>& pd) {
    pd = from(context).command_file->import_pd(pd_handle);
    return pd != nullptr ? 0 : ENOENT;
  });
}

// The protection domain stays, only this pointer to it goes; unless objects were made with it, which nobody can be
// told: then it is kept for them.
void ibv_unimport_pd(ibv_pd* verbs) {
  Pd& pd = from(verbs);
  if (orphaned(pd.context)) return;
  if (pd.parent != nullptr || pd.users.own() != 0) return;
  drop_user(from(pd.context));
  delete &pd;
}

}  // extern "C"
