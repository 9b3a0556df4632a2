// SPDX-License-Identifier: BSD-2-Clause
// Functions that DPDK calls and that are here instead of in a library.
//
// Calls with which DPDK would change what belongs to the application's process. The linker puts these functions in
// front of those of libc, for the DPDK in this module only (--wrap, CMakeLists.txt).
//
//  - openlog(), syslog(): the process's one connection to syslog is the application's. What DPDK says goes to
//    first_complaint().
//  - fprintf(stderr): one line of uroce says what went wrong.
//  - sigaction() for real-time signals: net_tap would let a signal interrupt the application for each packet. It
//    is told that they are all taken, and asks the kernel instead.
//  - sendmsg(), connect() of net_memif: to a process that has ended, was stopped or does not read. The application gets
//    no SIGPIPE, and nobody waits. And the driver does not hear that nobody reads: it would close a descriptor for
//    which EAL waits, at which EAL aborts the process. It finds the end of the connection when it reads, and closes it
//    in the right order.
//  - rte_intr_instance_free(): net_memif frees a server's listener while EAL still calls it for each visitor, and
//    leaves its descriptor open. So who frees something for which EAL waits stops that first.
//  - epoll_wait(): EAL's thread for interrupts stands (let_eal_stand()) but while it waits there.
//  - Descriptors are close-on-exec, so that programs which the application starts do not keep the port.
//
// And strlcpy() and strlcat(), for which glibc before 2.38 needs a library more.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <optional>
#include <rte_eal.h>
#include <rte_interrupts.h>
#include <sched.h>
#include <shared_mutex>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <vector>

#include "engine/io/dpdk/module/module.h"

namespace uroce::io::dpdk {
namespace {

thread_local PacketSockets* noting = nullptr;

// What EAL waits for, but for what it takes off by itself.
struct Awaited {
  const rte_intr_handle* handle;
  rte_intr_callback_fn callback;
  void* argument;

  bool operator==(const Awaited&) const = default;
};
std::mutex awaited_lock;
std::vector<Awaited> awaited;

std::optional<Awaited> awaited_by(const rte_intr_handle* handle) {
  const std::lock_guard guard(awaited_lock);
  const auto found = std::find_if(awaited.begin(), awaited.end(), [=](const auto& it) { return it.handle == handle; });
  return found == awaited.end() ? std::nullopt : std::optional(*found);
}

void forget(const Awaited& gone) {
  const std::lock_guard guard(awaited_lock);
  awaited.erase(std::remove(awaited.begin(), awaited.end(), gone), awaited.end());
}

// A child of fork() does not get as far: it cannot open ports, and does not touch its parent's.
std::shared_mutex eals_work;
std::atomic<int> wanted_alone{0};   // who moves frames leaves it then
thread_local EalStands eals_stand;  // EAL's thread

}  // namespace

EalStands let_eal_stand() {
  wanted_alone.fetch_add(1, std::memory_order_relaxed);
  EalStands alone(eals_work);
  wanted_alone.fetch_sub(1, std::memory_order_relaxed);
  return alone;
}

EalRests eal_rests() {
  return wanted_alone.load(std::memory_order_relaxed) != 0 ? EalRests() : EalRests(eals_work, std::try_to_lock);
}

PacketSockets::PacketSockets() {
  noting = this;
}

PacketSockets::~PacketSockets() {
  noting = nullptr;
}

void PacketSockets::forget(int fd) {
  open_.erase(std::remove(open_.begin(), open_.end(), fd), open_.end());
}

}  // namespace uroce::io::dpdk

