// SPDX-License-Identifier: BSD-2-Clause
#include "broker/protocol/address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "base/concat.h"

namespace uroce::broker {

namespace {

constexpr int kBacklog = SOMAXCONN;

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
};

bool is_abstract(const std::string& text) {
  return text.starts_with('@');
}

std::optional<Address> parse(const std::string& text) {
  Address result;
  sockaddr_un& address = result.address;
  if (text.empty() || text.size() >= sizeof(address.sun_path)) return std::nullopt;
  address.sun_family = AF_UNIX;
  std::copy(text.begin(), text.end(), &address.sun_path[0]);
  if (is_abstract(text)) address.sun_path[0] = '\0';
  // The name of an abstract socket is as long as the address says; a path ends with 0.
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract(text) ? 0 : 1));
  return result;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.address);
}

UniqueFd make_socket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int bind_to(int socket, const Address& address) {
  return bind(socket, generic(address), address.size) == 0 ? 0 : errno;
}

// user_namespaces(7): elsewhere users that are not mapped all look like this one.
constexpr uid_t kOverflow = 65534;

bool knows_all_users() {
  std::ifstream file("/proc/self/uid_map");
  uint64_t inside = 1, outside = 1, count = 0;
  file >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == UINT32_MAX;
}

}  // namespace

std::string address_of_user(uid_t user) {
  return user == 0 ? "@uroced" : concat("@uroced-", user);
}

std::optional<Peer> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  static const bool kAllAreKnown = knows_all_users();
  return Peer{peer.pid, peer.uid == kOverflow && !kAllAreKnown ? kNobodyKnown : peer.uid, peer.gid};
}

bool is_trusted(const Peer& peer) {
  return peer.uid == 0 || peer.uid == geteuid();
}

int listen_at(const std::string& text, UniqueFd& socket) {
  const std::optional<Address> address = parse(text);
  if (!address) return EINVAL;
  UniqueFd made = make_socket();
  if (!made) return errno;
  const mode_t before = umask(0);  // who may use it is looked at when they connect
  int error = bind_to(made.get(), *address);
  if (error == EADDRINUSE && !is_abstract(text)) {
    UniqueFd other;
    if (connect_to(text, other) == ECONNREFUSED) {
      remove_path(text);
      error = bind_to(made.get(), *address);
    }
  }
  umask(before);
  if (error != 0) return error;
  if (listen(made.get(), kBacklog) != 0) return errno;
  socket = std::move(made);
  return 0;
}

std::string address_of(int socket) {
  const auto option = [socket](int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    return getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : 0;
  };
  Address own;
  own.size = sizeof(own.address);
  if (option(SO_ACCEPTCONN) == 0 || option(SO_TYPE) != SOCK_SEQPACKET) return "";
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own.address), &own.size) != 0) return "";
  constexpr size_t kName = offsetof(sockaddr_un, sun_path);
  if (own.address.sun_family != AF_UNIX || own.size <= kName) return "";
  const char* const name = &own.address.sun_path[0];
  return *name == '\0' ? "@" + std::string(name + 1, own.size - kName - 1) : std::string(name);
}

void remove_path(const std::string& address) {
  struct stat status {};
  if (is_abstract(address) || lstat(address.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  unlink(address.c_str());
}

int connect_to(const std::string& text, UniqueFd& socket) {
  const std::optional<Address> address = parse(text);
  if (!address) return EINVAL;
  UniqueFd made = make_socket();
  if (!made || connect(made.get(), generic(*address), address->size) != 0) return errno;
  socket = std::move(made);
  return 0;
}

int find_broker(const std::string& address, UniqueFd& socket) {
  if (!address.empty()) return connect_to(address, socket);
  bool busy = false;  // root's, or a stranger's: who it is, is not to be seen
  for (const uid_t user : {uid_t{0}, geteuid()}) {
    UniqueFd found;
    const int error = connect_to(address_of_user(user), found);
    if (error == EMFILE || error == ENFILE) return error;
    busy |= error == EAGAIN;
    const std::optional<Peer> peer = error == 0 ? peer_of(found.get()) : std::nullopt;
    if (!peer || !is_trusted(*peer)) continue;
    socket = std::move(found);
    return 0;
  }
  return busy ? EAGAIN : ENOENT;
}

}  // namespace uroce::broker
