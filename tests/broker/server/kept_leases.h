// SPDX-License-Identifier: BSD-2-Clause
// What fakes of steering know of leases, as the kernel keeps it over the end of a broker.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <variant>

#include "broker/steering/staging.h"

namespace uroce::broker {

struct KeptLeases {
  std::map<uint64_t, LeaseId> leases;    // by the cookie of the first socket
  std::map<uint32_t, uint64_t> steered;  // serials by range; none or 0: nobody has it
  uint64_t last_serial = 0;

  // As Staging::readmit(): a later lease of a range ends an earlier one.
  std::variant<LeaseRange, io::IoError> readmit(const Staging::Staged& staged) {
    const auto found = leases.find(staged.cookie);
    if (found == leases.end()) return io::IoError{EPERM, "not a socket of this port", "start anew"};
    const LeaseId& lease = found->second;
    uint64_t& current = steered[lease.range.number];
    if (lease.serial <= current) return io::IoError{EBUSY, "another client has their QPNs now", "start anew"};
    current = lease.serial;
    return lease.range;
  }
};

}  // namespace uroce::broker
