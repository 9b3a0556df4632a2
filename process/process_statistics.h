// SPDX-License-Identifier: BSD-2-Clause
// What this process says of itself to whom the broker brings (broker/client/link.h).
#pragma once

#include <cstdint>
#include <string>

namespace uroce::engine {

// Of all devices that are open, as broker/protocol/statistics.h has it; QPs one by one up to `most_qps` of all
// together.
std::string process_statistics(uint32_t most_qps);

}  // namespace uroce::engine
