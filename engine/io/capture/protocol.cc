#include "engine/io/capture/protocol.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace uroce::io::capture_protocol {
namespace {

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
  pollfd ready{socket, POLLIN, 0};
  const int count = poll(&ready, 1, timeout_ms);
  if (count < 0) return errno;
  if (count == 0) return ETIMEDOUT;
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
