// SPDX-License-Identifier: BSD-2-Clause
// Behind the packet sockets of net_af_packet the kernel takes each frame through its network stack, to UDP sockets that
// have no use for it (frames_and_sockets.h): a quarter of the time of a call that sends one over veth. Where it lets us
// (Linux 6.6, CAP_BPF and CAP_NET_ADMIN), frames that the port takes are dropped before.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "engine/io/steering_program.h"
#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::io {

class CopyFilter final : public SteeringProgram {
 public:
  // For the port on this netdev, which is open. `qpns`: as of DpdkConfig. Null: the kernel does not let us.
  static std::unique_ptr<CopyFilter> open(int ifindex, const wire::MacAddress& mac,
                                          std::span<const wire::IpAddress> addresses,
                                          const std::optional<wire::QpnRange>& qpns);
};

}  // namespace uroce::io
