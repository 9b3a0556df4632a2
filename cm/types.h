// SPDX-License-Identifier: BSD-2-Clause
// What goes into the connection manager and comes out of it (cm/connection_manager.h): datagrams, the parameters of
// commands, events. Plain values of bounded size, so that they can be sent to another process.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/cm_message.h"
#include "wire/cma_header.h"
#include "wire/envelope.h"
#include "wire/mad.h"
#include "wire/psn.h"

namespace uroce::cm {

// Who gives commands: a process, for example. Clients do not see each other's ids.
enum class ClientId : uint64_t {};

// Names a listener, a connection or a request. It is also the communication id on the wire: random, and never 0.
using Id = wire::CommId;
inline constexpr Id kNoId{0};

enum class Transport : uint8_t { kRc, kUc, kUd, kXrc };

// A MAD to or from another QP1.
struct Datagram {
  uint32_t netdev = 0;   // its index: where it arrived or leaves
  wire::Guid ca_guid{};  // of the device on that netdev; arriving
  wire::Qpn source_qpn = wire::kGsiQpn;
  wire::IpAddress source{}, destination{};
  uint32_t flow_label = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  wire::Mad mad{};
};

inline constexpr uint8_t kSmallestMtu = 1, kLargestMtu = 5;  // 256 bytes, 4096

// Where a connection's packets go, and its datagrams.
struct Path {
  uint32_t netdev = 0;
  wire::Guid ca_guid{};  // of the device on it
  wire::IpAddress local{}, remote{};
  uint32_t flow_label = 0;  // 20 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t mtu = 3;  // kSmallestMtu to kLargestMtu
  uint8_t rate = 0;
  uint8_t sl = 0;
  uint8_t ack_timeout = 19;  // 4.096 us * 2^n

  friend bool operator==(const Path&, const Path&) = default;
};

// Up to `most` bytes.
template <size_t most>
class BoundedBytes {
 public:
  static constexpr size_t kMost = most;

  BoundedBytes() = default;
  // No more than kMost bytes.
  explicit BoundedBytes(std::span<const uint8_t> bytes) : size_(std::min(bytes.size(), kMost)) {
    std::copy_n(bytes.begin(), size_, bytes_.begin());
  }
  std::span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }
  size_t size() const { return size_; }

  friend bool operator==(const BoundedBytes& a, const BoundedBytes& b) = default;

 private:
  std::array<uint8_t, kMost> bytes_{};  // behind size_: 0
  size_t size_ = 0;
};
using PrivateData = BoundedBytes<224>;    // of any message
using AdditionalInfo = BoundedBytes<72>;  // of REJ

// What one side of a connection says about its QP, or has been told about the other's (rdma_conn_param).
struct Parameters {
  wire::Qpn qpn{};
  uint32_t qkey = 0;  // UD
  // READs and atomics: those that it takes from the other side at a time, and those that it sends. In events already
  // the other way round: what the receiver of the event may have at most.
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  bool flow_control = false;
  uint8_t retry_count = 0;  // of 3 bits, as is rnr_retry
  uint8_t rnr_retry = 0;
  bool srq = false;

  friend bool operator==(const Parameters&, const Parameters&) = default;
};

// Enhanced connection establishment: options of a vendor, passed on as they are.
struct Ece {
  uint32_t vendor_id = 0;  // 24 bits
  uint32_t options = 0;

  friend bool operator==(const Ece&, const Ece&) = default;
};

// The attributes for ibv_modify_qp() that both sides have agreed on, as far as the messages so far tell them; and the
// CA GUID of the other side's device, by which another connection manager can adopt the connection.
struct QpAttributes {
  Path path{};
  wire::Guid remote_guid{};
  wire::Qpn dest_qpn{};
  uint32_t qkey = 0;  // UD
  wire::Psn rq_psn{}, sq_psn{};
  uint8_t max_rd_atomic = 0;
  uint8_t max_dest_rd_atomic = 0;
  uint8_t min_rnr_timer = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry = 0;

  friend bool operator==(const QpAttributes&, const QpAttributes&) = default;
};

// --- parameters of commands ------------------------------------------------------------------------------------------

struct Listen {
  wire::ServiceId service{};
  uint64_t service_mask = UINT64_MAX;  // bits of `service` that count
  // Listeners with IP addresses want a CMA header in front of the private data, with the address of the datagram.
  // Those without (AF_IB) get all of the private data.
  bool ip = true;
  bool datagrams = false;     // UD: takes SIDR_REQ, else REQ
  wire::IpAddress address{};  // unspecified (::): all
  bool takes_v4 = true;       // if unspecified
  bool takes_v6 = true;
  uint32_t netdev = 0;  // 0: all; link-local addresses have one
  uint32_t backlog = 1024;

  friend bool operator==(const Listen&, const Listen&) = default;
};

// REQ, or SIDR_REQ for UD. That the client may use this path and this QPN is for cm/service.h to check.
struct Connect {
  Transport transport = Transport::kRc;
  wire::ServiceId service{};
  std::optional<wire::CmaHeader> names{};  // none: AF_IB
  Path path{};
  Parameters parameters{};
  Ece ece{};
  PrivateData data{};  // without the CMA header

  friend bool operator==(const Connect&, const Connect&) = default;
};

