// SPDX-License-Identifier: BSD-2-Clause
// Access to sysfs that libibverbs exports to its tools and to librdmacm.

#include <climits>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "base/unique_fd.h"

extern "C" {

const char* ibv_get_sysfs_path() {
  return "/sys";
}

// Reads `dir`/`file` into `buf` as a string without its final newline. The length, or -1 with errno set.
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  if (size == 0) return -1;
  char path[PATH_MAX];
  std::snprintf(path, sizeof(path), "%s/%s", dir, file);
  const uroce::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return -1;
  ssize_t length = ::read(fd.get(), buf, size - 1);
  if (length < 0) return -1;
  if (length > 0 && buf[length - 1] == '\n') --length;
  buf[length] = '\0';
  return static_cast<int>(length);
}

}  // extern "C"
