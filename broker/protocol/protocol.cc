// SPDX-License-Identifier: BSD-2-Clause
#include "broker/protocol/protocol.h"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>

namespace uroce::broker {

PortSockets sockets_from(Descriptors& descriptors, bool has_v6) {
  PortSockets sockets;
  size_t next = 0;
  sockets.v4 = std::move(descriptors[next++]);
  if (has_v6) sockets.v6 = std::move(descriptors[next++]);
  sockets.kept = std::move(descriptors[next]);
  return sockets;
}

Message make_message(Kind kind, const std::string& text) {
  Message message;
  message.kind = kind;
  std::copy_n(text.begin(), std::min(text.size(), message.text.size() - 1), message.text.begin());
  return message;
}

std::string text_of(const Message& message) {
  const auto end = std::find(message.text.begin(), message.text.end(), '\0');
  std::string text(message.text.begin(), end);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

uint64_t own_network_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/net", &status) == 0 ? status.st_ino : 0;
}

namespace {

int error_of(const Message& message) {
  if (message.magic != kMagic || message.text.back() != '\0') return EPROTO;
  if (message.version != kProtocolVersion) return ENOTSUP;
  const bool known = message.kind >= Kind::kHello && message.kind <= kLastKind && message.plane <= kLastPlane;
  return known ? 0 : EPROTO;
}

}  // namespace

int send(int socket, const Message& message, std::span<const int> descriptors) {
  return send_message(socket, {reinterpret_cast<const uint8_t*>(&message), sizeof(message)}, descriptors);
}

int receive(int socket, Message& message, Descriptors& descriptors, int timeout_ms) {
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&message), sizeof(message));
  const int error = receive_message(socket, bytes, descriptors, timeout_ms);
  if (error != 0 && error != EMFILE) return error;
  const int wrong = error_of(message);
  if (wrong != 0) descriptors = {};
  return wrong != 0 ? wrong : error;
}

int peek(int socket, Message& message, bool& brings) {
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&message), sizeof(message));
  const int error = peek_message(socket, bytes, brings);
  return error == 0 ? error_of(message) : error;
}

}  // namespace uroce::broker