// REP, or SIDR_REP for UD.
struct Accept {
  Parameters parameters{};
  Ece ece{};
  uint8_t ack_delay = 0;  // 4.096 us * 2^n, how long an ACK may take here
  PrivateData data{};

  friend bool operator==(const Accept&, const Accept&) = default;
};

// REJ, or SIDR_REP for UD (which has a status of its own).
struct Reject {
  wire::RejReason reason = wire::RejReason::kConsumer;
  wire::SidrStatus sidr_status = wire::SidrStatus::kReject;
  AdditionalInfo additional_info{};
  PrivateData data{};

  friend bool operator==(const Reject&, const Reject&) = default;
};

// How much private data each message has room for. With a CMA header, 36 less in REQ and SIDR_REQ.
inline constexpr size_t kReqData = 92, kRepData = 196, kRejData = 148, kRtuData = 224, kDreqData = 220, kDrepData = 224,
                        kSidrReqData = 216, kSidrRepData = 136;

// A connection that another connection manager has made. Its datagrams come from the address that its packets go to.
struct Adopt {
  Id id = kNoId;
  Id remote_id = kNoId;
  Transport transport = Transport::kRc;
  wire::ServiceId service{};
  wire::Qpn local_qpn{};
  QpAttributes qp;  // as the last event said it

  friend bool operator==(const Adopt&, const Adopt&) = default;
};

// --- events ----------------------------------------------------------------------------------------------------------

enum class EventKind : uint8_t {
  kConnectRequest,   // a listener: `id` is new and wants accept(), reject() or destroy()
  kConnectResponse,  // REP: confirm() or reject()
  kEstablished,      // RTU, or establish(); UD: the answer of the other side
  kRejected,         // status: a RejReason
  kUnreachable,      // status: -ETIMEDOUT, or a SidrStatus
  kDisconnected,     // status: 0, or -ETIMEDOUT if the other side did not answer. Once for each id
  kTimewaitExit,     // some time after kDisconnected
};

struct Event {
  EventKind kind{};
  ClientId client{};
  Id id = kNoId;
  Id listener = kNoId;   // kConnectRequest
  Id remote_id = kNoId;  // the other side's, as far as it is known: for adopt()
  int32_t status = 0;
  Transport transport{};
  wire::ServiceId service{};               // kConnectRequest
  std::optional<wire::CmaHeader> names{};  // likewise, of a listener with IP addresses
  Parameters parameters{};                 // the other side's: kConnectRequest, kConnectResponse, kEstablished of UD
  Ece ece{};
  QpAttributes qp{};  // likewise
  // As much as the message has room for, behind the CMA header.
  PrivateData data{};

  friend bool operator==(const Event&, const Event&) = default;
};

// --- bounds ----------------------------------------------------------------------------------------------------------

// Whose a client is. What the clients of a user have counts together, also what is left of those that are gone.
enum class UserId : uint64_t {};
struct Account {
  UserId user{};
  bool has_reserve = true;  // nobody is kept from anything by what others have, but only by what there is
};

// What a hostile network or client can make the connection manager remember, and do at a time. An id is about a
// kilobyte. Beyond, commands fail with ENFILE (where no other error is said), and requests are dropped.
struct Limits {
  // --- what there is. A user may have as much as others leave, so half of it alone; and of it one part in kReserved is
  // kept for clients that have the reserve (Shares).
  static constexpr uint32_t kReserved = 32;
  uint32_t ids = 65536;  // listeners and connections; the network's requests too
  uint32_t bindings =
      65536;            // of ports, in all port spaces. Of the range for port 0 a user has no larger share, either
  uint32_t masks = 64;  // listeners for more than one service id, at which each request looks. ENOSPC

  // --- of a client
  uint32_t ids_of_client = 16384;
  uint32_t bindings_of_client = 16384;
  uint32_t masks_of_client = 8;  // ENOSPC

  // --- of a service
  uint32_t places = 128;                  // listeners at different addresses or netdevs; a request looks at all. ENOSPC
  uint32_t half_open_of_listener = 4096;  // requests that came through it and are not established, whatever its backlog
  uint32_t half_open = 16384;             // of all listeners. Beyond both, the oldest one ends (make_room())

  // --- that only the connection manager remembers
  // Connections that have ended and whose ids are kept for a while, and SIDR requests that were answered, for the sake
  // of late datagrams; and connections of clients that are gone, for which DREQs are still sent. Beyond, those that
  // were to end next end.
  uint32_t ended = 16384;
  uint32_t abandoned = 4096;
  uint32_t waiting_services = 1024;  // whose listeners have ended a moment ago (WaitingRequests)
  uint32_t waiting_requests = 256;   // for a listener
  uint32_t proven = 4096;            // addresses of which it is known that they get what is sent there (ProvenPeers)

  // --- at a time
  uint32_t ended_in_a_turn =
      256;  // ids, and as many bindings, of clients that are gone, and requests of ended listeners
  uint32_t expired_in_a_turn = 256;  // timers of ids: a datagram each that is sent again
  uint32_t repeats_unproven = 2;     // of a REP to an address that is not proven, 1 s apart at least

  // Where REQ says that data is to go to another address than the datagram's source. Nobody asks that address, and who
  // sends the REQ knows QPN and PSN: so only where all peers are to be trusted.
  bool takes_other_gids = false;
};

}  // namespace uroce::cm
