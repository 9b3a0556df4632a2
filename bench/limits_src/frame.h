// SPDX-License-Identifier: BSD-2-Clause
// The Ethernet frames that xsk_bench sends: IPv4 and UDP to port 4791 as RoCE v2 has them, with a stamp as payload.
#pragma once

#include <cstdint>
#include <cstring>

namespace uroce::limits {

constexpr uint32_t kHeaderBytes = 14 + 20 + 8;  // Ethernet, IPv4, UDP

// At the start of the UDP payload; no checksum covers it, so that a sender can rewrite it in place.
struct Stamp {
  uint64_t time_ns;  // when the sender was about to make the system call
  uint32_t index;    // ping-pong: sequence number; burst: position within the burst
  uint32_t count;    // burst: number of frames in it
};
constexpr uint32_t kMinFrameBytes = kHeaderBytes + sizeof(Stamp);

void write_frame(uint8_t* frame, uint32_t bytes);  // headers and a zero payload; bytes is the length of the whole frame

// Told by EtherType and UDP port: the kernel's own packets (ND, ARP) reach the socket too.
bool is_our_frame(const uint8_t* frame, uint32_t bytes);

inline void set_stamp(uint8_t* frame, const Stamp& stamp) {
  std::memcpy(frame + kHeaderBytes, &stamp, sizeof stamp);
}
inline Stamp get_stamp(const uint8_t* frame) {
  Stamp stamp;
  std::memcpy(&stamp, frame + kHeaderBytes, sizeof stamp);
  return stamp;
}

}  // namespace uroce::limits
