// SPDX-License-Identifier: BSD-2-Clause
#include "base/page_hold.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace uroce {
namespace {

constexpr size_t kByte = 1;  // is mapped as a page

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

FirstPage::~FirstPage() {
  if (mapped_ != nullptr) munmap(mapped_, kByte);
}

FirstPage::FirstPage(FirstPage&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)), hold_(std::move(other.hold_)) {}

FirstPage& FirstPage::operator=(FirstPage&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(hold_, other.hold_);
  return *this;
}

int FirstPage::hold(int file) {
  FirstPage page;
  void* const mapped = mmap(nullptr, kByte, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return errno;
  page.mapped_ = mapped;
  if (const int error = hold_page(mapped, page.hold_); error != 0) return error;
  *this = std::move(page);
  return 0;
}

// What is cut out of the file is taken from who maps it, and to look at it here would bring it the next one.
bool FirstPage::is_in_place() const {
  constexpr uint64_t kPresent = uint64_t{1} << 63;
  const UniqueFd pages(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto page = reinterpret_cast<uintptr_t>(mapped_) / static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uint64_t entry = 0;
  return mapped_ != nullptr &&
         pread(pages.get(), &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) == sizeof entry &&
         (entry & kPresent) != 0;
}

}  // namespace uroce
