// One UDP socket on port 4791, bound to a netdev and set up the way RoCE v2 needs it. UdpIo has one per IP version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/io/io_error.h"

namespace uroce::io {

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
