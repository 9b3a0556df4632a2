// SPDX-License-Identifier: BSD-2-Clause
#include "cli/host_probe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/socket_holders.h"
#include "base/unique_fd.h"
#include "engine/io/af_xdp/privileges.h"
#include "wire/envelope.h"

namespace uroce::cli {
namespace {

constexpr uint64_t kUnknown = UINT64_MAX;  // inode of some socket that is not the kernel's

// Whole lines, as many as come before `end`: each read() of a long table takes the kernel longer than the one before.
// False: there are more.
bool read_lines(const char* path, Time end, std::string& text) {
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 65536> piece;
  for (ssize_t size = 1; size > 0;) {
    if (monotonic_now() >= end) {
      text.resize(text.rfind('\n') + 1);
      return false;
    }
    size = read(file.get(), piece.data(), piece.size());
    if (size > 0) text.append(piece.data(), static_cast<size_t>(size));
  }
  return true;
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
  constexpr size_t kMost = 64;
  constexpr Duration kLook = std::chrono::seconds(2), kRead = kLook / 4;  // of each table
  const Time end = monotonic_now() + kLook;
  std::vector<uint64_t> inodes;
  bool is_whole = true;
  for (const char* table : {"/proc/self/net/udp", "/proc/self/net/udp6"}) {
    std::string text;
    is_whole &= read_lines(table, monotonic_now() + kRead, text);
    const std::vector<uint64_t> bound = bound_inodes(text, wire::kRoceUdpPort);
    inodes.insert(inodes.end(), bound.begin(), bound.end());
  }
  std::vector<PortHolder> holders;
  if (std::erase(inodes, 0) > 0) holders.push_back({});
  const SocketHolders found = find_socket_holders(std::move(inodes), kMost, end);
  for (const SocketHolder& each : found.processes) holders.push_back({each.inode, each.process});
  if (!is_whole || !found.is_whole) {
    holders.push_back({.inode = kUnknown, .process = "", .unknown = std::max<size_t>(found.sockets_left, 1)});
  } else if (found.sockets_left > 0) {
    holders.push_back({.inode = kUnknown, .process = ""});
  }
  return holders;
}

}  // namespace uroce::cli
