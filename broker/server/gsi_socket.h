// SPDX-License-Identifier: BSD-2-Clause
// QP1 of a host: management datagrams as UDP packets, through the broker's own sockets on port 4791, to which packets
// come that are for no lease. Here they are checked, given the addresses that they came with, and sent with an ICRC.
// Datagrams to an address of this host do not leave: the kernel would bring them over lo, and a socket could not tell
// them from forged ones.
//
// What comes is from anybody. A call of receive() takes kMessages messages, of which each is 64 packets at most; there
// are no more than kMostWaiting datagrams within the host, and as many that faults hold back.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sys/socket.h>
#include <utility>

#include "base/time.h"
#include "broker/server/gsi_capture.h"
#include "broker/server/gsi_counters.h"
#include "cm/types.h"
#include "engine/io/fault_spec.h"
#include "engine/io/udp/message.h"
#include "engine/net/host_net.h"

namespace uroce::broker {

class GsiSocket {
 public:
  static constexpr size_t kMessages = 8;
  static constexpr size_t kMostWaiting = 4096;
  static constexpr size_t kMostInATurn = 256;  // of those within the host

  // Gets what has arrived for QP1, sound, during receive() and work(). It may call send().
  using Take = std::function<void(const cm::Datagram&, Time now)>;
  // What faults take away or do twice is shown to `capture` as it is on the wire.
  GsiSocket(net::HostNet& host, GsiCapture& capture, const std::optional<io::FaultSpec>& faults, Take take);

  // The sockets to send from; -1: none.
  void use(int v4, int v6) { sockets_ = {v4, v6}; }
  // Takes what waits at one of the broker's own sockets. The packets of it that were for nobody's QP.
  uint32_t receive(int socket, Time now);
  void send(const cm::Datagram& datagram, Time now);

  // Datagrams within the host, and those that were delayed. To be called at deadline().
  void work(Time now);
  Time deadline() const;

  const GsiCounters& counters() const { return counters_; }

 private:
  enum class Way : uint8_t { kOut, kIn };
  struct Delayed {
    Way way;
    cm::Datagram datagram;
  };

  void take_packet(const io::UdpArrival& arrival, std::span<const uint8_t> packet, Time now, uint32_t& nobodys);
  std::optional<GsiCounter> why_to_drop(const io::UdpArrival& arrival, std::span<const uint8_t> packet);
  void pass(Way way, const cm::Datagram& datagram, Time now);
  void go_on(Way way, const cm::Datagram& datagram, Time now);
  void hand_in(const cm::Datagram& datagram, Time now);
  void send_packet(const cm::Datagram& datagram);
  bool happens(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }

  net::HostNet& host_;
  GsiCapture& capture_;
  const io::FaultSpec faults_;
  const Take take_;
  std::mt19937_64 random_;
  std::pair<int, int> sockets_{-1, -1};
  uint32_t psn_ = 0;
  GsiCounters counters_;
  std::deque<cm::Datagram> within_;
  std::multimap<Time, Delayed> delayed_;
  const std::unique_ptr<uint8_t[]> bytes_;
  std::array<io::UdpRxSlot, kMessages> slots_;
  std::array<mmsghdr, kMessages> headers_;
};

}  // namespace uroce::broker