using uroce::io::dpdk::awaited;
using uroce::io::dpdk::awaited_by;
using uroce::io::dpdk::awaited_lock;
using uroce::io::dpdk::eals_stand;
using uroce::io::dpdk::noting;

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp): the linker's names
extern "C" {

size_t strlcpy(char* to, const char* from, size_t room) {
  const size_t size = std::strlen(from);
  if (room > 0) {
    const size_t copied = std::min(size, room - 1);
    std::memcpy(to, from, copied);
    to[copied] = 0;
  }
  return size;
}

size_t strlcat(char* to, const char* from, size_t room) {
  const size_t used = strnlen(to, room);
  return used + strlcpy(to + used, from, room - used);
}

int __real_sigaction(int number, const struct sigaction* action, struct sigaction* before);
int __real_socket(int domain, int type, int protocol);
int __real_close(int fd);
int __real_open64(const char* path, int flags, ...);
int __real_memfd_create(const char* name, unsigned flags);

void __wrap_openlog(const char*, int, int) {}
void __wrap_syslog(int, const char*, ...) {}
void __wrap_closelog() {}
void __wrap___syslog_chk(int, int, const char*, ...) {}

int __wrap___fprintf_chk(FILE* stream, int, const char* format, ...) {
  if (stream == stderr) return 0;
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vfprintf(stream, format, arguments);
  va_end(arguments);
  return written;
}

int __wrap_sigaction(int number, const struct sigaction* action, struct sigaction* before) {
  if (number < SIGRTMIN) return __real_sigaction(number, action, before);
  if (action != nullptr) {
    errno = EINVAL;
    return -1;
  }
  *before = {};
  before->sa_handler = SIG_IGN;
  return 0;
}

int __wrap_socket(int domain, int type, int protocol) {
  const int fd = __real_socket(domain, type | SOCK_CLOEXEC, protocol);
  if (fd >= 0 && domain == AF_PACKET && noting != nullptr) noting->add(fd);
  return fd;
}

ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const ssize_t sent = __real_sendmsg(fd, message, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0 || (errno != EPIPE && errno != ECONNRESET && errno != EAGAIN)) return sent;
  size_t size = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) size += message->msg_iov[i].iov_len;
  return static_cast<ssize_t>(size);
}

int __real_connect(int fd, const sockaddr* address, socklen_t size);
int __wrap_connect(int fd, const sockaddr* address, socklen_t size) {
  if (address->sa_family != AF_UNIX) return __real_connect(fd, address, size);
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const int result = __real_connect(fd, address, size);
  const int error = errno;
  fcntl(fd, F_SETFL, flags);
  errno = error;
  return result;
}

int __wrap_close(int fd) {
  if (noting != nullptr) noting->forget(fd);
  return __real_close(fd);
}

int __wrap_open64(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  return __real_open64(path, flags | O_CLOEXEC, mode);
}

int __wrap_memfd_create(const char* name, unsigned flags) {
  return __real_memfd_create(name, flags | MFD_CLOEXEC);
}

int __wrap_pipe(int* ends) {
  return pipe2(ends, O_CLOEXEC);
}

int __wrap_dup(int fd) {
  return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int __wrap_epoll_create(int) {
  return epoll_create1(EPOLL_CLOEXEC);
}

int __real_epoll_wait(int epoll, epoll_event* events, int count, int timeout);
int __wrap_epoll_wait(int epoll, epoll_event* events, int count, int timeout) {
  if (rte_thread_is_intr() == 0) return __real_epoll_wait(epoll, events, count, timeout);
  eals_stand = {};
  int ready = __real_epoll_wait(epoll, events, count, timeout);
  const int error = errno;
  eals_stand = uroce::io::dpdk::let_eal_stand();
  errno = error;
  // What was ready may have been closed meanwhile, and its descriptor be another one now, at which EAL would wait.
  if (ready > 0) ready = __real_epoll_wait(epoll, events, count, 0);
  return ready;
}

int __wrap_eventfd(unsigned value, int flags);
int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags) {
  return __real_eventfd(value, flags | EFD_CLOEXEC);
}

int __real_rte_intr_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument);
int __wrap_rte_intr_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument) {
  const int error = __real_rte_intr_callback_register(handle, callback, argument);
  if (error == 0) {
    const std::lock_guard guard(awaited_lock);
    awaited.push_back({handle, callback, argument});
  }
  return error;
}

int __real_rte_intr_callback_unregister(const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument);
int __wrap_rte_intr_callback_unregister(const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument) {
  const int removed = __real_rte_intr_callback_unregister(handle, callback, argument);
  if (removed > 0) uroce::io::dpdk::forget({handle, callback, argument});
  return removed;
}

void __real_rte_intr_instance_free(rte_intr_handle* handle);
void __wrap_rte_intr_instance_free(rte_intr_handle* handle) {
  // In EAL's thread it is called on behalf of EAL, which takes the callback off by itself, and holds its lock.
  const bool by_eal = rte_thread_is_intr() != 0;
  while (const auto left = awaited_by(handle)) {
    uroce::io::dpdk::forget(*left);
    if (by_eal) continue;
    const int fd = rte_intr_fd_get(handle);
    int removed;
    // While the callback runs it cannot be taken off.
    while ((removed = __real_rte_intr_callback_unregister(handle, left->callback, left->argument)) == -EAGAIN) {
      sched_yield();
    }
    int listens = 0;
    socklen_t size = sizeof(listens);
    const bool lost = removed > 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
    if (lost) __real_close(fd);
  }
  __real_rte_intr_instance_free(handle);
}

int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags) {
  return __real_timerfd_create(clock, flags | TFD_CLOEXEC);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp)
