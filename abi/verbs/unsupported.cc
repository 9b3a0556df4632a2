// SPDX-License-Identifier: BSD-2-Clause
// Public verbs that this endpoint does not offer. Applications ask for them and fall back, so each says EOPNOTSUPP.
// Also the fork functions, which have nothing to do here.

#include <cerrno>
#include <infiniband/verbs.h>

#include "abi/verbs/newer_verbs.h"
#include "abi/verbs/objects.h"

using uroce::verbs::answer;
using uroce::verbs::fail;

extern "C" {

// --- DMA handles (rdma-core 59) -------------------------------------------------------------

ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) {
  return fail(EOPNOTSUPP);
}
int ibv_dealloc_dmah(ibv_dmah*) {
  return answer(EOPNOTSUPP);
}

// --- completion counters, memory of buffers as DMA buffers (rdma-core 65) --------------------------------------------

int _ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*, size_t) {
  return EOPNOTSUPP;
}
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context*, ibv_comp_cntr_init_attr*) {
  return fail(EOPNOTSUPP);
}
int ibv_destroy_comp_cntr(ibv_comp_cntr*) {
  return EOPNOTSUPP;
}
int ibv_set_comp_cntr(ibv_comp_cntr*, uint64_t) {
  return EOPNOTSUPP;
}
int ibv_set_err_comp_cntr(ibv_comp_cntr*, uint64_t) {
  return EOPNOTSUPP;
}
int ibv_inc_comp_cntr(ibv_comp_cntr*, uint64_t) {
  return EOPNOTSUPP;
}
int ibv_inc_err_comp_cntr(ibv_comp_cntr*, uint64_t) {
  return EOPNOTSUPP;
}
int ibv_read_comp_cntr(ibv_comp_cntr*, uint64_t*) {
  return EOPNOTSUPP;
}
int ibv_read_err_comp_cntr(ibv_comp_cntr*, uint64_t*) {
  return EOPNOTSUPP;
}
int ibv_qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*) {
  return EOPNOTSUPP;
}

int ibv_export_buf_dmabuf_fd(ibv_buf*) {
  errno = EOPNOTSUPP;
  return -1;
}

// --- enhanced connection establishment -------------------------------------------------------------------------------

// Two endpoints of one vendor agree by ECE on extensions of theirs. There are none here: what a peer offers, of
// whatever vendor, is taken note of and nothing of it is switched on, and nothing is offered.
int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
  return answer(ece->comp_mask == 0 ? 0 : EINVAL);
}

int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  *ece = {};
  return 0;
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
