// Public verbs that this endpoint does not offer. Applications ask for them and fall back, so each says EOPNOTSUPP.
// Also the fork functions, which have nothing to do here.

#include <cerrno>
#include <cstring>
#include <infiniband/verbs.h>

#include "verbs_shim/newer_verbs.h"
#include "verbs_shim/objects.h"

using uroce::verbs::fail;

extern "C" {

// --- objects of another process --------------------------------------------------------------------------------------

ibv_context* ibv_import_device(int) {
  return fail(EOPNOTSUPP);
}
ibv_pd* ibv_import_pd(ibv_context*, uint32_t) {
  return fail(EOPNOTSUPP);
}
void ibv_unimport_pd(ibv_pd*) {}

// --- DMA handles (rdma-core 59) -------------------------------------------------------------

ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) {
  return fail(EOPNOTSUPP);
}
int ibv_dealloc_dmah(ibv_dmah*) {
  return EOPNOTSUPP;
}

// --- enhanced connection establishment -------------------------------------------------------------------------------

// Vendor 0 with no options is what a peer without ECE announces; librdmacm hands it on.
int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
  return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}

int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  std::memset(ece, 0, sizeof(*ece));
  return EOPNOTSUPP;
}

// --- fork ------------------------------------------------------------------------------------------------------------

// Memory is not pinned, so copy-on-write does not part the application from its registered pages.
int ibv_fork_init() {
  return 0;
}
ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}
int ibv_dontfork_range(void*, size_t) {
  return 0;
}
int ibv_dofork_range(void*, size_t) {
  return 0;
}

}  // extern "C"
