// SPDX-License-Identifier: BSD-2-Clause
// socket_bench ping and pong with a socket as uroce has it, and the calls that uroce makes: what any RoCE endpoint over
// UDP sockets has to pay. The socket is not connected, as it is for all peers; each message names its addresses, TOS
// and TTL, which the ICRC covers, and those of messages that come are read.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"
#include "bench/limits_src/socket_bench.h"
#include "engine/io/udp/message.h"
#include "engine/io/udp/socket.h"

namespace uroce::limits {
namespace {

constexpr size_t kMessages = 16;  // of one recvmmsg()
constexpr size_t kRoom = 4096;

class Exchange {
 public:
  explicit Exchange(const SocketBenchOptions& options)
      : bytes_(options.bytes), out_(size_t{options.bytes} * options.turn), in_(kMessages * kRoom) {
    open(options.as_uroce);
    envelope_.source = address_of(options.local);
    envelope_.destination = address_of(options.peer.address);
    envelope_.hop_limit = 64;
    for (size_t i = 0; i < kMessages; ++i) prepare(i);
  }

  bool send() {
    io::prepare_send(to_, envelope_, 0, out_, bytes_, header_.msg_hdr);
    return sendmmsg(socket_.fd(), &header_, 1, MSG_DONTWAIT) == 1;
  }

  // A whole turn. False on SIGTERM.
  bool receive() {
    for (size_t have = 0; have < out_.size();) {
      const int count = recvmmsg(socket_.fd(), headers_.data(), kMessages, MSG_DONTWAIT, nullptr);
      if (count < 0 && (errno != EAGAIN || stop_requested())) return false;
      for (int i = 0; i < count; ++i) {
        const auto& [header, size] = headers_[static_cast<size_t>(i)];
        io::UdpArrival arrival;
        if (!io::parse_received(header, size, arrival, dropped_)) return false;
        have += size;
        prepare(static_cast<size_t>(i));
      }
    }
    return true;
  }

 private:
  // A broker that was started for a program before has the port for some seconds more.
  void open(const std::string& netdev) {
    constexpr int kTries = 100;
    for (int i = 0;; ++i) {
      const auto error = socket_.open(AF_INET, netdev);
      if (!error) return;
      if (error->code != EADDRINUSE || i == kTries || stop_requested()) throw std::runtime_error(error->text());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  static wire::IpAddress address_of(const std::string& text) {
    PeerOptions options;
    options.address = text;
    const Endpoint endpoint = peer_endpoint(options);
    return wire::IpAddress::v4(reinterpret_cast<const uint8_t*>(&endpoint.v4.sin_addr));
  }
  void prepare(size_t i) { io::prepare_receive(slots_[i], {&in_[i * kRoom], kRoom}, headers_[i].msg_hdr); }

  const size_t bytes_;
  std::vector<uint8_t> out_, in_;
  io::UdpSocket socket_;
  wire::Envelope envelope_{};
  io::UdpTxSlot to_{};
  mmsghdr header_{};
  std::array<io::UdpRxSlot, kMessages> slots_{};
  std::array<mmsghdr, kMessages> headers_{};
  uint32_t dropped_ = 0;
};

}  // namespace

void ping_as_uroce(const SocketBenchOptions& options) {
  Exchange exchange(options);
  const uint32_t warm_up = options.iterations / 10;
  std::vector<uint64_t> round_trips;
  round_trips.reserve(options.iterations);
  for (uint32_t i = 0; i < warm_up + options.iterations; ++i) {
    const uint64_t start = now_ns();
    if (!exchange.send() || !exchange.receive()) break;
    if (i >= warm_up) round_trips.push_back(now_ns() - start);
  }
  std::printf(R"({"mode": "ping", "message_bytes": %u, )", options.bytes);
  Latency(std::move(round_trips)).print_json(stdout);
  std::puts("}");
}

void pong_as_uroce(const SocketBenchOptions& options) {
  Exchange exchange(options);
  announce_ready();
  while (exchange.receive() && exchange.send()) {
  }
  std::puts(R"({"mode": "pong"})");
}

}  // namespace uroce::limits
