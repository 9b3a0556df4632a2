// Asking about files: stat(), access(), statfs(), extended attributes (ls -l asks for them) and their variants. The
// structs are passed on, so their types do not matter.
#include <cstddef>
#include <sys/types.h>

#include "files/hook.h"
#include "files/redirect.h"

namespace uroce::files {

UROCE_PATH_HOOK_1(int, stat, void*)
UROCE_PATH_HOOK_1(int, stat64, void*)
UROCE_PATH_HOOK_1(int, lstat, void*)
UROCE_PATH_HOOK_1(int, lstat64, void*)
UROCE_AT_HOOK_2(int, fstatat, void*, int)
UROCE_AT_HOOK_2(int, fstatat64, void*, int)
UROCE_AT_HOOK_3(int, statx, int, unsigned, void*)

// Programs built with a glibc before 2.33 have the version of the struct in front.
#define UROCE_XSTAT_HOOK(name)                                         \
  UROCE_HOOK(int, name, int version, const char* path, void* status) { \
    static constinit Next<int(int, const char*, void*)> next(#name);   \
    return next(version, Redirect(path).path(), status);               \
  }
#define UROCE_FXSTATAT_HOOK(name)                                                                \
  UROCE_HOOK(int, name, int version, int directory, const char* path, void* status, int flags) { \
    static constinit Next<int(int, int, const char*, void*, int)> next(#name);                   \
    return next(version, directory, Redirect(directory, path).path(), status, flags);            \
  }
UROCE_XSTAT_HOOK(__xstat)
UROCE_XSTAT_HOOK(__xstat64)
UROCE_XSTAT_HOOK(__lxstat)
UROCE_XSTAT_HOOK(__lxstat64)
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
