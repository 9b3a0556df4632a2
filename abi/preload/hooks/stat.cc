// SPDX-License-Identifier: BSD-2-Clause
// Asking about files: stat(), fstat(), access(), statfs(), extended attributes (ls -l asks for them) and their
// variants. Most structs are passed on, so their types do not matter.
#include <cstddef>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

#include "abi/preload/hooks/hook.h"
#include "abi/preload/sysfs_view/redirect.h"
#include "abi/preload/sysfs_view/view.h"

namespace uroce::files {

UROCE_PATH_HOOK_1(int, stat, void*)
UROCE_PATH_HOOK_1(int, stat64, void*)
UROCE_PATH_HOOK_1(int, lstat, void*)
UROCE_PATH_HOOK_1(int, lstat64, void*)
// The rdma_cm file is a socket behind its descriptor, and shows as the device that it stands for.
namespace {

template <class Status>
void show_rdma_cm(int result, Status& status) {
  if (result != 0 || !S_ISSOCK(status.st_mode)) return;
  const rdma_cm::Functions* const functions = known_rdma_cm.load(std::memory_order_relaxed);
  if (functions == nullptr || !functions->any() || !functions->is(status.st_dev, status.st_ino)) return;
  status.st_mode = S_IFCHR | 0666;
  status.st_rdev = makedev(rdma_cm::kDeviceMajor, rdma_cm::kDeviceMinor);
}

void show_rdma_cm(int result, struct statx& status) {
  struct stat old {};
  old.st_mode = status.stx_mode;
  old.st_dev = makedev(status.stx_dev_major, status.stx_dev_minor);
  old.st_ino = status.stx_ino;
  show_rdma_cm<struct stat>(result, old);
  if (result != 0 || !S_ISCHR(old.st_mode) || S_ISCHR(status.stx_mode)) return;
  status.stx_mode = static_cast<decltype(status.stx_mode)>(old.st_mode);
  status.stx_rdev_major = rdma_cm::kDeviceMajor;
  status.stx_rdev_minor = rdma_cm::kDeviceMinor;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot be in parentheses
#define UROCE_FSTAT_HOOK(name, Status)                    \
  UROCE_HOOK(int, name, int fd, Status* status) {         \
    static constinit Next<int(int, Status*)> next(#name); \
    const int result = next(fd, status);                  \
    show_rdma_cm(result, *status);                        \
    return result;                                        \
  }
#define UROCE_FSTATAT_HOOK(name, Status)                                                 \
  UROCE_HOOK(int, name, int directory, const char* path, Status* status, int flags) {    \
    static constinit Next<int(int, const char*, Status*, int)> next(#name);              \
    const int result = next(directory, Redirect(directory, path).path(), status, flags); \
    show_rdma_cm(result, *status);                                                       \
    return result;                                                                       \
  }
// NOLINTEND(bugprone-macro-parentheses)
UROCE_FSTAT_HOOK(fstat, struct stat)
UROCE_FSTAT_HOOK(fstat64, struct stat64)
UROCE_FSTATAT_HOOK(fstatat, struct stat)
UROCE_FSTATAT_HOOK(fstatat64, struct stat64)

UROCE_HOOK(int, statx, int directory, const char* path, int flags, unsigned mask, struct statx* status) {
  static constinit Next<int(int, const char*, int, unsigned, struct statx*)> next("statx");
  const int result = next(directory, Redirect(directory, path).path(), flags, mask, status);
  show_rdma_cm(result, *status);
  return result;
}

// Programs built with a glibc before 2.33 have the version of the struct in front.
#define UROCE_XSTAT_HOOK(name)                                         \
  UROCE_HOOK(int, name, int version, const char* path, void* status) { \
    static constinit Next<int(int, const char*, void*)> next(#name);   \
    return next(version, Redirect(path).path(), status);               \
  }
// NOLINTBEGIN(bugprone-macro-parentheses)
#define UROCE_FXSTAT_HOOK(name, Status)                        \
  UROCE_HOOK(int, name, int version, int fd, Status* status) { \
    static constinit Next<int(int, int, Status*)> next(#name); \
    const int result = next(version, fd, status);              \
    show_rdma_cm(result, *status);                             \
    return result;                                             \
  }
// NOLINTEND(bugprone-macro-parentheses)
#define UROCE_FXSTATAT_HOOK(name)                                                                \
  UROCE_HOOK(int, name, int version, int directory, const char* path, void* status, int flags) { \
    static constinit Next<int(int, int, const char*, void*, int)> next(#name);                   \
    return next(version, directory, Redirect(directory, path).path(), status, flags);            \
  }
UROCE_XSTAT_HOOK(__xstat)
UROCE_XSTAT_HOOK(__xstat64)
UROCE_XSTAT_HOOK(__lxstat)
UROCE_XSTAT_HOOK(__lxstat64)
UROCE_FXSTAT_HOOK(__fxstat, struct stat)
UROCE_FXSTAT_HOOK(__fxstat64, struct stat64)
UROCE_FXSTATAT_HOOK(__fxstatat)
UROCE_FXSTATAT_HOOK(__fxstatat64)

UROCE_PATH_HOOK_1(int, access, int)
UROCE_PATH_HOOK_1(int, euidaccess, int)
UROCE_PATH_HOOK_1(int, eaccess, int)
UROCE_AT_HOOK_2(int, faccessat, int, int)

UROCE_PATH_HOOK_1(int, statfs, void*)
UROCE_PATH_HOOK_1(int, statfs64, void*)
UROCE_PATH_HOOK_1(int, statvfs, void*)
UROCE_PATH_HOOK_1(int, statvfs64, void*)

UROCE_PATH_HOOK_3(ssize_t, getxattr, const char*, void*, size_t)
UROCE_PATH_HOOK_3(ssize_t, lgetxattr, const char*, void*, size_t)
UROCE_PATH_HOOK_2(ssize_t, listxattr, char*, size_t)
UROCE_PATH_HOOK_2(ssize_t, llistxattr, char*, size_t)

}  // namespace uroce::files
