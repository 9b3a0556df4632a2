// SPDX-License-Identifier: BSD-2-Clause
#include "capture/nameless_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string_view>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"

namespace uroce::io {
namespace {

// Followed by process id, PID namespace and a random number, with "-" in between.
constexpr std::string_view kPrefix = "uroce-capture-";
constexpr std::string_view kDeleted = " (deleted)";  // how the kernel marks what has no name any more
// Where everybody may make a name that nobody else can take away; memory first.
constexpr const char* kPlaces[] = {"/dev/shm", "/tmp", "/run"};
constexpr std::chrono::seconds kConnectTimeout{1};  // what a process with a full backlog may take

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

constexpr size_t kMostEntries = 65536;  // that are looked at in one

template <class F>
void for_each_entry(const std::string& directory, F&& f) {
  DIR* const entries = opendir(directory.c_str());
  if (entries == nullptr) return;
  for (size_t i = 0; i < kMostEntries; ++i) {
    const dirent* const entry = readdir(entries);
    if (entry == nullptr) break;
    f(std::string_view(entry->d_name), dirfd(entries));
  }
  closedir(entries);
}

// Decimal digits at the beginning; 0: there are none.
int leading_number(std::string_view text) {
  int value = 0;
  for (size_t i = 0; i < text.size() && i < 9 && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

// By its inode; 0: unknown.
unsigned long own_pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// Of processes that were killed between bind() and unlink(). Containers may share the directory: whether a process of
// another PID namespace lives cannot be told from its number.
void remove_leftovers(const std::string& directory, unsigned long own_namespace) {
  for_each_entry(directory, [own_namespace](std::string_view entry, int at) {
    if (!entry.starts_with(kPrefix)) return;
    const std::string name(entry);
    int pid = 0;
    unsigned long pid_namespace = 0;
    if (std::sscanf(name.c_str() + kPrefix.size(), "%d-%lu-", &pid, &pid_namespace) != 2) return;
    if (pid <= 0 || pid_namespace != own_namespace) return;
    if (kill(pid, 0) != 0 && errno == ESRCH) unlinkat(at, name.c_str(), 0);
  });
}

// 0 or an errno value. The name does not outlive the call.
int bind_without_name(int socket, const std::string& directory, unsigned long pid_namespace, int& handle) {
  uint32_t random = 0;
  if (getrandom(&random, sizeof(random), 0) < 0) return errno;
  const std::string path = directory + "/" + std::string(kPrefix) + std::to_string(getpid()) + "-" +
                           std::to_string(pid_namespace) + "-" + std::to_string(random);
  const sockaddr_un address = address_of(path);
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return errno;
  int error = 0;
  // Whatever the umask is; connecting asks for permission to write.
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0) error = errno;
  handle = open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0) error = errno;
  unlink(path.c_str());
  return error;
}

// The number of the descriptor of `pid` that stands for its socket, or a negative errno value.
int handle_of(int pid) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
  if (access(directory.c_str(), R_OK | X_OK) != 0) return -errno;
  int found = -ENOENT;
  for_each_entry(directory, [&](std::string_view name, int at) {
    std::array<char, 256> target;
    const ssize_t size = readlinkat(at, std::string(name).c_str(), target.data(), target.size());
    if (size < 0 && errno == EACCES && found < 0) found = -EACCES;  // it has capabilities that we do not have
    const std::string_view text(target.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
    const size_t slash = text.rfind('/');
    if (slash == std::string_view::npos || !text.substr(slash + 1).starts_with(kPrefix)) return;
    if (text.ends_with(kDeleted)) found = leading_number(name);
  });
  return found;
}

// As connect(), but a signal that is handled while the backlog is full does not end it. 0 or an errno value.
int connect_to(int socket, const sockaddr_un& address) {
  const Time end = monotonic_now() + kConnectTimeout;
  while (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EINTR) return errno;
    if (monotonic_now() >= end) return EAGAIN;
  }
  return 0;
}

}  // namespace

int open_nameless_socket(NamelessSocket& out) {
  ForkGuard guard;
  int error = ENOENT;
  const unsigned long pid_namespace = own_pid_namespace();
  for (const char* const place : kPlaces) {
    remove_leftovers(place, pid_namespace);
    NamelessSocket made;
    made.socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made.socket < 0) return errno;
    error = bind_without_name(made.socket, place, pid_namespace, made.handle);
    if (error == 0 && listen(made.socket, 16) != 0) error = errno;
    if (error == 0) {
      guard.close_in_children(made.socket);
      guard.close_in_children(made.handle);
      out = made;
      return 0;
    }
    if (made.handle >= 0) close(made.handle);
    close(made.socket);
  }
  return error;
}

int connect_to_nameless_socket(int pid, uid_t* user) {
  const int handle = handle_of(pid);
  if (handle < 0) return handle;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const timeval timeout{kConnectTimeout.count(), 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  const sockaddr_un address = address_of("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(handle));
  ucred peer{};
  socklen_t size = sizeof(peer);
  int error = connect_to(fd, address);
  if (error == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) error = errno;
  if (error == 0 && peer.pid != pid) {
    error = EPERM;  // a descriptor that it got from somebody else, as between vfork() and exec()
  }
  if (error == 0 && user != nullptr) *user = peer.uid;
  if (error == 0) return fd;
  close(fd);
  return -error;
}

bool may_not_look_into(int pid) {
  return handle_of(pid) == -EACCES;
}

bool has_nameless_socket(int pid) {
  return handle_of(pid) >= 0;
}

}  // namespace uroce::io
