// SPDX-License-Identifier: BSD-2-Clause
// Loading libraries: dlopen(). A program that asks for libibverbs by a path of its own, or whose DT_RPATH leads to one,
// gets the liburoce.so that is there already; by any other way the loader finds that by itself (cli/library.h).
#include <cstring>

#include "abi/preload/hooks/hook.h"

namespace uroce::files {
namespace {

// libibverbs.so, libibverbs.so.1, libibverbs.so.1.14.44.0, whatever the directory.
bool is_libibverbs(const char* file) {
  static constexpr char kName[] = "libibverbs.so", kMajor[] = ".1";
  const char* slash = std::strrchr(file, '/');
  const char* name = slash == nullptr ? file : slash + 1;
  if (std::strncmp(name, kName, sizeof(kName) - 1) != 0) return false;
  const char* version = name + sizeof(kName) - 1;
  if (*version == '\0') return true;
  if (std::strncmp(version, kMajor, sizeof(kMajor) - 1) != 0) return false;
  const char next = version[sizeof(kMajor) - 1];
  return next == '\0' || next == '.';
}

// The name by which the loader knows liburoce.so; nullptr without it.
const char* path_of_liburoce() {
  Dl_info info{};
  void* ours = dlsym(RTLD_DEFAULT, "uroce_port_counters");
  return ours != nullptr && dladdr(ours, &info) != 0 ? info.dli_fname : nullptr;
}

[[gnu::noinline]] const char* file_to_load(const char* file) {
  if (file == nullptr || !is_libibverbs(file)) return file;
  const char* ours = path_of_liburoce();
  return ours != nullptr ? ours : file;
}

}  // namespace

// glibc's dlopen() searches the DT_RUNPATH of whoever calls it, and knows the caller by the return address. So this
// must not be the caller: the compiler makes the last call a jump, for which this function has no objects with
// destructors.
UROCE_HOOK(void*, dlopen, const char* file, int mode) {
  static constinit Next<void*(const char*, int)> next("dlopen");
  return next(file_to_load(file), mode);
}

}  // namespace uroce::files
