#include "engine/io/capture/protocol.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <glob.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

namespace uroce::io::capture_protocol {
namespace {

// A directory of the user's own that nobody else can write to: what others put into it could be anybody's.
bool is_own_directory(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool have(const std::string& path, bool make) {
  if (make && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return is_own_directory(path);
}

std::string runtime_directory() {
  const char* const set = std::getenv("XDG_RUNTIME_DIR");
  return set != nullptr && set[0] == '/' && std::strlen(set) < 64 && is_own_directory(set) ? set : "";
}

}  // namespace

int connect(const std::string& path, int pid) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  ucred peer{};
  socklen_t size = sizeof(peer);
  int error = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    error = errno;
  } else if (peer.pid != pid) {
    error = EPERM;
  }
  if (error == 0) return fd;
  close(fd);
  return -error;
}

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
  int came = -1;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
      std::memcpy(&came, CMSG_DATA(c), sizeof(came));
    }
  }
  const bool whole = received == sizeof(message) && message.magic == kMagic && message.qpn_count <= kMaxQpns;
  if (fd != nullptr && whole) {
    *fd = came;
  } else if (came >= 0) {
    close(came);
  }
  return whole ? 0 : received == 0 ? ECONNRESET : EPROTO;
}

std::string own_directory(bool make) {
  if (const std::string runtime = runtime_directory(); !runtime.empty()) {
    if (have(runtime + "/uroce", make)) return runtime + "/uroce";
  }
  if (geteuid() == 0 && have("/run/uroce", make)) return "/run/uroce";
  const std::string shared = "/tmp/uroce-" + std::to_string(geteuid());
  return have(shared, make) ? shared : "";
}

std::vector<std::string> all_directories() {
  std::vector<std::string> directories;
  const auto add = [&](const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return;
    for (const std::string& known : directories) {
      if (known == path) return;
    }
    directories.push_back(path);
  };
  if (const std::string runtime = runtime_directory(); !runtime.empty()) add(runtime + "/uroce");
  if (geteuid() != 0) {
    add("/tmp/uroce-" + std::to_string(geteuid()));
    add("/run/user/" + std::to_string(geteuid()) + "/uroce");
    return directories;
  }
  add("/run/uroce");
  for (const char* const pattern : {"/run/user/*/uroce", "/tmp/uroce-*"}) {
    glob_t found{};
    if (glob(pattern, 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) add(found.gl_pathv[i]);
    }
    globfree(&found);
  }
  return directories;
}

}  // namespace uroce::io::capture_protocol
