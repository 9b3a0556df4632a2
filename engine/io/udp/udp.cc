// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/udp.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <linux/filter.h>
#include <sys/socket.h>
#include <utility>

#include "engine/io/udp/receiver.h"
#include "engine/io/udp/sender.h"
#include "engine/io/udp/socket.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

// 4096 bytes of payload behind the longest transport header fit with room to spare.
constexpr uint32_t kMaxUdpLength = 4352;
// Each look into a socket is a system call. The one of the other IP version gets one for so many of the busy one's.
constexpr uint32_t kLooksPerQuietLook = 16;
// Places in ports_.
constexpr size_t kV4 = 0, kV6 = 1;

// In the kernel, before the packet is queued. The filter sees the UDP header.
void drop_without_checksum(int fd) {
  constexpr uint32_t kChecksum = 6;
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kChecksum), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
                          BPF_STMT(BPF_RET | BPF_K, UINT32_MAX), BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

}  // namespace

struct UdpIo::Port {
  Port(int fd, UdpSocket its_socket, const UdpConfig& config, IoCounters& counters, Notices& notices)
      : socket(std::move(its_socket)),
        peers(fd, config.ifindex),
        sender(fd, config.ifindex, kMaxUdpLength, RunLimits(config.gso_max_size), peers, counters, notices),
        receiver(fd, socket.is_open() ? 0 : config.ifindex, peers, counters, notices) {}

  UdpSocket socket;  // not open: it is the caller's
  RunPeers peers;
  UdpSender sender;
  UdpReceiver receiver;
};

IoResult<UdpIo> UdpIo::open(const UdpConfig& config) {
  std::unique_ptr<UdpIo> io(new UdpIo(config));
  if (config.socket_v4 >= 0) {
    io->add_port(config.socket_v4, {}, config);
    if (config.socket_v6 >= 0) io->add_port(config.socket_v6, {}, config);
    return io;
  }
  for (const int family : {AF_INET, AF_INET6}) {
    UdpSocket socket;
    if (std::optional<IoError> error = socket.open(family, config.netdev)) {
      if (family == AF_INET6 && error->code == EAFNOSUPPORT) break;
      return *error;
    }
    const int fd = socket.fd();
    if (config.only_runs) drop_without_checksum(fd);
    io->add_port(fd, std::move(socket), config);
  }
  return io;
}

void UdpIo::add_port(int fd, UdpSocket socket, const UdpConfig& config) {
  wait_descriptors_.push_back({fd, POLLIN, 0});
  ports_.push_back(std::make_unique<Port>(fd, std::move(socket), config, counters_, notices_));
}

void UdpIo::set_local_addresses(std::span<const wire::IpAddress> addresses) {
  for (const auto& port : ports_) port->peers.set_local_addresses(addresses);
}

UdpIo::UdpIo(const UdpConfig& config) : gso_max_size_(config.gso_max_size) {}

UdpIo::~UdpIo() = default;

size_t UdpIo::receive(std::span<RxPacket> out) {
  size_t count = 0;
  const size_t quiet = 1 - busy_;
  if (ports_.size() > 1 && (looks_++ % kLooksPerQuietLook == 0 || (unseen_ >> quiet & 1) != 0)) {
    count = receive_from(quiet, out);
    if (count > 0) busy_ = quiet;
  }
  return count > 0 ? count : receive_from(busy_, out);
}

size_t UdpIo::receive_from(size_t port, std::span<RxPacket> out) {
  UdpReceiver& receiver = ports_[port]->receiver;
  const size_t count = receiver.receive(out);
  if (receiver.drained()) unseen_ &= ~(1u << port);
  return count;
}

void UdpIo::look_everywhere() {
  unseen_ = (1u << ports_.size()) - 1;
}

// The quiet one's turn comes.
bool UdpIo::drained() const {
  return ports_[busy_]->receiver.drained();
}

// After the sleep it is not known which of them has something.
bool UdpIo::prepare_to_wait() {
  looks_ = 0;
  return !left_over();
}

bool UdpIo::left_over() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const auto& port) { return port->receiver.left_over(); });
}

size_t UdpIo::send(std::span<io::TxPacket> burst) {
  for (pollfd& descriptor : wait_descriptors_) descriptor.events = POLLIN;
  size_t taken = 0;
  while (taken < burst.size()) {
    // As many as go through one socket.
    const std::span<io::TxPacket> rest = burst.subspan(taken);
    const size_t port = port_of(rest.front());
    const auto end = std::find_if(rest.begin(), rest.end(), [=](const auto& p) { return port_of(p) != port; });
    const auto same = rest.first(static_cast<size_t>(end - rest.begin()));
    if (port >= ports_.size()) {
      counters_.tx_errors += same.size();
      taken += same.size();
      continue;
    }
    const size_t sent = ports_[port]->sender.send(same);
    taken += sent;
    if (sent == same.size()) continue;
    ++counters_.tx_backpressure;
    wait_descriptors_[port].events = POLLIN | POLLOUT;
    break;
  }
  return taken;
}

size_t UdpIo::run(uint32_t udp_length) const {
  const RunLimits limits(gso_max_size_);
  const size_t bytes = std::max<size_t>(udp_length - wire::kUdpSize, 1);
  return std::clamp<size_t>(limits.bytes_v6 / bytes, 1, limits.packets);
}

bool UdpIo::takes_runs(const wire::IpAddress& to) const {
  const size_t port = to.is_v4() ? kV4 : kV6;
  return port >= ports_.size() || ports_[port]->sender.runs().allowed(to);
}

size_t UdpIo::port_of(const io::TxPacket& packet) {
  return packet.envelope->destination.is_v4() ? kV4 : kV6;
}

// Whatever the netdev's MTU is now: it may grow, and bounds path MTUs anyway.
uint32_t UdpIo::max_udp_length() const {
  return kMaxUdpLength;
}

std::string UdpIo::description() const {
  return ports_.size() > kV6 ? "udp" : "udp, IPv4 only";
}

IoCounters UdpIo::counters() const {
  IoCounters counters = counters_;
  for (const auto& port : ports_) {
    counters.rx_no_buffer += port->receiver.dropped();
    counters.tx_run_refusals += port->sender.runs().refusals();
  }
  return counters;
}

}  // namespace uroce::io
