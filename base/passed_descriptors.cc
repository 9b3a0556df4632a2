// SPDX-License-Identifier: BSD-2-Clause
#include "base/passed_descriptors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace uroce {

namespace {

struct alignas(cmsghdr) Control {
  std::array<uint8_t, CMSG_SPACE(kMostPassedDescriptors * sizeof(int))> bytes{};
};

msghdr header_of(iovec& piece) {
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  return header;
}

// How many came. Those that `room` has no room for are closed: the padding of a control buffer has some for one more.
size_t take_descriptors(msghdr& header, std::span<UniqueFd> room) {
  size_t all = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
      UniqueFd came(fd);
      if (all < room.size()) room[all] = std::move(came);
      ++all;
    }
  }
  return all;
}

}  // namespace

int send_with_descriptors(int socket, std::span<const uint8_t> bytes, std::span<const int> descriptors) {
  if (descriptors.size() > kMostPassedDescriptors) return EINVAL;
  iovec piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr header = header_of(piece);
  Control control;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

ReceivedBytes receive_with_descriptors(int socket, std::span<uint8_t> bytes, std::span<UniqueFd> room, int flags) {
  room = room.first(std::min(room.size(), kMostPassedDescriptors));
  iovec piece{bytes.data(), bytes.size()};
  msghdr header = header_of(piece);
  Control control;
  if (!room.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(room.size() * sizeof(int));
  }
  const ssize_t size = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  if (size < 0) return {.error = errno};
  ReceivedBytes received{.size = static_cast<size_t>(size)};
  const size_t came = take_descriptors(header, room);
  received.descriptors = std::min(came, room.size());
  received.bytes_lost = (header.msg_flags & MSG_TRUNC) != 0;
  received.descriptors_lost = (header.msg_flags & MSG_CTRUNC) != 0 || came > room.size();
  return received;
}

}  // namespace uroce
