// SPDX-License-Identifier: BSD-2-Clause
// Buffers that the provider allocates (rdma-core 64, IBVERBS_1.17): newer than the headers that this is built with.
// Their struct is opaque to applications.

#include "abi/verbs/newer_verbs.h"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <sys/mman.h>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/objects.h"

// A buffer that suits the device; ordinary memory suits this one.
struct ibv_buf {
  ibv_pd* pd;
  void* address;
  size_t size;
};

using uroce::verbs::fail;

bool uroce::verbs::is_part_of(const ibv_buf& buf, const ibv_pd* pd, const void* address, size_t length) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(buf.address);
  return pd == buf.pd && offset <= buf.size && length <= buf.size - offset;
}

extern "C" {

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
  return uroce::verbs::is_part_of(*buf, pd, addr, length) ? ibv_reg_mr(pd, addr, length, access) : fail(EINVAL);
}

}  // extern "C"
