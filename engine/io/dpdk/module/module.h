// SPDX-License-Identifier: BSD-2-Clause
// Inside of uroce_dpdk.so.
#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace uroce::io::dpdk {

// Starts DPDK, once in a process. Empty: it runs; otherwise why not. `device`: the first port's devargs.
std::string start_eal(const std::string& device);
bool has_hugepages();

// What DPDK and its drivers have complained of since begin_complaints(): the first warning and the first error. In
// place of their log, which would go to the terminal and to syslog.
void begin_complaints();
std::string first_complaint();

// In EAL's thread for interrupts net_memif handles what its peers say, and their end, without any lock: it takes away
// rings and their memory. So that thread has a lock alone but while it waits (process_calls.cc). So has whoever opens
// or closes a memif; those who move frames have it together.
using EalStands = std::unique_lock<std::shared_mutex>;
using EalRests = std::shared_lock<std::shared_mutex>;
EalStands let_eal_stand();
EalRests eal_rests();  // does not own the lock if somebody has it alone, or waits for that

// What a process wants of a netdev's frames.
struct PacketFilter {
  uint32_t longest_frame;
  uint32_t first_qpn, qpn_count;  // none: all of them
};
void take_only(int packet_socket, const PacketFilter& wanted);

// Notes the packet sockets that the calling thread opens, for as long as it exists (process_calls.cc).
class PacketSockets {
 public:
  PacketSockets();
  ~PacketSockets();
  PacketSockets(const PacketSockets&) = delete;
  PacketSockets& operator=(const PacketSockets&) = delete;

  const std::vector<int>& open() const { return open_; }
  void add(int fd) { open_.push_back(fd); }
  void forget(int fd);

 private:
  std::vector<int> open_;
};

}  // namespace uroce::io::dpdk
