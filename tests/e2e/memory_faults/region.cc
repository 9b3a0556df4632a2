// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/memory_faults/region.h"

#include <cerrno>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "tests/e2e/memory_faults/failure.h"

namespace uroce::memory_faults {

Way way_by_name(const std::string& name) {
  static const std::map<std::string, Way> kWays = {
      {"unmap", Way::kUnmap},       {"protect", Way::kProtect},       {"read-only", Way::kReadOnly},
      {"truncate", Way::kTruncate}, {"deregister", Way::kDeregister}, {"deregister-unmap", Way::kDeregisterAndUnmap},
  };
  const auto found = kWays.find(name);
  check(found != kWays.end(), "no such way to take memory away: " + name);
  return found->second;
}

Region::Region(ibv_pd* pd, size_t size) : size_(size) {
  file_ = memfd_create("memory_faults", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(size)) != 0) fail_call("memfd_create", errno);
  void* const map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (map == MAP_FAILED) fail_call("mmap", errno);
  data_ = static_cast<uint8_t*>(map);
  mapped_ = true;
  mr_ =
      ibv_reg_mr(pd, data_, size_,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  if (mr_ == nullptr) fail_call("ibv_reg_mr", errno);
  key_ = mr_->lkey;
  check(mr_->rkey == key_, "lkey and rkey differ; this program takes them for one");
}

Region::~Region() {
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (mapped_) munmap(data_, size_);
  close(file_);
}

void Region::take_away(Way way) {
  int failed = 0;
  switch (way) {
    case Way::kProtect:
      failed = mprotect(data_, size_, PROT_NONE);
      break;
    case Way::kReadOnly:
      failed = mprotect(data_, size_, PROT_READ);
      break;
    case Way::kTruncate:
      failed = ftruncate(file_, 0);
      break;
    case Way::kDeregister:
      deregister();
      break;
    case Way::kDeregisterAndUnmap:
      deregister();
      [[fallthrough]];
    case Way::kUnmap:
      mapped_ = false;
      failed = munmap(data_, size_);
      break;
  }
  if (failed != 0) fail_call("taking the memory away", errno);
}

void Region::deregister() {
  const int error = ibv_dereg_mr(std::exchange(mr_, nullptr));
  if (error != 0) fail_call("ibv_dereg_mr", error);
}

}  // namespace uroce::memory_faults
