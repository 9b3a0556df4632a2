// SPDX-License-Identifier: BSD-2-Clause
// EPOLLEXCLUSIVE for the descriptors of completion channels: the kernel refuses it for epoll sets, which they are
// (abi/verbs/objects.h). They are added without; then an event wakes all that wait, not one of them, and who comes late
// finds none, as it may happen with the flag as well.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "abi/channel_mark.h"
#include "abi/preload/hooks/hook.h"

namespace uroce::files {
namespace {

bool is_channel(int fd) {
  char path[32], mark[32], text[16384];  // some 180 members
  std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
  std::snprintf(mark, sizeof(mark), "data: %16llx", static_cast<unsigned long long>(verbs::kChannelMark));
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  size_t size = 0;
  while (size < sizeof(text) - 1) {
    const ssize_t n = ::read(file, text + size, sizeof(text) - 1 - size);
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  ::close(file);
  text[size] = '\0';
  return std::strstr(text, mark) != nullptr;
}

}  // namespace

UROCE_HOOK(int, epoll_ctl, int set, int operation, int fd, epoll_event* event) {
  static constinit Next<int(int, int, int, epoll_event*)> next("epoll_ctl");
  const int result = next(set, operation, fd, event);
  if (result == 0 || errno != EINVAL || operation != EPOLL_CTL_ADD || event == nullptr) return result;
  if ((event->events & EPOLLEXCLUSIVE) == 0 || set == fd || !is_channel(fd)) {
    errno = EINVAL;
    return result;
  }
  epoll_event all = *event;
  all.events &= ~uint32_t{EPOLLEXCLUSIVE};
  return next(set, operation, fd, &all);
}

}  // namespace uroce::files
