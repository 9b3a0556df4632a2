// Verbs of rdma-core releases newer than the headers this is built with, at IBVERBS_1.17 and 1.18: buffers that the
// provider allocates, and completion counters. Their structs are opaque to applications, or here.

#include <cerrno>
#include <cstdint>
#include <memory>
#include <sys/mman.h>

#include "verbs_shim/dispatch.h"
#include "verbs_shim/objects.h"

// A buffer that suits the device; ordinary memory suits this one.
struct ibv_buf {
  ibv_pd* pd;
  void* address;
  size_t size;
};
struct ibv_comp_cntr;
struct ibv_comp_cntr_init_attr;
struct ibv_comp_cntr_caps;
struct ibv_qp_attach_comp_cntr_attr;

using uroce::verbs::fail;
using uroce::verbs::fail_minus_one;

extern "C" {

// --- buffers ---------------------------------------------------------------------------------------------------------

void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) {
  if (size == 0) return fail(EINVAL);
  std::unique_ptr<ibv_buf> buffer(new (std::nothrow) ibv_buf{pd, nullptr, size});
  if (buffer == nullptr) return fail(ENOMEM);
  buffer->address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer->address == MAP_FAILED) return fail(ENOMEM);
  *buf = buffer.release();
  return (*buf)->address;
}

void ibv_free_buf(ibv_buf* buf) {
  if (buf == nullptr) return;
  munmap(buf->address, buf->size);
  delete buf;
}

// EINVAL: another protection domain than the buffer's, or not within it.
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, size_t length, int access) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(addr) - reinterpret_cast<uintptr_t>(buf->address);
  if (pd != buf->pd || offset > buf->size || length > buf->size - offset) return fail(EINVAL);
  return ibv_reg_mr(pd, addr, length, access);
}

// Memory of the process has none.
int ibv_export_buf_dmabuf_fd(ibv_buf*) {
  return fail_minus_one(EOPNOTSUPP);
}

// --- completion counters: not here -----------------------------------------------------------------------------------

int ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*) {
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

}  // extern "C"
