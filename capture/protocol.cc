#include "capture/protocol.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"

namespace uroce::io::capture_protocol {
namespace {

// Until something can be read. Signals that are handled meanwhile do not end it: poll() is never restarted.
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

// The one descriptor that came with a message, or -1. A message may bring several, and as many are here as the control
// buffer has room for: all others are closed.
int take_descriptor(msghdr& header) {
  int first = -1;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
      if (first < 0) {
        first = fd;
      } else {
        close(fd);
      }
    }
  }
  return first;
}

}  // namespace

int send(int socket, const Message& message, int fd) {
  iovec piece{const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

int receive(int socket, Message& message, int* fd, int timeout_ms) {
  if (fd != nullptr) *fd = -1;
  if (const int error = wait_for_message(socket, timeout_ms); error != 0) return error;
  iovec piece{&message, sizeof(message)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0) return errno;
  const int came = take_descriptor(header);
  const bool whole = received == sizeof(message) && (header.msg_flags & MSG_TRUNC) == 0 && message.magic == kMagic &&
                     message.qpn_count <= kMaxQpns;
  if (fd != nullptr && whole) {
    *fd = came;
  } else if (came >= 0) {
    close(came);
  }
  return whole ? 0 : received == 0 ? ECONNRESET : EPROTO;
}

}  // namespace uroce::io::capture_protocol
