// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/privileges.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace uroce::io {
namespace {

constexpr uint32_t kCapBpf = 39;  // CAP_BPF, kernel 5.8

class EffectiveCapabilities {
 public:
  EffectiveCapabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    syscall(SYS_capget, &header, data_);
  }
  bool has(uint32_t capability) const { return (data_[capability / 32].effective & (1U << (capability % 32))) != 0; }

 private:
  __user_cap_data_struct data_[_LINUX_CAPABILITY_U32S_3] = {};
};

}  // namespace

std::string missing_capabilities() {
  const EffectiveCapabilities capabilities;
  std::string missing;
  const auto need = [&](bool present, const char* name) {
    if (present) return;
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  need(capabilities.has(CAP_NET_RAW), "CAP_NET_RAW");
  need(capabilities.has(CAP_NET_ADMIN), "CAP_NET_ADMIN");
  need(capabilities.has(kCapBpf) || capabilities.has(CAP_SYS_ADMIN), "CAP_BPF");
  return missing;
}

bool has_net_raw() {
  return EffectiveCapabilities().has(CAP_NET_RAW);
}

bool has_net_admin() {
  return EffectiveCapabilities().has(CAP_NET_ADMIN);
}

// The initial user namespace maps every id onto itself.
bool in_user_namespace() {
  std::ifstream map("/proc/self/uid_map");
  if (!map.is_open()) return false;  // a kernel without user namespaces, or a chroot without /proc
  uint64_t inside = 1, outside = 1, count = 0;
  map >> inside >> outside >> count;
  return inside != 0 || outside != 0 || count != UINT32_MAX;
}

bool kernel_has_af_xdp() {
  const UniqueFd fd(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  return fd || errno != EAFNOSUPPORT;
}

size_t lockable_memory() {
  rlimit limit{};
  if (EffectiveCapabilities().has(CAP_IPC_LOCK) || getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return SIZE_MAX;
  return limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : limit.rlim_cur;
}

}  // namespace uroce::io
