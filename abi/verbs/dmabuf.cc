// SPDX-License-Identifier: BSD-2-Clause
// Regions on file descriptors: the buffer is mapped here for as long as the region exists. DMA buffers whose exporter
// lets processes map them, memfds, files.

#include <cerrno>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/verbs/memory_objects.h"

namespace uroce::verbs {
namespace {

constexpr uint32_t kDmabufAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC | uint32_t{IBV_ACCESS_OPTIONAL_RANGE};

// 0 or an errno value. DMA buffers have no size in stat, but tell where they end.
int size_of(int fd, uint64_t& size) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return errno;
  if (S_ISREG(status.st_mode)) {
    size = static_cast<uint64_t>(status.st_size);
    return 0;
  }
  const off_t end = lseek(fd, 0, SEEK_END);
  if (end <= 0) return EINVAL;
  size = static_cast<uint64_t>(end);
  return 0;
}

// Maps `length` bytes from `offset`, which is where a page begins.
int map(int fd, uint64_t offset, size_t length, uint32_t access, Mapping& mapping) {
  const int protection = PROT_READ | ((access & IBV_ACCESS_LOCAL_WRITE) ? PROT_WRITE : 0);
  void* address = mmap(nullptr, length, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return errno == ENODEV ? EOPNOTSUPP : errno;
  mapping = Mapping(address, length);
  return 0;
}

int map_buffer(uint64_t offset, int fd, MrRequest& request) {
  const uint64_t in_page = offset & (page_size() - 1);
  if (((offset ^ request.iova) & (page_size() - 1)) != 0) return EINVAL;
  if (request.access & ~kDmabufAccess) return EINVAL;
  if (const int error = check_access(request.access)) return error;
  uint64_t size = 0;
  if (const int error = size_of(fd, size)) return error;
  if (request.length == 0 || offset > size || request.length > size - offset) return EINVAL;
  if (const int error = map(fd, offset - in_page, request.length + in_page, request.access, request.mapping)) {
    return error;
  }
  request.base = request.mapping.data() + in_page;
  return 0;
}

}  // namespace

ibv_mr* register_dmabuf(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, uint32_t access) {
  MrRequest request;
  request.pd = pd;
  request.shown_address = reinterpret_cast<void*>(offset);  // as rdma-core says it
  request.length = length;
  request.iova = iova;
  request.access = access;
  request.kind = MrKind::kDmabuf;
  if (const int error = map_buffer(offset, fd, request)) return fail(error);
  return make_mr(std::move(request));
}

}  // namespace uroce::verbs
