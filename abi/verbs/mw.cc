// SPDX-License-Identifier: BSD-2-Clause
// Memory windows. The engine binds and invalidates them in the order of work requests; here they are made, and work
// requests that name them are checked.

#include <cerrno>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/memory_objects.h"
#include "abi/verbs/newer_verbs.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

// Rights that a window can give; local write and ordering hints are often passed along and mean nothing.
constexpr uint32_t kKnownMwAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                    kAccessFlushGlobal | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
                                    uint32_t{IBV_ACCESS_OPTIONAL_RANGE};

constexpr uint32_t kConsumerMask = 0xff;  // of an R_Key; ibv_inc_rkey()

// As ConnectX: windows are for registered memory only.
int check_region(const ibv_mw& mw, ibv_mr& mr) {
  const Mr& region = from(&mr);
  if (region.imported || region.state->request.kind != MrKind::kPlain) return EOPNOTSUPP;
  if (mr.pd->handle != mw.pd->handle) return EPERM;
  const bool zero_based = region.state->request.access & IBV_ACCESS_ZERO_BASED;
  return mw.type == IBV_MW_TYPE_1 && zero_based ? EINVAL : 0;
}

}  // namespace

int check_bind(const ibv_mw* mw, const ibv_mw_bind_info& info) {
  if (mw == nullptr) return EINVAL;
  if (info.mw_access_flags & ~kKnownMwAccess) return EINVAL;
  const bool type1 = mw->type == IBV_MW_TYPE_1;
  if (type1 && (info.mw_access_flags & IBV_ACCESS_ZERO_BASED)) return EINVAL;
  if (info.mr != nullptr) return check_region(*mw, *info.mr);
  return type1 && info.addr == 0 && info.length == 0 ? 0 : EINVAL;  // unbinds
}

uint32_t key_after_bind(const ibv_mw& mw, uint32_t rkey) {
  return (mw.rkey & ~kConsumerMask) | (rkey & kConsumerMask);
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (refuses_orphan(pd->context)) return fail(EIO);
  const uint32_t number = number_in(type);
  if (number != IBV_MW_TYPE_1 && number != IBV_MW_TYPE_2) return fail(EINVAL);
  Context& context = from(pd->context);
  std::unique_ptr<Mw> mw;
  const int error = without_exceptions([&] {
    mw = std::make_unique<Mw>();
    mw->engine = context.engine.get();
    context.memory->mws.add(mw.get());
    const int result = without_exceptions(
        [&] { return mw->engine->allocate_window(static_cast<memory::WindowType>(number), pd->handle, mw->key); });
    if (result != 0) context.memory->mws.remove(mw.get());
    return result;
  });
  if (error != 0) return fail(error);
  ++from(pd).users;
  mw->context = pd->context;
  mw->pd = pd;
  mw->rkey = mw->key;
  mw->handle = next_handle();
  mw->type = type;
  return mw.release();
}

int dealloc_mw(ibv_mw* verbs) {
  Mw& mw = from(verbs);
  if (orphaned(mw.context)) return forget(mw);
  if (from(mw.context).memory->mws.remove(&mw)) mw.engine->deallocate_window(mw.key);  // else the device was closed
  --from(mw.pd).users;
  delete &mw;
  return 0;
}

// Type 1 windows only (verbs.h sees to that): the new key is known at once, and holds from when the work request is
// executed.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);  // checks it, and gives the window its new key
}

}  // namespace uroce::verbs
