// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/error.h"

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "engine/io/af_xdp/privileges.h"

namespace uroce::io {
namespace {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

std::string use_udp() {
  return "or use UDP sockets, which need no privilege (UROCE_IO=udp)";
}

}  // namespace

IoError permission_error(const std::string& netdev) {
  const std::string missing = missing_capabilities();
  if (missing.empty()) {
    return {EPERM, "AF_XDP on " + netdev + " is not permitted although all capabilities are there",
            "a user namespace or a container's seccomp profile is in the way: allow bpf() and run in the initial user "
            "namespace, " +
                use_udp()};
  }
  return {EPERM, "AF_XDP on " + netdev + " lacks " + missing,
          "run as root, or as another user with these capabilities: sudo uroce run --user NAME, " + use_udp()};
}

IoError netdev_down_error(const std::string& netdev) {
  return {ENETDOWN, "netdev " + netdev + " is down", "ip link set dev " + netdev + " up"};
}

IoError vlan_error(const std::string& netdev, const std::vector<std::string>& vlans) {
  std::string names;
  for (const std::string& name : vlans) names += (names.empty() ? "" : ", ") + name;
  return {EOPNOTSUPP,
          "netdev " + netdev + " strips VLAN tags before AF_XDP can see them, and carries VLAN netdevs (" + names +
              "): their packets could not be told from its own",
          "ethtool -K " + netdev + " rxvlan off (which does nothing for veth), " + use_udp()};
}

IoError program_present_error(const std::string& netdev, const AttachedProgram& program) {
  const std::string id = "id " + std::to_string(program.id);
  if (program.takes_all()) {
    return {EBUSY, "another uroce process uses AF_XDP on " + netdev + " without broker (XDP program " + id + ")",
            "it has the netdev for itself: end it, run it with a broker, or use another netdev"};
  }
  if (program.is_ours()) {
    return {EBUSY, "another uroce process uses AF_XDP on " + netdev + " (XDP program " + id + ")",
            "one process per netdev can: end the other one, " + use_udp()};
  }
  const std::string name = program.name.empty() ? "name not readable without CAP_SYS_ADMIN" : "name " + program.name;
  return {EBUSY, "netdev " + netdev + " has another XDP program attached (" + id + ", " + name + ")",
          "detach it if nothing needs it: ip link set dev " + netdev + " xdp off, " + use_udp()};
}

IoError program_load_error(const std::string& netdev, int error) {
  if (error == EPERM || error == EACCES) return permission_error(netdev);
  const std::string needs = "AF_XDP needs Linux 5.9 or later with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS, ";
  return {error, "the kernel does not load the XDP program: " + error_text(error),
          remedy_for(error, needs + use_udp())};
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
  const size_t limit = lockable_memory();
  const std::string current = limit == SIZE_MAX ? "unlimited" : std::to_string(limit / 1024) + " KiB";
  const std::string needed = std::to_string(size / 1024);
  return {error,
          "locked memory for AF_XDP on " + netdev + ": RLIMIT_MEMLOCK is " + current +
              " for all that this user "
              "locks, " +
              needed + " KiB more are needed",
          "ulimit -l unlimited, or CAP_IPC_LOCK, " + use_udp()};
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
      return {error, where + ": " + error_text(error),
              remedy_for(error, "check dmesg and the driver's XDP support, " + use_udp())};
  }
}

}  // namespace uroce::io
