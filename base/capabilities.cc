// SPDX-License-Identifier: BSD-2-Clause
#include "base/capabilities.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <linux/capability.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef CAP_BPF
#define CAP_BPF 39  // kernel 5.8
#endif

namespace uroce {
namespace {

constexpr std::array kCapabilities = {CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK};

std::atomic<bool> keep{false};

constexpr uint64_t bit(int capability) {
  return uint64_t{1} << capability;
}

constexpr uint64_t all_bits() {
  uint64_t bits = 0;
  for (const int capability : kCapabilities) bits |= bit(capability);
  return bits;
}

bool maps_need_rights() {
  utsname name{};
  return uname(&name) != 0 || std::strtol(name.release, nullptr, 10) < 6;
}

// Those that are ambient capabilities of the calling thread.
uint64_t ambient_bits() {
  uint64_t bits = 0;
  for (const int capability : kCapabilities) {
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, capability, 0, 0) == 1) bits |= bit(capability);
  }
  return bits;
}

// What a thread's status says.
uint64_t ambient_bits_in(const std::string& status_path) {
  FILE* const file = std::fopen(status_path.c_str(), "re");
  if (file == nullptr) return 0;
  uint64_t bits = 0;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    unsigned long long value = 0;
    if (std::sscanf(line, "CapAmb: %llx", &value) == 1) bits = value;
  }
  std::fclose(file);
  return bits;
}

}  // namespace

std::span<const int> af_xdp_capabilities() {
  return kCapabilities;
}

void keep_ambient_capabilities() {
  keep = true;
}

bool drop_ambient_capabilities() {
  if (keep) return false;
  uint64_t gone = ambient_bits();
  if (maps_need_rights()) gone &= ~bit(CAP_BPF);
  if (gone == 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (size_t word = 0; word < _LINUX_CAPABILITY_U32S_3; ++word) {
    const auto kept = static_cast<uint32_t>(~gone >> 32 * word);
    data[word].effective &= kept;
    data[word].permitted &= kept;
    data[word].inheritable &= kept;  // and with it the ambient ones
  }
  return syscall(SYS_capset, &header, data) == 0;
}

size_t threads_with_ambient_capabilities() {
  const uint64_t wanted = all_bits() & (maps_need_rights() ? ~bit(CAP_BPF) : ~uint64_t{0});
  size_t count = 0;
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return 0;
  while (const dirent* const entry = readdir(threads)) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = std::string("/proc/self/task/") + entry->d_name + "/status";
    if ((ambient_bits_in(path) & wanted) != 0) ++count;
  }
  closedir(threads);
  return count;
}

}  // namespace uroce
