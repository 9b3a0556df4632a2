// SPDX-License-Identifier: BSD-2-Clause
// Messages over a UNIX socket that keeps them apart (SOCK_SEQPACKET), with descriptors. What comes may be from anybody:
// no more is taken than the caller has room for, and descriptors that nobody asked for are closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"

namespace uroce {

inline constexpr size_t kMostDescriptors = 4;  // with one message
using Descriptors = std::array<UniqueFd, kMostDescriptors>;

// 0 or an errno value. Whether it waits for room is the socket's matter (O_NONBLOCK: EAGAIN). No SIGPIPE.
int send_message(int socket, std::span<const uint8_t> message, std::span<const int> descriptors = {});

// Until something can be read. Signals that are handled meanwhile do not end it. 0, ETIMEDOUT or another errno value.
int wait_for_message(int socket, int timeout_ms);

// 0 or an errno value: ETIMEDOUT, nothing came within `timeout_ms` (-1: for ever; signals that are handled meanwhile do
// not count); ECONNRESET, the other side is gone; EPROTO, not exactly `message.size()` bytes, or more descriptors than
// kMostDescriptors; EMFILE, the message is there, but this process may not open what came along. `descriptors`: those
// that came, close-on-exec, in order; none with an error.
int receive_message(int socket, std::span<uint8_t> message, Descriptors& descriptors, int timeout_ms);

// The same without waiting, and the message stays. `brings`: it has descriptors, of which none is taken.
int peek_message(int socket, std::span<uint8_t> message, bool& brings);
// Copies of those, until the message is received. EPROTO: there are more than kMostDescriptors; some may be here.
int peek_descriptors(int socket, Descriptors& descriptors);

}  // namespace uroce
