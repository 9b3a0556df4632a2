// SPDX-License-Identifier: BSD-2-Clause
// Requests, replies and events (requests.h) as bytes, for a connection between two processes of one host. Each side
// takes the other for hostile: what is decoded has only values that its types have, lengths are at most those of the
// types, and nothing is left over. What is encoded is the values, byte by byte: no padding, nothing of the sender's
// memory. Numbers are in host order. Which format it is says the version of broker/protocol/protocol.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "cm/requests.h"

namespace uroce::cm {

class Encoded {
 public:
  static constexpr size_t kMost = 512;  // bytes of the longest message, and some more

  std::span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }

 private:
  friend class Writer;
  std::array<uint8_t, kMost> bytes_{};
  size_t size_ = 0;
};

Encoded encode(const Request& request);
Encoded encode(const Reply& reply);
Encoded encode(const Event& event);  // without `client`, which is for the sender

using Answer = std::variant<Reply, Event>;

// Nothing: it is none.
std::optional<Request> decode_request(std::span<const uint8_t> bytes);
std::optional<Answer> decode_answer(std::span<const uint8_t> bytes);

}  // namespace uroce::cm
