// SPDX-License-Identifier: BSD-2-Clause
// What liburoce.so does for liburoce_files.so, which has the hooks through which a program meets the rdma_cm file.
// Found by name: the two libraries are not linked with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace uroce::rdma_cm {

// Errors are errno values below 0; errno itself stays as it is. Nothing is thrown, but a thread may be cancelled in
// write().
struct Functions {
  // A descriptor of a new rdma_cm file. `flags` as of open().
  int (*open)(int flags);
  // There may be such a file in this process: else nobody needs to ask anything. One load.
  bool (*any)();
  // The socket of this st_dev and st_ino is such a file.
  bool (*is)(uint64_t device, uint64_t inode);
  // False: it was nothing of ours, and is to be written by the kernel. Else `result` is that of write().
  bool (*write)(int fd, const void* data, size_t size, ssize_t* result);
  // Before close(): what it is, 0 for all else. After it, for what is not 0: ids of a file that nobody has any more
  // end.
  uint64_t (*closing)(int fd);
  void (*closed)(uint64_t what);
};

inline constexpr char kFunctionsSymbol[] = "uroce_rdma_cm";
using GetFunctions = const Functions*();

// Of the file, as fstat() shows it: a misc device.
inline constexpr unsigned kDeviceMajor = 10, kDeviceMinor = 122;

}  // namespace uroce::rdma_cm
