// SPDX-License-Identifier: BSD-2-Clause
#include "base/bell.h"

#include <cerrno>
#include <cstdint>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace uroce {

std::array<UniqueFd, 2> make_bell() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0) return {};
  std::array<UniqueFd, 2> ends{UniqueFd(sockets[0]), UniqueFd(sockets[1])};
  for (const UniqueFd& end : ends) {
    const uint8_t unread = 0;
    if (send(end.get(), &unread, sizeof(unread), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(unread)) return {};
  }
  if (shutdown(ends[0].get(), SHUT_RDWR) != 0) return {};
  return ends;
}

void ring_bell(int end) {
  shutdown(end, SHUT_RDWR);
}

bool bell_has_ended(int end) {
  pollfd look{end, 0, 0};
  if (poll(&look, 1, 0) > 0 && (look.revents & POLLERR) != 0) return true;
  int unread = 0;
  return ioctl(end, SIOCOUTQ, &unread) == 0 && unread == 0;
}

int wait_for_bell(int epoll, int end, void* data) {
  epoll_event event{};
  event.events = EPOLLET;
  event.data.ptr = data;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, end, &event) == 0 ? 0 : errno;
}

}  // namespace uroce
