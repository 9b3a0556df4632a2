// SPDX-License-Identifier: BSD-2-Clause
// What the oracle finds: violations, and what it saw of each connection. Filled by the judges, printed by report.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "oracle/rules.h"
#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::oracle {

// A connection as the judged host sees it. Packets name only their destination QP, so until the two directions are
// paired one of the QPNs is unknown.
struct ConnectionName {
  wire::IpAddress local;
  wire::IpAddress remote;
  std::optional<wire::Qpn> local_qpn{};
  std::optional<wire::Qpn> remote_qpn{};

  std::string text() const;  // "10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202"
};

struct Violation {
  uint64_t packet = 0;  // number of the record it was found at
  Time time{};          // of that record
  Rule rule{};
  ConnectionName connection;
  std::string text;  // the numbers that matter
};

// Counts of one connection, as seen from the judged host.
struct Counts {
  uint64_t packets_out = 0, packets_in = 0;
  uint64_t messages_out = 0, messages_in = 0;  // requested by the host, by its peer; whole ones, once each
  uint64_t goodput_out = 0, goodput_in = 0;    // bytes of SEND and WRITE payload and READ data, once each
  uint64_t retransmissions_out = 0, retransmissions_in = 0;  // request packets sent again
  uint64_t reads_out = 0, reads_in = 0;
  uint64_t atomics_out = 0, atomics_in = 0;
  uint64_t naks_out = 0, naks_in = 0;  // PSN sequence errors
  uint64_t rnr_naks_out = 0, rnr_naks_in = 0;
  uint64_t fatal_naks_out = 0, fatal_naks_in = 0;
  uint64_t not_received = 0;  // inbound, with a bad ICRC or otherwise of no effect

  Counts& operator+=(const Counts& other);
};

struct ConnectionSummary {
  ConnectionName name;
  Counts counts;
  std::vector<std::string> not_judged;  // what could not be judged, and why
};

// One exchange of the connection manager, as the judged host sees it.
struct CmSummary {
  wire::IpAddress local, remote;
  std::optional<wire::Qpn> local_qpn{}, remote_qpn{};
  bool active = false;    // the judged host has asked
  std::string service;    // "TCP port 7471", or the number of the service id; empty: not captured
  std::string transport;  // "RC", "UD"
  std::string outcome;    // "established, disconnected"
  uint64_t packets_out = 0, packets_in = 0;
};

}  // namespace uroce::oracle
