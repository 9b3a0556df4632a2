// SPDX-License-Identifier: BSD-2-Clause
// What the ids of the rdma_cm file are: what an application has a number for. Plain state; what may happen to it is in
// the commands and in events.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "abi/rdma_cm_file/address.h"
#include "abi/rdma_cm_file/channel.h"
#include "abi/rdma_cm_file/resolver.h"
#include "base/time.h"
#include "cm/requests.h"

namespace uroce::rdma_cm {

enum class State : uint8_t {
  kIdle,
  kBound,
  kAddrQuery,
  kAddrResolved,
  kRouteResolved,
  kListen,
  kConnect,  // from CONNECT or CONNECT_REQUEST on, whatever becomes of it
  kRemoved,  // its netdev is gone
};

// How far a connection is, as INIT_QP_ATTR asks.
enum class Phase : uint8_t {
  kNone,
  kReqSent,
  kReqReceived,
  kRepReceived,
  kRepSent,
  kEstablished,
  kEnded,
};

// A device to which an id is bound.
struct BoundDevice {
  uint32_t netdev = 0;  // 0: none
  uint64_t guid = 0;    // host order
  wire::MacAddress mac{};
};

// A multicast group that an id has joined.
struct Group {
  uint32_t number = 0;
  uint64_t uid = 0;
  std::weak_ptr<CmId> id{};
  uint32_t events_reported = 0;
};

struct CmId {
  uint32_t number = 0;
  uint64_t uid = 0;  // the application's name for it; 0: it has not accepted the connection
  std::shared_ptr<Channel> channel{};
  uint16_t port_space = 0;
  uint8_t qp_type = 0;
  bool known = true;  // false: a child whose CONNECT_REQUEST has not been read
  State state = State::kIdle;
  uint32_t events_reported = 0;

  Address source{}, destination{};
  BoundDevice device{};
  uint8_t tos = 0;
  bool reuse_address = false;
  std::optional<bool> af_only{};  // as the application wants it
  bool v6_only = false;           // as the host had it when the id was bound
  std::optional<uint8_t> ack_timeout{};
  int32_t backlog = 0;

  cm::BindingId binding = cm::kNoBinding;
  std::optional<Resolution> resolution{};  // from RESOLVE on
  Time resolve_until{}, ask_again{};       // kAddrQuery
  bool has_path = false;
  cm::Path path{};

  cm::Id cm = cm::kNoId;  // of its listener or connection
  cm::Id remote_cm = cm::kNoId;
  wire::ServiceId service{};
  Phase phase = Phase::kNone;
  bool passive = false;
  bool disconnects = false;  // asked for while there was no broker
  uint32_t qpn = 0;
  cm::QpAttributes qp{};  // from the first answer on

  std::vector<std::shared_ptr<Group>> groups{};

  bool takes_v6_only() const { return af_only.value_or(v6_only); }
  bool is_datagram() const { return qp_type == abi::kUd; }
};

}  // namespace uroce::rdma_cm
