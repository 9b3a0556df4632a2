// SPDX-License-Identifier: BSD-2-Clause
// What `uroce capture` and a process that uses uroce say to each other, over a UNIX socket (nameless_socket.h). One
// message is one packet; all on one machine, so numbers are in host order.
//
//   client                                       process
//   kDescribe                              ->
//                                          <-    kDescription (text: program, then a line per device)
//   kStart, with a descriptor to write to  ->
//                                          <-    kStarted, or kRefused (error)
//                                          <-    kNextFile: the file is full      (only if file_size is not 0)
//   kFile, with the next descriptor        ->
//   kStop                                  ->
//                                          <-    kEnded (captured, dropped, error), also without kStop
//
// The end of the connection ends the capture. Only the process's own user and root are answered (SO_PEERCRED).
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace uroce::io::capture_protocol {

inline constexpr uint32_t kMagic = 0x75726331;  // version 1
inline constexpr size_t kMaxQpns = 16;

enum class Kind : uint32_t { kDescribe, kStart, kFile, kStop, kDescription, kStarted, kRefused, kNextFile, kEnded };

struct Message {
  uint32_t magic = kMagic;
  Kind kind{};
  int32_t error = 0;  // errno value
  uint32_t snap = 0;
  uint64_t max_packets = 0;
  uint64_t file_size = 0;  // bytes of one file; 0: there is only one
  uint64_t captured = 0;   // packets
  uint64_t dropped = 0;
  uint32_t qpn_count = 0;
  std::array<uint32_t, kMaxQpns> qpns{};
  std::array<char, 64> device{};  // only this one; empty: all
  std::array<char, 1024> text{};
};

// Cut to what fits, always ended by a 0.
template <size_t N>
void put_text(std::array<char, N>& to, const std::string& from) {
  const size_t size = from.size() < N - 1 ? from.size() : N - 1;
  for (size_t i = 0; i < N; ++i) to[i] = i < size ? from[i] : '\0';
}
// What the other side says is shown to people: control characters, which a terminal might obey, are not passed on.
template <size_t N>
std::string get_text(const std::array<char, N>& from) {
  std::string text;
  for (size_t i = 0; i < N && from[i] != '\0'; ++i) {
    const auto byte = static_cast<unsigned char>(from[i]);
    text += (byte < ' ' && byte != '\n') || byte >= 0x7f ? '?' : from[i];
  }
  return text;
}

// Both return 0 or an errno value. `fd`: goes with the message; -1: none.
int send(int socket, const Message& message, int fd = -1);
// Waits up to `timeout_ms` (-1: for ever), also while signals are handled. The descriptor that came is the caller's, -1
// if none came; it is closed on exec. ECONNRESET: the other side is gone; EPROTO: that was no message; ETIMEDOUT.
int receive(int socket, Message& message, int* fd, int timeout_ms);

}  // namespace uroce::io::capture_protocol
