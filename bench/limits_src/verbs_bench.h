// SPDX-License-Identifier: BSD-2-Clause
// The modes of verbs_bench, which is run below `uroce run`: what perftest cannot measure, since it has a process for
// each kind of traffic and a netdev belongs to one process. Errors are thrown.
#pragma once

#include <cstdint>
#include <string>

#include "bench/limits_src/peer_socket.h"

namespace uroce::limits {

struct VerbsBenchOptions {
  PeerOptions peer;  // over which the sides tell each other their QPs
  std::string device;
  uint32_t path_mtu = 1024;
  uint32_t bulk_bytes = 0;   // ping: of each WRITE of the other QP; 0: no bulk
  uint32_t bulk_depth = 16;  // ping: WRITEs under way
  double seconds = 1;        // ping
};

void run_verbs_ping(const VerbsBenchOptions& options);  // SENDs on one QP, WRITEs on the other; prints a JSON object
void run_verbs_pong(const VerbsBenchOptions& options);  // answers the SENDs until SIGTERM

}  // namespace uroce::limits
