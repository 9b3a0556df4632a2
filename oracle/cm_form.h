// SPDX-License-Identifier: BSD-2-Clause
// What a single packet to QP1 has to keep, whatever was said before it: the packet, the MAD, and the fields of the
// connection manager's messages. Called by CmJudge for every packet that the judged host sends to QP1.
#pragma once

#include <vector>

#include "oracle/packet.h"
#include "wire/cm_message.h"

namespace uroce::oracle {

// A packet to QP1 that belongs to the connection manager, as far as can be told: UD, and of its class if it has a MAD's
// header. Whole ones only.
bool is_cm(const Packet& packet);

// The message in it, if an endpoint may take it for one.
bool parse_cm(const Packet& packet, wire::CmMad& out);

// Appends to `out` what is wrong with it.
void judge_cm_form(const Packet& packet, std::vector<Packet::Finding>& out);

}  // namespace uroce::oracle
