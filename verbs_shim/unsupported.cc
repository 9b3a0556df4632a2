// Public verbs that this endpoint does not offer. Applications ask for them and fall back, so each says EOPNOTSUPP.
// Also the fork functions, which have nothing to do here.

#include <cerrno>
#include <cstring>
#include <infiniband/verbs.h>

#include "verbs_shim/objects.h"

// Newer than the header this is built with: opaque here.
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;

using uroce::verbs::fail;
using uroce::verbs::fail_minus_one;

extern "C" {

// --- objects of another process --------------------------------------------------------------------------------------

ibv_context* ibv_import_device(int) {
  return fail(EOPNOTSUPP);
}
ibv_pd* ibv_import_pd(ibv_context*, uint32_t) {
  return fail(EOPNOTSUPP);
}
ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) {
  return fail(EOPNOTSUPP);
}
ibv_dm* ibv_import_dm(ibv_context*, uint32_t) {
  return fail(EOPNOTSUPP);
}
void ibv_unimport_pd(ibv_pd*) {}
void ibv_unimport_mr(ibv_mr*) {}
void ibv_unimport_dm(ibv_dm*) {}

// --- device memory and DMA handles (rdma-core 58 and 60) -------------------------------------------------------------

ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) {
  return fail(EOPNOTSUPP);
}
int ibv_dealloc_dmah(ibv_dmah*) {
  return EOPNOTSUPP;
}
ibv_mr* ibv_reg_mr_ex(ibv_pd*, ibv_mr_init_attr*) {
  return fail(EOPNOTSUPP);
}
int ibv_dm_export_dmabuf_fd(ibv_dm*) {
  return fail_minus_one(EOPNOTSUPP);
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
