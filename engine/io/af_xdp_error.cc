#include "engine/io/af_xdp_error.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace uroce::io {
namespace {

std::string error_text(int error) { return std::generic_category().message(error); }

constexpr uint32_t kCapBpf = 39;  // CAP_BPF, kernel 5.8

bool has_capability(const __user_cap_data_struct* data, uint32_t capability) {
  return (data[capability / 32].effective & (1U << (capability % 32))) != 0;
}

std::string use_udp() { return "or use UDP sockets, which need no privilege (UROCE_IO=udp)"; }

}  // namespace

std::string missing_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return {};
  const bool admin = has_capability(data, CAP_SYS_ADMIN);  // includes CAP_BPF
  std::string missing;
  const auto need = [&](bool present, const char* name) {
    if (present) return;
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  need(has_capability(data, CAP_NET_RAW), "CAP_NET_RAW");
  need(has_capability(data, CAP_NET_ADMIN), "CAP_NET_ADMIN");
  need(admin || has_capability(data, kCapBpf), "CAP_BPF");
  return missing;
}

IoError permission_error(const std::string& netdev) {
  const std::string missing = missing_capabilities();
  if (missing.empty()) {
    return {EPERM, "AF_XDP on " + netdev + " is not permitted although all capabilities are there",
            "a user namespace or a container's seccomp profile is in the way: allow bpf() and run in the initial user "
            "namespace, " + use_udp()};
  }
  return {EPERM, "AF_XDP on " + netdev + " lacks " + missing,
          "run as root or with these capabilities (setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM), " + use_udp()};
}

IoError netdev_down_error(const std::string& netdev) {
  return {ENETDOWN, "netdev " + netdev + " is down", "ip link set dev " + netdev + " up"};
}

IoError program_present_error(const std::string& netdev, const AttachedProgram& program) {
  const std::string id = "id " + std::to_string(program.id);
  if (program.is_ours()) {
    return {EBUSY, "another uroce process uses AF_XDP on " + netdev + " (XDP program " + id + ")",
            "one process per netdev: end the other one, " + use_udp()};
  }
  const std::string name = program.name.empty() ? "name not readable without CAP_SYS_ADMIN" : "name " + program.name;
  return {EBUSY, "netdev " + netdev + " has another XDP program attached (" + id + ", " + name + ")",
          "detach it if nothing needs it: ip link set dev " + netdev + " xdp off, " + use_udp()};
}

IoError program_load_error(const std::string& netdev, int error) {
  if (error == EPERM || error == EACCES) return permission_error(netdev);
  return {error, "the kernel does not load the XDP program: " + error_text(error),
          "AF_XDP needs Linux 5.9 or later with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS, " + use_udp()};
}

IoError program_attach_error(const std::string& netdev, int ifindex, uint32_t mtu, int error,
                             const XdpProgram& program) {
  if (error == EPERM) return permission_error(netdev);
  if (error == EBUSY || error == EEXIST) {
    return program_present_error(netdev, attached_xdp_program(ifindex).value_or(AttachedProgram{}));
  }
  const std::string generic = "the XDP program cannot be attached to " + netdev + ": " + error_text(error);
  if (program.native_error() == 0) return {error, generic, "check the netdev and its driver, " + use_udp()};
  const std::string both = generic + " (native mode: " + error_text(program.native_error()) + ")";
  if (mtu > 1500 && !program.has_frags()) {
    return {error, both,
            "MTU " + std::to_string(mtu) + " is too large for native XDP before Linux 5.18: ip link set dev " + netdev +
                " mtu 3400, " + use_udp()};
  }
  return {error, both, "AF_XDP needs Linux 5.9 or later and an Ethernet netdev, " + use_udp()};
}

IoError umem_error(const std::string& netdev, int error, size_t size) {
  if (error == EPERM) return permission_error(netdev);
  if (error == EAFNOSUPPORT) return socket_error(netdev, 0, error);
  if (error != ENOBUFS && error != ENOMEM) {
    return {error, "the kernel does not register packet memory for " + netdev + ": " + error_text(error),
            "please report this with the kernel version, " + use_udp()};
  }
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string current =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur / 1024) + " KiB";
  const std::string needed = std::to_string(size / 1024);
  return {error, "locked memory for AF_XDP on " + netdev + ": RLIMIT_MEMLOCK is " + current + ", " + needed +
                     " KiB more are needed",
          "ulimit -l unlimited (or at least " + needed + "), or CAP_IPC_LOCK, " + use_udp()};
}

IoError socket_error(const std::string& netdev, uint32_t queue, int error) {
  const std::string where = "AF_XDP socket on " + netdev + " queue " + std::to_string(queue);
  switch (error) {
    case EPERM:
      return permission_error(netdev);
    case ENETDOWN:
      return netdev_down_error(netdev);
    case EBUSY:
      return {error, where + ": another AF_XDP socket holds the queue",
              "end the process that uses it (ss --xdp -a -p, bpftool net), " + use_udp()};
    case EAFNOSUPPORT:
      return {error, "this kernel has no AF_XDP", "use a kernel with CONFIG_XDP_SOCKETS, " + use_udp()};
    default:
      return {error, where + ": " + error_text(error), "check dmesg and the driver's XDP support, " + use_udp()};
  }
}

}  // namespace uroce::io
