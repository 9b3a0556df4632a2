// SPDX-License-Identifier: BSD-2-Clause
// Going through directories: opendir(), scandir(), ftw(), nftw(), glob() and their variants.
#include <cstdlib>
#include <cstring>
#include <ftw.h>
#include <glob.h>

#include "abi/preload/hooks/hook.h"
#include "abi/preload/sysfs_view/redirect.h"
#include "abi/preload/sysfs_view/tree_name.h"

namespace uroce::files {
namespace {

// What the program calls a path below the tree; the path itself when it is not.
const char* shown(const char* path) {
  return path + hidden_length(path);
}

// nftw() tells its function no more than path, status and position, so what it stands for waits here. A walk in a walk
// saves it.
template <class Function>
class Walk {
 public:
  explicit Walk(Function* function) : outer_(current_) { current_ = function; }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
  ~Walk() { current_ = outer_; }

  static Function* current() { return current_; }

 private:
  Function* outer_;
  [[gnu::tls_model("initial-exec")]] static thread_local Function* current_;
};
template <class Function>
thread_local Function* Walk<Function>::current_ = nullptr;

template <class Status>
int visit(const char* path, const Status* status, int type) {
  return Walk<int(const char*, const Status*, int)>::current()(shown(path), status, type);
}

template <class Status>
int visit_with_position(const char* path, const Status* status, int type, FTW* position) {
  FTW own = *position;
  own.base -= static_cast<int>(hidden_length(path));
  return Walk<int(const char*, const Status*, int, FTW*)>::current()(shown(path), status, type, &own);
}

}  // namespace

UROCE_PATH_HOOK_0(void*, opendir)
UROCE_PATH_HOOK_3(int, scandir, void*, void*, void*)
UROCE_PATH_HOOK_3(int, scandir64, void*, void*, void*)
UROCE_AT_HOOK_3(int, scandirat, void*, void*, void*)
UROCE_AT_HOOK_3(int, scandirat64, void*, void*, void*)

#define UROCE_FTW_HOOK(name, Status)                                                                           \
  UROCE_HOOK(int, name, const char* path, int (*function)(const char*, const Status*, int), int descriptors) { \
    static constinit Next<int(const char*, int (*)(const char*, const Status*, int), int)> next(#name);        \
    const Redirect redirect(path, DeviceNodes::kAsListed);                                                     \
    if (!redirect.is_in_view()) return next(redirect.path(), function, descriptors);                           \
    const Walk walk(function);                                                                                 \
    return next(redirect.path(), visit<Status>, descriptors);                                                  \
  }
#define UROCE_NFTW_HOOK(name, Status)                                                                              \
  UROCE_HOOK(int, name, const char* path, int (*function)(const char*, const Status*, int, FTW*), int descriptors, \
             int flags) {                                                                                          \
    static constinit Next<int(const char*, int (*)(const char*, const Status*, int, FTW*), int, int)> next(        \
        #name, "GLIBC_2.3.3");                                                                                     \
    const Redirect redirect(path, DeviceNodes::kAsListed);                                                         \
    if (!redirect.is_in_view()) return next(redirect.path(), function, descriptors, flags);                        \
    const Walk walk(function);                                                                                     \
    return next(redirect.path(), visit_with_position<Status>, descriptors, flags);                                 \
  }
UROCE_FTW_HOOK(ftw, struct stat)
UROCE_FTW_HOOK(ftw64, struct stat64)
UROCE_NFTW_HOOK(nftw, struct stat)
UROCE_NFTW_HOOK(nftw64, struct stat64)

// NOLINTBEGIN(bugprone-macro-parentheses): Glob is a type
#define UROCE_GLOB_HOOK(name, Glob)                                                                           \
  UROCE_HOOK(int, name, const char* pattern, int flags, int (*error)(const char*, int), Glob* found) {        \
    static constinit Next<int(const char*, int, int (*)(const char*, int), Glob*)> next(#name, "GLIBC_2.27"); \
    const Redirect redirect(pattern, DeviceNodes::kAsListed);                                                 \
    const int result = next(redirect.path(), flags, error, found);                                            \
    if (!redirect.is_in_view() || result != 0) return result;                                                 \
    for (char** path = found->gl_pathv + ((flags & GLOB_DOOFFS) != 0 ? found->gl_offs : 0); *path != nullptr; \
         ++path) {                                                                                            \
      std::memmove(*path, shown(*path), std::strlen(shown(*path)) + 1);                                       \
    }                                                                                                         \
    return result;                                                                                            \
  }
// NOLINTEND(bugprone-macro-parentheses)
UROCE_GLOB_HOOK(glob, glob_t)
UROCE_GLOB_HOOK(glob64, glob64_t)

}  // namespace uroce::files
