#include "engine/base/message_socket.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

#include "engine/base/clock.h"

namespace uroce {

namespace {

struct alignas(cmsghdr) Rights {
  std::array<uint8_t, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes{};
};

msghdr header_of(iovec& piece) {
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  return header;
}

// All that came with a message; the control buffer has no room for more than kMostDescriptors.
void take_descriptors(msghdr& header, Descriptors& out) {
  size_t taken = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
      UniqueFd came(fd);
      if (taken < out.size()) out[taken++] = std::move(came);
    }
  }
}

}  // namespace

int send_message(int socket, std::span<const uint8_t> message, std::span<const int> descriptors) {
  if (descriptors.size() > kMostDescriptors) return EINVAL;
  iovec piece{const_cast<uint8_t*>(message.data()), message.size()};
  msghdr header = header_of(piece);
  Rights rights;
  if (!descriptors.empty()) {
    header.msg_control = rights.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(control), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
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

int peek_message(int socket, std::span<uint8_t> message, bool& brings) {
  iovec piece{message.data(), message.size()};
  msghdr header = header_of(piece);
  const ssize_t received = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT);
  if (received < 0) return errno == EAGAIN ? ETIMEDOUT : errno;
  if (received == 0) return ECONNRESET;
  brings = (header.msg_flags & MSG_CTRUNC) != 0;
  return received == static_cast<ssize_t>(message.size()) && (header.msg_flags & MSG_TRUNC) == 0 ? 0 : EPROTO;
}

int peek_descriptors(int socket, Descriptors& descriptors) {
  uint8_t byte;
  iovec piece{&byte, 1};
  msghdr header = header_of(piece);
  Rights rights;
  header.msg_control = rights.bytes.data();
  header.msg_controllen = rights.bytes.size();
  if (recvmsg(socket, &header, MSG_PEEK | MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0) return errno;
  take_descriptors(header, descriptors);
  return (header.msg_flags & MSG_CTRUNC) == 0 ? 0 : EPROTO;
}

int receive_message(int socket, std::span<uint8_t> message, Descriptors& descriptors, int timeout_ms) {
  descriptors = {};
  if (const int error = wait_for_message(socket, timeout_ms); error != 0) return error;
  iovec piece{message.data(), message.size()};
  msghdr header = header_of(piece);
  Rights rights;
  header.msg_control = rights.bytes.data();
  header.msg_controllen = rights.bytes.size();
  const ssize_t received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0) return errno == EAGAIN ? ETIMEDOUT : errno;
  take_descriptors(header, descriptors);
  const bool whole =
      received == static_cast<ssize_t>(message.size()) && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (whole) return 0;
  descriptors = {};
  return received == 0 ? ECONNRESET : EPROTO;
}

}  // namespace uroce
