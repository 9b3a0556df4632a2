// SPDX-License-Identifier: BSD-2-Clause
// Registered memory that the application takes away. Used by trial.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <string>

namespace uroce::memory_faults {

enum class Way {
  kUnmap,       // munmap
  kProtect,     // mprotect, no access
  kReadOnly,    // mprotect, reading is still allowed
  kTruncate,    // ftruncate of the file behind it: SIGBUS instead of SIGSEGV
  kDeregister,  // ibv_dereg_mr; the memory stays
  kDeregisterAndUnmap,
};
Way way_by_name(const std::string& name);

class Region {
 public:
  Region(ibv_pd* pd, size_t size);  // a file mapping, zeroed, registered with all rights
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  void take_away(Way way);

  uint8_t* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  size_t size() const { return size_; }
  uint32_t key() const { return key_; }
  ibv_sge sge(size_t offset, size_t length) const { return {address() + offset, static_cast<uint32_t>(length), key_}; }

 private:
  void deregister();

  const size_t size_;
  int file_ = -1;
  uint8_t* data_ = nullptr;
  bool mapped_ = false;
  ibv_mr* mr_ = nullptr;  // null: deregistered
  uint32_t key_ = 0;
};

}  // namespace uroce::memory_faults
