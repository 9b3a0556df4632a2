// SPDX-License-Identifier: BSD-2-Clause
// The rdma_cm file in use: commands are written to it, and it may be closed. Every write() and close() of the program
// passes here, so what is not ours costs a load or two as long as no such file is open, and then a look at the length
// and the first bytes, or an fstat().
//
// The hooks have no objects with destructors around the call of glibc's function: a thread may be cancelled in it.
#include <cerrno>
#include <cstddef>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "abi/preload/hooks/hook.h"
#include "abi/preload/sysfs_view/view.h"

namespace uroce::files {
namespace {

// Null as long as there is no rdma_cm file.
inline const rdma_cm::Functions* in_use() {
  const rdma_cm::Functions* const functions = known_rdma_cm.load(std::memory_order_relaxed);
  return functions != nullptr && functions->any() ? functions : nullptr;
}

}  // namespace

UROCE_HOOK(ssize_t, write, int fd, const void* data, size_t size) {
  static constinit Next<ssize_t(int, const void*, size_t)> next("write");
  const rdma_cm::Functions* const functions = in_use();
  ssize_t result = 0;
  if (functions == nullptr || !functions->write(fd, data, size, &result)) return next(fd, data, size);
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

UROCE_HOOK(int, close, int fd) {
  static constinit Next<int(int)> next("close");
  const rdma_cm::Functions* const functions = in_use();
  const uint64_t what = functions == nullptr ? 0 : functions->closing(fd);
  const int result = next(fd);
  if (what != 0) functions->closed(what);
  return result;
}

// The kernel loads its RDMA modules when anybody asks by netlink, and librdmacm would take its rdma_cm file for ours.
UROCE_HOOK(int, socket, int domain, int type, int protocol) {
  static constinit Next<int(int, int, int)> next("socket");
  if (domain != AF_NETLINK || protocol != NETLINK_RDMA || rdma_cm_functions() == nullptr) {
    return next(domain, type, protocol);
  }
  errno = EPROTONOSUPPORT;
  return -1;
}

}  // namespace uroce::files
