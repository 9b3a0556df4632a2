// SPDX-License-Identifier: BSD-2-Clause
// The connection manager's messages from endpoints and the parameters of commands, and what messages say as parameters
// of events. How the fields are used: cm.md "Messages".
#pragma once

#include <optional>

#include "cm/endpoint.h"
#include "cm/types.h"
#include "wire/cm_message.h"

namespace uroce::cm {

// `names`: a CMA header is in front of the private data.
inline bool fits(const PrivateData& data, size_t room, bool names) {
  return data.size() + (names ? wire::CmaHeader::kSize : 0) <= room;
}

wire::Req make_req(const Endpoint& endpoint, const Connect& connect);
wire::SidrReq make_sidr_req(const Endpoint& endpoint, const Connect& connect);
wire::Rep make_rep(const Endpoint& endpoint, const Accept& accept);
wire::Rtu make_rtu(const Endpoint& endpoint, const PrivateData& data);
wire::Mra make_mra(const Endpoint& endpoint, wire::CmAnswered message);
wire::Dreq make_dreq(const Endpoint& endpoint, const PrivateData& data);
wire::Drep make_drep(Id local, Id remote, const PrivateData& data);
wire::SidrRep make_sidr_rep(const Endpoint& endpoint, const Accept& accept);
wire::SidrRep make_sidr_refusal(Id request, wire::ServiceId service, wire::SidrStatus status, const PrivateData& data);
wire::Rej make_rej(Id local, Id remote, wire::CmAnswered message, const Reject& reject);
// No answer came in time: says whose message it was, as the other side may not know the id (cm.md "Messages").
wire::Rej make_timeout_rej(const Endpoint& endpoint);

// The transport that a REQ asks for; nothing if it is none of ours.
std::optional<Transport> transport_of(const wire::Req& req);
Parameters parameters_of(const wire::Req& req);
Parameters parameters_of(const wire::Rep& rep, Transport transport);
Ece ece_of(const wire::Rep& rep, uint32_t modifier);
Ece ece_of(const wire::SidrRep& rep, uint32_t modifier);
// The way back, for what `req` asks and `datagram` has brought.
Path path_of(const wire::Req& req, const Datagram& datagram);
Path path_of(const Datagram& datagram);

template <size_t size>
std::array<uint8_t, size> padded(const PrivateData& data) {
  std::array<uint8_t, size> bytes{};
  std::copy_n(data.bytes().begin(), std::min(size, data.size()), bytes.begin());
  return bytes;
}

}  // namespace uroce::cm
