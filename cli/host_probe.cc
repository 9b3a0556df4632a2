// SPDX-License-Identifier: BSD-2-Clause
#include "cli/host_probe.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/printable.h"
#include "engine/io/af_xdp/privileges.h"
#include "wire/envelope.h"

namespace uroce::cli {
namespace {

namespace fs = std::filesystem;

// Who has socket:[inode] open, as "pid (name)".
std::string socket_owner(uint64_t inode) {
  const std::string wanted = "socket:[" + std::to_string(inode) + "]";
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code unreadable;
    for (const auto& descriptor : fs::directory_iterator(process.path() / "fd", unreadable)) {
      if (fs::read_symlink(descriptor.path(), unreadable) == wanted) {
        return pid + " (" + printable(read_line(process.path() / "comm")) + ")";
      }
    }
  }
  return "";
}

std::string read_all(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<KernelVersion> parse_kernel_version(std::string_view release) {
  KernelVersion version;
  const char* const end = release.data() + release.size();
  const auto [dot, major_error] = std::from_chars(release.data(), end, version.major);
  if (major_error != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, end, version.minor).ec != std::errc{}) return std::nullopt;
  return version;
}

KernelVersion kernel_version() {
  utsname name{};
  uname(&name);
  return parse_kernel_version(name.release).value_or(KernelVersion{});
}

Privileges current_privileges() {
  return {.missing = io::missing_capabilities(), .user_namespace = io::in_user_namespace()};
}

std::string privilege_problem(const Privileges& privileges) {
  if (!privileges.missing.empty()) {
    return "AF_XDP needs " + privileges.missing + ": run with sudo, or use UDP sockets (--io udp)";
  }
  return "AF_XDP does not work in a user namespace (rootless container): run on the host, or use UDP sockets (--io "
         "udp)";
}

int af_xdp_socket_error() {
  const int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

std::vector<uint64_t> bound_inodes(std::string_view proc_net_udp, uint16_t port) {
  std::vector<uint64_t> inodes;
  std::istringstream lines{std::string(proc_net_udp)};
  std::string line;
  std::getline(lines, line);  // the column heads
  while (std::getline(lines, line)) {
    // slot, local address:port (hex), remote, state, queues, timer, retransmits, uid, timeout, inode
    std::istringstream fields(line);
    std::string slot, local, skipped;
    fields >> slot >> local;
    for (int i = 0; i < 7; ++i) fields >> skipped;
    uint64_t inode = 0;
    const size_t colon = local.rfind(':');
    if (colon == std::string::npos || !(fields >> inode)) continue;
    if (std::stoul(local.substr(colon + 1), nullptr, 16) == port) inodes.push_back(inode);
  }
  return inodes;
}

std::vector<PortHolder> roce_port_holders() {
  std::vector<PortHolder> holders;
  for (const char* table : {"/proc/self/net/udp", "/proc/self/net/udp6"}) {
    for (const uint64_t inode : bound_inodes(read_all(table), wire::kRoceUdpPort)) {
      PortHolder holder{inode, inode == 0 ? "" : socket_owner(inode)};
      const auto same = [&](const PortHolder& other) {
        return (inode == 0) == (other.inode == 0) && other.process == holder.process;
      };
      if (std::find_if(holders.begin(), holders.end(), same) == holders.end()) holders.push_back(std::move(holder));
    }
  }
  return holders;
}

}  // namespace uroce::cli
