// SPDX-License-Identifier: BSD-2-Clause
// Messages with descriptors over a UNIX socket, between processes that trust each other.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/passed_descriptors.h"
#include "base/unique_fd.h"

namespace uroce::broker {

struct DescriptorMessage {
  std::vector<UniqueFd> descriptors;
  std::string text;
};

// `text` is not empty; kMostPassedDescriptors at most. 0 or an errno value.
int send_descriptors(int socket, std::span<const int> descriptors, const std::string& text);
// `flags` as for recvmsg(). Nothing: there is no message, or a part of it was lost.
std::optional<DescriptorMessage> receive_descriptors(int socket, int flags);

}  // namespace uroce::broker
