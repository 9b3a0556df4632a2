#include "broker/steering_descriptors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace uroce::broker {
namespace {

struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes{};
};

std::vector<UniqueFd> descriptors_of(msghdr& header) {
  std::vector<UniqueFd> all;
  for (cmsghdr* message = CMSG_FIRSTHDR(&header); message != nullptr; message = CMSG_NXTHDR(&header, message)) {
    if (message->cmsg_level != SOL_SOCKET || message->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (message->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(message) + i * sizeof(fd), sizeof(fd));
      all.emplace_back(fd);
    }
  }
  return all;
}

}  // namespace

int send_descriptors(int socket, std::span<const int> descriptors, const std::string& text) {
  Control control;
  iovec place{const_cast<char*>(text.data()), text.size()};
  msghdr header{};
  header.msg_iov = &place;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = SOL_SOCKET;
    message->cmsg_type = SCM_RIGHTS;
    message->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(message), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

std::optional<DescriptorMessage> receive_descriptors(int socket, int flags) {
  Control control;
  std::array<char, 512> text{};
  iovec place{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &place;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t length = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  if (length <= 0) return {};
  DescriptorMessage message{descriptors_of(header), std::string(text.data(), static_cast<size_t>(length))};
  if ((header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) return {};
  return message;
}

}  // namespace uroce::broker
