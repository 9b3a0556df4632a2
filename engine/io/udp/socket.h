// One UDP socket on port 4791, bound to a netdev and set up the way RoCE v2 needs it. UdpIo has one per IP version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/io/io_error.h"

namespace uroce::io {

// What a socket asks for in each direction: room for 7000 packets of 1 KiB as the kernel counts.
constexpr int kUdpBufferSize = 8 << 20;
// The receive buffer that the kernel gives this process, as it counts: with what it keeps beside the packets, for which
// it doubles the size that is asked for. 0: there is no UDP.
size_t udp_receive_buffer();

class UdpSocket {
 public:
  UdpSocket() = default;
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UdpSocket& operator=(UdpSocket&&) = delete;

  // `family`: AF_INET or AF_INET6. On an error the socket is not open.
  std::optional<IoError> open(int family, const std::string& netdev);

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace uroce::io
