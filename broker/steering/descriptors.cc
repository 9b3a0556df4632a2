// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/descriptors.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace uroce::broker {

int send_descriptors(int socket, std::span<const int> descriptors, const std::string& text) {
  return send_with_descriptors(socket, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, descriptors);
}

std::optional<DescriptorMessage> receive_descriptors(int socket, int flags) {
  std::array<uint8_t, 512> text;
  std::array<UniqueFd, kMostPassedDescriptors> came;
  const ReceivedBytes received = receive_with_descriptors(socket, text, came, flags);
  if (received.error != 0 || received.size == 0 || received.bytes_lost || received.descriptors_lost) return {};
  DescriptorMessage message;
  std::move(came.begin(), std::next(came.begin(), static_cast<ptrdiff_t>(received.descriptors)),
            std::back_inserter(message.descriptors));
  message.text.assign(text.begin(), std::next(text.begin(), static_cast<ptrdiff_t>(received.size)));
  return message;
}

}  // namespace uroce::broker
