// Protection domains. The engine knows them by number only.

#include <cerrno>
#include <new>

#include "verbs_shim/objects.h"

using namespace uroce::verbs;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* pd = new (std::nothrow) Pd;
  if (pd == nullptr) return fail(ENOMEM);
  pd->context = context;
  pd->handle = next_handle();
  ++from(context).users;
  return pd;
}

int ibv_dealloc_pd(ibv_pd* verbs) {
  Pd& pd = from(verbs);
  if (pd.users != 0) return EBUSY;
  drop_user(from(pd.context));
  delete &pd;
  return 0;
}

}  // extern "C"
