// SPDX-License-Identifier: BSD-2-Clause
// What the sides know of each other, and the parameters that follow from it. Used by client.cc and server.cc.
#pragma once

#include <infiniband/verbs.h>

#include "tests/e2e/errors/cases.h"
#include "tests/e2e/errors/expectation.h"
#include "tests/e2e/errors/pair.h"
#include "tests/e2e/errors/protocol.h"
#include "tests/e2e/transfer/endpoint.h"

namespace uroce::errors {

struct Peer {
  Provider provider;
  ibv_gid gid;
  uint32_t mtu;  // of both sides
};

// Throws when the other side is another version.
Peer greet(transfer::Control& control, const transfer::Device& device);

// `item` null: of a pair on which nothing fails.
transfer::ConnectionParameters parameters(const Peer& peer, const Case* item);

inline constexpr uint32_t kStartingPsn = 0xFFFFFF;  // wraps behind the first request

}  // namespace uroce::errors
