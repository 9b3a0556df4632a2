// SPDX-License-Identifier: BSD-2-Clause
// How the sockets of an earlier broker's clients are taken over (Steering::readmit()), in two steps: a process that may
// have to wait looks at them and puts them into a map, and the broker, which may not, steers to what is there.
#pragma once

#include <cstdint>
#include <variant>

#include "base/error.h"
#include "broker/protocol/lease_range.h"
#include "broker/protocol/port_sockets.h"

namespace uroce::broker {

class Staging {
 public:
  static constexpr uint32_t kStages = 32;  // places

  struct Staged {
    LeaseId lease;
    uint64_t cookie = 0;  // of the IPv4 socket
  };
  struct Objection {
    int error;         // errno value
    const char* text;  // null: what errno says
  };

  // In a process of its own (claims.h), forked beside threads: it allocates no memory. It needs one descriptor, or
  // none (-1). Waits for whoever has one of the sockets locked.
  virtual std::variant<Staged, Objection> stage(uint32_t place, const PortSockets& sockets) const = 0;
  virtual int descriptor_to_stage() const = 0;
  // In the broker: steers to what stage() has put there.
  virtual std::variant<LeaseRange, io::IoError> readmit(uint32_t place, const Staged& staged) = 0;
  // What a process may have put there, which has ended.
  virtual void clear(uint32_t place) = 0;

 protected:
  ~Staging() = default;
};

}  // namespace uroce::broker
