// SPDX-License-Identifier: BSD-2-Clause
// For tests of steering: two hosts joined by a veth pair, the broker on one of them, packets with a QPN from anywhere.
// The test's thread is on the broker's host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "broker/protocol/port_sockets.h"
#include "broker/steering/steering.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::broker::test {

enum class Kind { kMap, kSlots };
enum class Way { kVeth, kLoopback };

// What arrived with one message.
struct Arrived {
  uint32_t qpn;
  size_t packets;
  bool operator==(const Arrived&) const = default;
};

class PortLab {
 public:
  PortLab();

  std::unique_ptr<Steering> open(Kind kind, bool inherits = false) const;

  // `count` packets as one message, over a way that takes it whole.
  void send(int family, uint32_t qpn, size_t count = 1, Way way = Way::kVeth) const;
  // To a group, from the other host.
  void send_to_group(int family) const;
  // Joins it on the veth. 0 or an errno value.
  int join(int fd, int family) const;
  // One packet, as those that are built in user space.
  void send_without_checksum(int family, uint32_t qpn, Way way) const;
  // From the other host, as if this one had sent it to itself, over IPv6.
  void forge(uint32_t qpn) const;
  void send_bytes(int family, const std::vector<uint8_t>& bytes, size_t segment, Way way, bool checksum = true) const;

  const io::test::VethPair& veth() const { return veth_; }

 private:
  const io::test::VethPair veth_;
};

// Waits for the next message. Nothing came in a long time: no packets.
Arrived receive(int fd);
// What has arrived. Packets that were sent before are there if one that was sent later has been received.
std::vector<Arrived> arrived(int fd);

int socket_of(const PortSockets& sockets, int family);

// Leases of this process.
PortSockets admit(Steering& steering, uint32_t number, bool without_copies = false);
// As a client of an earlier broker: copies, for readmit().
PortSockets copy(const PortSockets& sockets);
// The number of the range, or 0 with what is wrong.
uint32_t readmit(Steering& steering, PortSockets sockets, std::string* why = nullptr);
// Until so many packets have been for nobody.
bool unclaimed(Steering& steering, uint64_t count);

// A broker in a process of its own, which leases the ranges to this process and then waits to be killed. A range that
// is there twice is given back in between, and its first sockets are kept.
class BrokerProcess {
 public:
  BrokerProcess(const PortLab& lab, Kind kind, const std::vector<uint32_t>& numbers);
  ~BrokerProcess() { kill(); }
  BrokerProcess(const BrokerProcess&) = delete;
  BrokerProcess& operator=(const BrokerProcess&) = delete;

  void kill();
  PortSockets take(size_t place) { return std::move(leases_[place]); }
  const std::vector<uint32_t>& programs() const { return programs_; }

 private:
  pid_t process_ = -1;
  std::vector<PortSockets> leases_;
  std::vector<uint32_t> programs_;  // IDs of what it has loaded
};

// IDs of the BPF programs that a process has open.
std::vector<uint32_t> programs_of(pid_t process);
// Waits until none of them is loaded.
bool unloaded(const std::vector<uint32_t>& programs);

}  // namespace uroce::broker::test
