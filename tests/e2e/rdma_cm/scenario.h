// SPDX-License-Identifier: BSD-2-Clause
// What the client and the server of cm_exchange have agreed on: the first byte of the private data of a request says
// what the server is to do with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace uroce::cm_exchange {

enum class Scenario : uint8_t {
  kAccept = 1,       // data goes forth and back, the client disconnects
  kServerEnds,       // as soon as it is established the server disconnects
  kReject,           // with private data
  kDestroy,          // the server destroys the request
  kClientRejects,    // the client does not like the server's answer
  kAcceptDatagrams,  // SIDR
  kRejectDatagrams,
  kQuit,  // rejected; the server ends
};

// How much each message carries in an event, whatever was sent: the rest is zeros.
inline constexpr size_t kReqRoom = 56, kRepRoom = 196, kRejRoom = 148, kSidrReqRoom = 180, kSidrRepRoom = 136;

inline constexpr uint8_t kServerDepth = 5;  // READs that the server takes at a time, and that it would send
inline constexpr size_t kMessage = 100'000;

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Throws Wrong.
void check(bool right, const std::string& what);

// How much private data the client sends with the request.
size_t request_size(Scenario scenario);

// `size` bytes that begin with `first` and are as no other message has them.
std::vector<uint8_t> pattern(uint8_t first, size_t size);
// What an event has brought is pattern(first, sent), and zeros up to `room`.
void check_data(std::span<const uint8_t> came, uint8_t first, size_t sent, size_t room, const std::string& of);

}  // namespace uroce::cm_exchange
