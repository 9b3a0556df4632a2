#include "broker/client_socket.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace uroce::broker {

namespace {

bool is_udp_socket(int fd) {
  const auto option = [fd](int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  const int domain = option(SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) && option(SO_PROTOCOL) == IPPROTO_UDP;
}

// What waits in a socket's queue is closed with it, and that may take long, but not in a process that ends.
void close_in_a_process_that_ends(UniqueFd socket) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return static_cast<void>(socket.release());
  const UniqueFd waits(ends[0]);
  UniqueFd closed(ends[1]);
  const pid_t process = fork();
  if (process < 0) return static_cast<void>(socket.release());  // rather kept than waited for
  if (process == 0) {
    close(closed.release());
    char end;
    while (read(waits.get(), &end, 1) < 0 && errno == EINTR) continue;
    _exit(0);
  }
  socket.reset();  // not the last descriptor of it
  closed.reset();
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace

ClientSocket::~ClientSocket() {
  if (!socket_) return;
  shutdown(socket_.get(), SHUT_RD);  // nothing comes behind what is there now
  char byte;
  if (recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) close_in_a_process_that_ends(std::move(socket_));
}

int ClientSocket::receive(Message& message, Descriptors& descriptors, Takes takes) {
  descriptors = {};
  bool brings = false;
  int error = peek(socket_.get(), message, brings);
  if (error == 0 && brings) error = message.kind == Kind::kClaim ? take_claimed(descriptors, takes) : EPROTO;
  if (error != 0) return error;
  char byte;
  recv(socket_.get(), &byte, 1, MSG_DONTWAIT);  // descriptors that are still there are open here as well
  return 0;
}

// Copies: the message keeps its own until it is taken from the queue.
int ClientSocket::take_claimed(Descriptors& descriptors, Takes takes) {
  if (takes == Takes::kNothing) return EPROTO;
  const bool all = peek_descriptors(socket_.get(), descriptors) == 0;
  const auto is_sound = [takes](const UniqueFd& fd) {
    return !fd || takes == Takes::kAnything || is_udp_socket(fd.get());
  };
  const bool sound = std::all_of(descriptors.begin(), descriptors.end(), is_sound);
  if (sound && all) return 0;
  for (UniqueFd& descriptor : descriptors) {
    if (!is_sound(descriptor)) descriptor.release();
  }
  descriptors = {};
  return sound ? EPROTO : EPERM;
}

}  // namespace uroce::broker
