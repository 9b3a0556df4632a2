// SPDX-License-Identifier: BSD-2-Clause
#include "capture/protocol.h"

#include <cerrno>
#include <cstdint>
#include <span>

#include "base/message_socket.h"

namespace uroce::io::capture_protocol {

int send(int socket, const Message& message, int fd) {
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(&message), sizeof(message));
  return send_message(socket, bytes, std::span(&fd, fd >= 0 ? 1 : 0));
}

int receive(int socket, Message& message, int* fd, int timeout_ms) {
  if (fd != nullptr) *fd = -1;
  Descriptors descriptors;
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&message), sizeof(message));
  if (const int error = receive_message(socket, bytes, descriptors, timeout_ms); error != 0) return error;
  if (message.magic != kMagic || message.qpn_count > kMaxQpns) return EPROTO;
  if (fd != nullptr) *fd = descriptors.front().release();
  return 0;
}

}  // namespace uroce::io::capture_protocol
