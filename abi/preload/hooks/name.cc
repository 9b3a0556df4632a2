// SPDX-License-Identifier: BSD-2-Clause
// Where paths lead: readlink(), realpath(), chdir(), getcwd() and their variants. A path that a program gets back is
// one of /sys or /dev again, not that of the directory where the files really are.
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <sys/types.h>

#include "abi/preload/hooks/hook.h"
#include "abi/preload/sysfs_view/redirect.h"
#include "abi/preload/sysfs_view/tree_name.h"

namespace uroce::files {
namespace {

// Takes the directory of the tree off the front of `path`, in place. Null stays null.
char* shown(char* path) {
  if (path == nullptr) return nullptr;
  if (const size_t hidden = hidden_length(path)) std::memmove(path, path + hidden, std::strlen(path + hidden) + 1);
  return path;
}

// realpath() of a device node is the node. `resolved` as for realpath(), with room for PATH_MAX when not null.
char* own_name(const Redirect& redirect, char* resolved) {
  if (resolved == nullptr) return strdup(redirect.name().c_str());
  return static_cast<char*>(std::memcpy(resolved, redirect.name().c_str(), redirect.name().size() + 1));
}

}  // namespace

UROCE_PATH_HOOK_2(ssize_t, readlink, char*, size_t)
UROCE_PATH_HOOK_3(ssize_t, __readlink_chk, char*, size_t, size_t)
UROCE_AT_HOOK_2(ssize_t, readlinkat, char*, size_t)
UROCE_AT_HOOK_3(ssize_t, __readlinkat_chk, char*, size_t, size_t)

UROCE_HOOK(char*, realpath, const char* path, char* resolved) {
  static constinit Next<char*(const char*, char*)> next("realpath", "GLIBC_2.3");
  const Redirect redirect(path);
  if (redirect.is_device() && redirect.name().size() < PATH_MAX && std::strcmp(redirect.path(), "/dev/null") == 0) {
    return own_name(redirect, resolved);
  }
  char* const found = next(redirect.path(), resolved);
  return redirect.is_in_view() ? shown(found) : found;
}

UROCE_HOOK(char*, __realpath_chk, const char* path, char* resolved, size_t size) {
  static constinit Next<char*(const char*, char*, size_t)> next("__realpath_chk");
  const Redirect redirect(path);
  if (redirect.is_in_view() && size >= PATH_MAX) return uroce_hook_realpath(path, resolved);
  return next(redirect.path(), resolved, size);
}

UROCE_HOOK(char*, canonicalize_file_name, const char* path) {
  static constinit Next<char*(const char*)> next("canonicalize_file_name");
  const Redirect redirect(path);
  return redirect.is_in_view() ? uroce_hook_realpath(path, nullptr) : next(path);
}

UROCE_PATH_HOOK_0(int, chdir)

UROCE_HOOK(char*, getcwd, char* buffer, size_t size) {
  static constinit Next<char*(char*, size_t)> next("getcwd");
  return shown(next(buffer, size));
}

UROCE_HOOK(char*, __getcwd_chk, char* buffer, size_t size, size_t room) {
  static constinit Next<char*(char*, size_t, size_t)> next("__getcwd_chk");
  return shown(next(buffer, size, room));
}

UROCE_HOOK(char*, get_current_dir_name) {
  static constinit Next<char*()> next("get_current_dir_name");
  return shown(next());
}

}  // namespace uroce::files
