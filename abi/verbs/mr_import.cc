// SPDX-License-Identifier: BSD-2-Clause
// ibv_import_mr: a second handle of a region of this context, or of one that shares its objects. Freeing the second
// leaves the region alone.

#include <cerrno>

#include "abi/verbs/memory_objects.h"
#include "abi/verbs/orphan.h"

using namespace uroce::verbs;

extern "C" {

ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t mr_handle) {
  if (refuses_orphan(pd->context)) return fail(EIO);
  std::shared_ptr<MrState> state = from(pd->context).memory->mrs.find(mr_handle);
  // The kernel knows no null regions.
  if (state == nullptr || state->request.kind == MrKind::kNull) return fail(ENOENT);
  std::unique_ptr<Mr> mr;
  const int error = without_exceptions([&] {
    mr = std::make_unique<Mr>();
    return 0;
  });
  if (error != 0) return fail(error);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = nullptr;  // the kernel does not say
  mr->length = state->request.length;
  mr->handle = mr_handle;
  mr->lkey = mr->rkey = state->key;
  mr->state = std::move(state);
  mr->imported = true;
  return mr.release();
}

void ibv_unimport_mr(ibv_mr* mr) {
  delete &from(mr);
}

}  // extern "C"
