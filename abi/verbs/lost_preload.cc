// SPDX-License-Identifier: BSD-2-Clause
// Where something between `uroce run` and the program has set LD_PRELOAD anew, as wrappers do that preload an
// allocator, this library is still found, by LD_LIBRARY_PATH, and liburoce_files.so is not: programs over rdma_cm fail
// without a hint. So they are told when they start.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Whether `list` has each of `libraries`, with colons between, in whatever order and with whatever between.
bool names_all(const char* list, const char* libraries) {
  for (const char* one = libraries; *one != '\0';) {
    const size_t size = std::strcspn(one, ":");
    if (memmem(list, std::strlen(list), one, size) == nullptr) return false;
    one += size + (one[size] == ':');
  }
  return true;
}

[[gnu::constructor]] void tell_of_lost_preload() {
  const char* const ours = secure_getenv("UROCE_PRELOAD");  // what `uroce run` has put into LD_PRELOAD
  const char* const now = secure_getenv("LD_PRELOAD");
  const char* const quiet = secure_getenv("UROCE_QUIET");
  if (ours == nullptr || *ours == '\0' || (quiet != nullptr && std::strcmp(quiet, "0") != 0)) return;
  if (now != nullptr && names_all(now, ours)) return;
  std::fprintf(stderr,
               "uroce: LD_PRELOAD has been set anew behind uroce run (now '%s'), so this program has no rdma_cm and no "
               "files under /sys/class/infiniband; let it keep what was there (LD_PRELOAD=LIBRARY:$LD_PRELOAD), or set "
               "it in front of uroce run\n",
               now == nullptr ? "" : now);
}

}  // namespace
