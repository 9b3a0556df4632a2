#include "engine/io/udp/udp.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "engine/io/udp/message.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

constexpr size_t kBurst = 64;  // messages per system call
// 4096 bytes of payload behind the longest transport header fit with room to spare.
constexpr uint32_t kMaxUdpLength = 4352;

}  // namespace

IoResult<UdpIo> UdpIo::open(const UdpConfig& config) {
  std::unique_ptr<UdpIo> io(new UdpIo(config));
  if (std::optional<IoError> error = io->v4_.socket.open(AF_INET, config.netdev)) return *error;
  const std::optional<IoError> v6_error = io->v6_.socket.open(AF_INET6, config.netdev);
  if (v6_error && v6_error->code != EAFNOSUPPORT) return *v6_error;
  for (const Socket* socket : {&io->v4_, &io->v6_}) {
    if (socket->socket.is_open()) io->wait_descriptors_.push_back({socket->socket.fd(), POLLIN, 0});
  }
  return io;
}

UdpIo::UdpIo(const UdpConfig& config)
    : ifindex_(config.ifindex),
      max_udp_length_(std::min(config.mtu - static_cast<uint32_t>(wire::kIpv6Size), kMaxUdpLength)),
      rx_headers_(kBurst),
      tx_headers_(kBurst),
      rx_slots_(kBurst),
      tx_slots_(kBurst),
      rx_buffers_(kBurst * kMaxUdpLength),
      tx_buffers_(kBurst * kMaxUdpLength) {}

UdpIo::~UdpIo() = default;

size_t UdpIo::receive(std::span<RxPacket> out) {
  out = out.first(std::min(out.size(), kBurst));
  v6_first_ = !v6_first_;
  // The second socket receives into the slots behind those that the first one used.
  size_t used = 0;
  size_t count = receive_from(v6_first_ ? v6_ : v4_, used, out);
  count += receive_from(v6_first_ ? v4_ : v6_, used, out.subspan(count));
  counters_.rx_packets += count;
  return count;
}

size_t UdpIo::receive_from(Socket& socket, size_t& used, std::span<RxPacket> out) {
  if (!socket.socket.is_open()) return 0;
  const size_t wanted = std::min(out.size(), kBurst - used);
  if (wanted == 0) return 0;
  for (size_t i = used; i < used + wanted; ++i) {
    prepare_receive(rx_slots_[i], {&rx_buffers_[i * kMaxUdpLength], kMaxUdpLength}, rx_headers_[i].msg_hdr);
  }
  mmsghdr* const headers = &rx_headers_[used];
  const int received = recvmmsg(socket.socket.fd(), headers, static_cast<unsigned>(wanted), MSG_DONTWAIT, nullptr);
  size_t count = 0;
  for (int i = 0; i < received; ++i) {
    RxPacket& packet = out[count];
    if (!parse_received(headers[i].msg_hdr, headers[i].msg_len, packet, socket.dropped)) {
      ++counters_.rx_malformed;
      continue;
    }
    counters_.rx_bytes += packet.ib.size() + wire::kUdpSize;
    ++count;
  }
  if (received > 0) used += static_cast<size_t>(received);
  return count;
}

size_t UdpIo::send(std::span<io::TxPacket> burst) {
  for (pollfd& descriptor : wait_descriptors_) descriptor.events = POLLIN;
  size_t taken = 0;
  while (taken < burst.size()) {
    // As many as one call can send: one socket, so one IP version.
    const bool v4 = burst[taken].envelope->destination.is_v4();
    size_t end = taken + 1;
    while (end < burst.size() && end - taken < kBurst && burst[end].envelope->destination.is_v4() == v4) ++end;
    const size_t run = end - taken;
    const size_t run_taken = send_run(burst.subspan(taken, run), v4 ? v4_ : v6_);
    taken += run_taken;
    const bool unreadable = run_taken > 0 && burst[taken - 1].unreadable;
    if (run_taken < run && !unreadable) {
      ++counters_.tx_backpressure;
      break;
    }
  }
  return taken;
}

// Returns how many packets are done with: sent, or refused and counted. Fewer than all: the send buffer is full, or the
// last one is unreadable.
size_t UdpIo::send_run(std::span<io::TxPacket> run, const Socket& socket) {
  size_t ready = 0;
  for (; ready < run.size(); ++ready) {
    assert(run[ready].udp_length() <= max_udp_length_);
    const std::span buffer{&tx_buffers_[ready * kMaxUdpLength], kMaxUdpLength};
    if (!prepare_send(tx_slots_[ready], run[ready], ifindex_, buffer, tx_headers_[ready].msg_hdr)) break;
  }
  size_t done = 0;
  while (done < ready) {
    const int sent =
        sendmmsg(socket.socket.fd(), &tx_headers_[done], static_cast<unsigned>(ready - done), MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {  // the send buffer is full
        wait_for_room(socket);
        return done;
      }
      ++counters_.tx_errors;  // this one packet: no route, larger than the path MTU, source address gone ...
      ++done;
      continue;
    }
    for (int i = 0; i < sent; ++i) counters_.tx_bytes += run[done++].udp_length();
    counters_.tx_packets += static_cast<uint64_t>(sent);
  }
  if (ready < run.size()) run[done++].unreadable = true;
  return done;
}

void UdpIo::wait_for_room(const Socket& socket) {
  for (pollfd& descriptor : wait_descriptors_) {
    if (descriptor.fd == socket.socket.fd()) descriptor.events = POLLIN | POLLOUT;
  }
}

std::string UdpIo::description() const {
  return v6_.socket.is_open() ? "udp" : "udp, IPv4 only";
}

IoCounters UdpIo::counters() const {
  IoCounters counters = counters_;
  counters.rx_no_buffer = uint64_t{v4_.dropped} + v6_.dropped;
  return counters;
}

}  // namespace uroce::io
