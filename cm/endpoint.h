// SPDX-License-Identifier: BSD-2-Clause
// What is remembered of a connection, of a request for one, or of a SIDR exchange. Owned by EndpointTable.
#pragma once

#include "base/time.h"
#include "cm/connection_states.h"
#include "cm/types.h"

namespace uroce::cm {

struct Endpoint {
  Id id = kNoId;
  ClientId client{};
  UserId user{};
  uint64_t number = 0;     // of those before it
  bool abandoned = false;  // the client has destroyed it: no events
  State state = State::kSpent;
  Transport transport{};
  wire::ServiceId service{};
  wire::Qpn local_qpn{};
  QpAttributes qp;
  wire::IpAddress peer;                    // where the datagrams of the other side come from
  Id remote_id = kNoId;                    // SIDR: of the request that came
  wire::TransactionId transaction{};       // of REQ or SIDR_REQ; the answers repeat it
  wire::TransactionId dreq_transaction{};  // kDreqReceived

  Id listener = kNoId;        // it came through this one
  bool taken = true;          // the application knows of it, or need not
  bool disconnected = false;  // the client has been told

  // What was sent last: again until it is answered, or to who asks again.
  wire::Mad last{};
  wire::CmAttribute last_kind{};
  Duration patience{};  // how long a message waits for its answer
  uint8_t max_retries = 0;
  Duration wait{};         // likewise, the last one
  uint8_t retries = 0;     // that are left to it
  Time sent_at{};          // the last message
  uint32_t repeats = 0;    // of a REP, that are left as long as the other side's address is not proven
  uint8_t mras = 0;        // so many more may make it wait longer
  Time deadline = kNever;  // EndpointTable::schedule()
};

}  // namespace uroce::cm
