// SPDX-License-Identifier: BSD-2-Clause
#include "base/message_socket.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/passed_descriptors.h"

namespace uroce {

int send_message(int socket, std::span<const uint8_t> message, std::span<const int> descriptors) {
  return descriptors.size() > kMostDescriptors ? EINVAL : send_with_descriptors(socket, message, descriptors);
}

// poll() is never restarted.
int wait_for_message(int socket, int timeout_ms) {
  const Time end = monotonic_now() + std::chrono::milliseconds(timeout_ms);
  pollfd ready{socket, POLLIN, 0};
  int left_ms = timeout_ms;
  while (true) {
    const int count = poll(&ready, 1, left_ms);
    if (count >= 0) return count == 0 ? ETIMEDOUT : 0;
    if (errno != EINTR) return errno;
    if (timeout_ms < 0) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - monotonic_now()).count();
    left_ms = static_cast<int>(std::max<int64_t>(left, 0));
  }
}

namespace {

// As receive_message() has it.
int error_of(const ReceivedBytes& received) {
  return received.error == EAGAIN ? ETIMEDOUT : received.error;
}

}  // namespace

int peek_message(int socket, std::span<uint8_t> message, bool& brings) {
  const ReceivedBytes received = receive_with_descriptors(socket, message, {}, MSG_PEEK | MSG_DONTWAIT);
  if (received.error != 0) return error_of(received);
  if (received.size == 0) return ECONNRESET;
  brings = received.descriptors_lost;
  return received.size == message.size() && !received.bytes_lost ? 0 : EPROTO;
}

int peek_descriptors(int socket, Descriptors& descriptors) {
  uint8_t byte;
  const ReceivedBytes received = receive_with_descriptors(socket, {&byte, 1}, descriptors, MSG_PEEK | MSG_DONTWAIT);
  if (received.error != 0) return received.error;
  return received.descriptors_lost ? EPROTO : 0;
}

int receive_message(int socket, std::span<uint8_t> message, Descriptors& descriptors, int timeout_ms) {
  descriptors = {};
  if (const int error = wait_for_message(socket, timeout_ms); error != 0) return error;
  const ReceivedBytes received = receive_with_descriptors(socket, message, descriptors, MSG_DONTWAIT);
  if (received.error != 0) return error_of(received);
  const bool is_whole = received.size == message.size() && !received.bytes_lost;
  if (is_whole && !received.descriptors_lost) return 0;
  descriptors = {};
  if (is_whole && received.descriptors < kMostDescriptors) return EMFILE;  // there was room for more
  return received.size == 0 ? ECONNRESET : EPROTO;
}

}  // namespace uroce
