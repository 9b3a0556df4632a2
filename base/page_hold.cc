// SPDX-License-Identifier: BSD-2-Clause
#include "base/page_hold.h"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace uroce {
namespace {

constexpr size_t kByte = 1;  // of a page, which is mapped whole

}  // namespace

int hold_page(const void* address, UniqueFd& hold) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
  const UniqueFd reads(ends[0]);
  UniqueFd writes(ends[1]);
  fcntl(writes.get(), F_SETPIPE_SZ, 1);  // room for a page: a user may have so much in pipes
  const iovec byte{const_cast<void*>(address), kByte};
  if (vmsplice(writes.get(), &byte, 1, SPLICE_F_NONBLOCK) != 1) return errno;
  hold = std::move(writes);
  return 0;
}

int hold_first_page(int file, UniqueFd& hold) {
  void* const page = mmap(nullptr, kByte, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return errno;
  const int error = hold_page(page, hold);
  munmap(page, kByte);
  return error;
}

}  // namespace uroce
