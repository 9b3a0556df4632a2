// SPDX-License-Identifier: BSD-2-Clause
// Opening files: open(), openat(), creat(), fopen(), freopen() and their variants.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/types.h>

#include "abi/preload/hooks/hook.h"
#include "abi/preload/sysfs_view/redirect.h"

namespace uroce::files {
namespace {

bool has_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

// The one file that is not a real one: liburoce.so gives a descriptor of it (hooks/rdma_cm.cc).
bool is_rdma_cm(const Redirect& redirect) {
  return redirect.is_in_view() && redirect.name() == "/dev/infiniband/rdma_cm" && rdma_cm_functions() != nullptr;
}

int open_rdma_cm(int flags) {
  const int fd = rdma_cm_functions()->open(flags);
  if (fd >= 0) return fd;
  errno = -fd;
  return -1;
}

bool refused(const Redirect& redirect, int flags) {
  return redirect.refuses((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0, has_mode(flags));
}

bool refused(const Redirect& redirect, const char* mode) {
  return mode != nullptr && redirect.refuses(std::strpbrk(mode, "wa+") != nullptr, std::strpbrk(mode, "wa") != nullptr);
}

}  // namespace

// The mode is there only when a file may be made.
#define UROCE_OPEN_HOOK(name)                                                  \
  UROCE_HOOK(int, name, const char* path, int flags, ...) {                    \
    static constinit Next<int(const char*, int, ...)> next(#name);             \
    mode_t mode = 0;                                                           \
    if (has_mode(flags)) {                                                     \
      va_list arguments;                                                       \
      va_start(arguments, flags);                                              \
      mode = va_arg(arguments, mode_t);                                        \
      va_end(arguments);                                                       \
    }                                                                          \
    const Redirect redirect(path);                                             \
    if (is_rdma_cm(redirect)) return open_rdma_cm(flags);                      \
    return refused(redirect, flags) ? -1 : next(redirect.path(), flags, mode); \
  }
#define UROCE_OPENAT_HOOK(name)                                                           \
  UROCE_HOOK(int, name, int directory, const char* path, int flags, ...) {                \
    static constinit Next<int(int, const char*, int, ...)> next(#name);                   \
    mode_t mode = 0;                                                                      \
    if (has_mode(flags)) {                                                                \
      va_list arguments;                                                                  \
      va_start(arguments, flags);                                                         \
      mode = va_arg(arguments, mode_t);                                                   \
      va_end(arguments);                                                                  \
    }                                                                                     \
    const Redirect redirect(directory, path);                                             \
    if (is_rdma_cm(redirect)) return open_rdma_cm(flags);                                 \
    return refused(redirect, flags) ? -1 : next(directory, redirect.path(), flags, mode); \
  }
// Of programs built with _FORTIFY_SOURCE: without a mode.
#define UROCE_OPEN_2_HOOK(name)                                          \
  UROCE_HOOK(int, name, const char* path, int flags) {                   \
    static constinit Next<int(const char*, int)> next(#name);            \
    const Redirect redirect(path);                                       \
    if (is_rdma_cm(redirect)) return open_rdma_cm(flags);                \
    return refused(redirect, flags) ? -1 : next(redirect.path(), flags); \
  }
#define UROCE_OPENAT_2_HOOK(name)                                                   \
  UROCE_HOOK(int, name, int directory, const char* path, int flags) {               \
    static constinit Next<int(int, const char*, int)> next(#name);                  \
    const Redirect redirect(directory, path);                                       \
    if (is_rdma_cm(redirect)) return open_rdma_cm(flags);                           \
    return refused(redirect, flags) ? -1 : next(directory, redirect.path(), flags); \
  }
#define UROCE_CREAT_HOOK(name)                                              \
  UROCE_HOOK(int, name, const char* path, mode_t mode) {                    \
    static constinit Next<int(const char*, mode_t)> next(#name);            \
    const Redirect redirect(path);                                          \
    return redirect.refuses(true, true) ? -1 : next(redirect.path(), mode); \
  }
#define UROCE_FOPEN_HOOK(name)                                              \
  UROCE_HOOK(FILE*, name, const char* path, const char* mode) {             \
    static constinit Next<FILE*(const char*, const char*)> next(#name);     \
    const Redirect redirect(path);                                          \
    return refused(redirect, mode) ? nullptr : next(redirect.path(), mode); \
  }
// Closes the stream, whatever comes of it.
#define UROCE_FREOPEN_HOOK(name)                                               \
  UROCE_HOOK(FILE*, name, const char* path, const char* mode, FILE* stream) {  \
    static constinit Next<FILE*(const char*, const char*, FILE*)> next(#name); \
    const Redirect redirect(path);                                             \
    if (!refused(redirect, mode)) return next(redirect.path(), mode, stream);  \
    std::fclose(stream);                                                       \
    errno = EACCES;                                                            \
    return nullptr;                                                            \
  }

UROCE_OPEN_HOOK(open)
UROCE_OPEN_HOOK(open64)
UROCE_OPEN_HOOK(__open)
UROCE_OPEN_HOOK(__open64)
UROCE_OPENAT_HOOK(openat)
UROCE_OPENAT_HOOK(openat64)
UROCE_OPEN_2_HOOK(__open_2)
UROCE_OPEN_2_HOOK(__open64_2)
UROCE_OPENAT_2_HOOK(__openat_2)
UROCE_OPENAT_2_HOOK(__openat64_2)
UROCE_CREAT_HOOK(creat)
UROCE_CREAT_HOOK(creat64)
UROCE_FOPEN_HOOK(fopen)
UROCE_FOPEN_HOOK(fopen64)
UROCE_FREOPEN_HOOK(freopen)
UROCE_FREOPEN_HOOK(freopen64)

}  // namespace uroce::files
