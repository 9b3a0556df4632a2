// SPDX-License-Identifier: BSD-2-Clause
// ucx_exchange: a TCP connection between the two, for what UCX wants told beforehand (addresses, remote keys), for
// barriers that do not depend on what is being tested, and to notice that the other one has ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exchange {

using Blob = std::vector<uint8_t>;

class OutOfBand {
 public:
  enum class State { kNothing, kReadable, kEnded };

  OutOfBand() = default;
  OutOfBand(const OutOfBand&) = delete;
  OutOfBand& operator=(const OutOfBand&) = delete;
  ~OutOfBand();

  // Both block. False with errno.
  bool accept(uint16_t port);
  bool connect(const std::string& address, uint16_t port);

  int fd() const { return fd_; }
  State state() const;
  bool send(const Blob& blob);
  // False with errno, 0 when the other one has ended. Blocks until all is there once the first byte is.
  bool receive(Blob& blob);

 private:
  int fd_ = -1;
};

}  // namespace exchange
