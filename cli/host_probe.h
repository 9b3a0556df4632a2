// SPDX-License-Identifier: BSD-2-Clause
// What this host and this process allow: kernel, privileges, limits, who holds the RoCE port. Reads only; opens at most
// a socket and closes it again. Used by run, devices and doctor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::cli {

struct KernelVersion {
  unsigned major = 0;
  unsigned minor = 0;
  friend auto operator<=>(const KernelVersion&, const KernelVersion&) = default;
};

// "6.1.0-18-amd64" -> 6.1; nullopt when it does not begin with two numbers.
std::optional<KernelVersion> parse_kernel_version(std::string_view release);
KernelVersion kernel_version();

// The rights of this process as far as AF_XDP is concerned.
struct Privileges {
  std::string missing{};        // "CAP_NET_RAW, CAP_BPF": capabilities that AF_XDP needs and we lack; empty: none
  bool user_namespace = false;  // in a user namespace of its own: the kernel does not let it load BPF

  bool af_xdp() const { return missing.empty() && !user_namespace; }
};
Privileges current_privileges();
// af_xdp() is false: what to tell people, ending with the remedy.
std::string privilege_problem(const Privileges& privileges);

// errno of socket(AF_XDP); 0 = it can be created.
int af_xdp_socket_error();

// A socket bound to UDP port 4791 in this network namespace.
struct PortHolder {
  uint64_t inode = 0;   // 0: the kernel's own socket, i.e. Soft-RoCE (rdma_rxe)
  std::string process;  // "1234 (ib_write_bw)"; empty when it belongs to somebody whose descriptors we may not see
  size_t unknown = 0;   // instead: so many sockets at least, whose processes were not looked at
};
// Inodes of the sockets bound to `port` in the text of /proc/net/udp or udp6.
std::vector<uint64_t> bound_inodes(std::string_view proc_net_udp, uint16_t port);
// 64 processes at most, those that are found in two seconds.
std::vector<PortHolder> roce_port_holders();

// The first line of a file without its newline; empty when it cannot be read.
std::string read_line(const std::string& path);

}  // namespace uroce::cli
