// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/client_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/passed_descriptors.h"

namespace uroce::broker {

namespace {

void drop_message(int socket) {
  char byte;
  recv(socket, &byte, 1, MSG_DONTWAIT);
}

// What is the first in the queue of a socket to which nothing more comes. A message without a byte is told from the end
// by the credentials that come with each message; an error that the sender has left (ECONNRESET) comes once, before
// both.
enum class First { kNothing, kMessage, kDescriptors };

First first_in_queue(int socket) {
  const int on = 1;
  if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return First::kDescriptors;
  struct alignas(cmsghdr) Credentials {
    std::array<uint8_t, CMSG_SPACE(sizeof(ucred))> bytes{};
  } credentials;
  msghdr header{};
  header.msg_control = credentials.bytes.data();
  for (int errors = 0; errors < 4; ++errors) {
    header.msg_controllen = credentials.bytes.size();
    if (recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT) < 0) continue;
    if (header.msg_controllen == 0) return First::kNothing;
    return (header.msg_flags & MSG_CTRUNC) != 0 ? First::kDescriptors : First::kMessage;
  }
  return First::kDescriptors;  // not known, so with care
}

}  // namespace

bool is_unread(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void ClientSocket::hang_up() {
  if (!hung_up_) shutdown(socket_.get(), SHUT_RDWR);
  hung_up_ = true;
}

// If messages are left in the queue, the kernel gives the client an error before it gives him the last answer.
bool ClientSocket::drain() {
  if (!hung_up_) shutdown(socket_.get(), SHUT_RD);  // nothing comes behind what is there now
  First first = first_in_queue(socket_.get());
  if (first == First::kMessage) {  // to drop one costs as much as there are waiters at the other end
    drop_message(socket_.get());
    first = first_in_queue(socket_.get());
  }
  return first == First::kNothing;
}

// Rather kept than waited for.
ClientSocket::~ClientSocket() {
  if (!socket_ || drain()) return;
  hang_up();
  socket_.release();
}

void ClientSocket::drop() const {
  drop_message(socket_.get());
}

int ClientSocket::receive(std::span<uint8_t> bytes, size_t& size) {
  const ReceivedBytes received = receive_with_descriptors(socket_.get(), bytes, {}, MSG_PEEK | MSG_DONTWAIT);
  if (received.error != 0) return received.error;
  if (received.descriptors_lost || received.bytes_lost) return EPROTO;
  if (received.size == 0) return ECONNRESET;
  size = received.size;
  drop_message(socket_.get());
  return 0;
}

}  // namespace uroce::broker
