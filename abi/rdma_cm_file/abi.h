// SPDX-License-Identifier: BSD-2-Clause
// The user ABI of the rdma_cm file, version 4 (rdma-cm-file.md "Commands"): what librdmacm writes, and what it wants to
// be answered. Native byte order but where a type says otherwise. Fields keep the names of rdma/rdma_user_cm.h, with
// which tests/abi/rdma_cm_file/abi_test.cc compares every size and offset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::rdma_cm::abi {

// Of all datagram ids over IP addresses, whatever the application asks for (RDMA_UDP_QKEY).
inline constexpr uint32_t kUdpQkey = 0x01234567;

enum class Command : uint32_t {
  kCreateId = 0,
  kDestroyId,
  kBindIp,
  kResolveIp,
  kResolveRoute,
  kQueryRoute,
  kConnect,
  kListen,
  kAccept,
  kReject,
  kDisconnect,
  kInitQpAttr,
  kGetEvent,
  kGetOption,
  kSetOption,
  kNotify,
  kJoinIpMcast,
  kLeaveMcast,
  kMigrateId,
  kQuery,
  kBind,
  kResolveAddr,
  kJoinMcast,
  kResolveIbService,  // this and the next: of newer kernels
  kWriteCmEvent,
};
inline constexpr uint32_t kCommands = 25;
// Of a whole command, header included.
inline constexpr size_t kShortest = 12, kLongest = 336;

enum class EventKind : uint32_t {
  kAddrResolved = 0,
  kAddrError,
  kRouteResolved,
  kRouteError,
  kConnectRequest,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kDeviceRemoval,
  kMulticastJoin,
  kMulticastError,
  kAddrChange,
  kTimewaitExit,
  kAddrinfoResolved,
  kAddrinfoError,
  kUser,
  kInternal,
};

// Numbers of enum ib_qp_type and enum ib_qp_state.
enum QpType : uint8_t { kRc = 2, kUc = 3, kUd = 4, kXrcInitiator = 9, kXrcTarget = 10 };
enum QpState : uint32_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

struct Header {
  uint32_t cmd;
  uint16_t in;   // bytes behind this
  uint16_t out;  // room at `response`
};
static_assert(sizeof(Header) == 8);

// A socket address in the size of the longest; of the family at its beginning.
using Storage = std::array<uint8_t, 128>;
using Storage6 = std::array<uint8_t, 28>;  // as far as a sockaddr_in6

inline constexpr uint16_t kFamilyIb = 27;
struct SockaddrIb {
  uint16_t sib_family;
  uint16_t sib_pkey;  // this and all others: big endian
  uint32_t sib_flowinfo;
  std::array<uint8_t, 16> sib_addr;
  uint64_t sib_sid, sib_sid_mask, sib_scope_id;
};
static_assert(sizeof(SockaddrIb) == 48);

struct CreateId {
  uint64_t uid, response;
  uint16_t ps;
  uint8_t qp_type, reserved[5];
};
struct NewId {  // also of a multicast group
  uint32_t id;
};
struct DestroyId {
  uint64_t response;
  uint32_t id, reserved;
};
struct EventsReported {
  uint32_t events_reported;
};
struct BindIp {
  uint64_t response;
  Storage6 addr;
  uint32_t id;
};
struct ResolveIp {
  Storage6 src_addr, dst_addr;
  uint32_t id, timeout_ms;
};
struct ResolveRoute {
  uint32_t id, timeout_ms;
};
struct QueryRoute {
  uint64_t response;
  uint32_t id, reserved;
};
struct PathRecord {  // struct ib_user_path_rec
  std::array<uint8_t, 16> dgid, sgid;
  uint16_t dlid, slid;
  uint32_t raw_traffic;
  uint32_t flow_label;  // big endian, as dlid, slid, pkey
  uint32_t reversible, mtu;
  uint16_t pkey;
  uint8_t hop_limit, traffic_class, numb_path, sl, mtu_selector, rate_selector, rate, packet_life_time_selector,
      packet_life_time, preference;
};
static_assert(sizeof(PathRecord) == 64);
struct QueryRouteAnswer {
  uint64_t node_guid;
  std::array<PathRecord, 2> ib_route;
  Storage6 src_addr, dst_addr;
  uint32_t num_paths;
  uint8_t port_num, reserved[3];
  uint32_t ibdev_index, reserved1;
};
struct ConnParam {
  uint32_t qp_num, qkey;
  std::array<uint8_t, 256> private_data;
  uint8_t private_data_len, srq, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
      valid;
};
static_assert(sizeof(ConnParam) == 272);
struct AhAttr {  // struct ib_uverbs_ah_attr
  std::array<uint8_t, 16> dgid;
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class, grh_reserved;
  uint16_t dlid;
  uint8_t sl, src_path_bits, static_rate, is_global, port_num, reserved;
};
static_assert(sizeof(AhAttr) == 32);
struct UdParam {
  uint32_t qp_num, qkey;
  AhAttr ah_attr;
  std::array<uint8_t, 256> private_data;
  uint8_t private_data_len, reserved[7];
};
static_assert(sizeof(UdParam) == 304);
struct Ece {
  uint32_t vendor_id, attr_mod;
};
struct Connect {
  ConnParam conn_param;
  uint32_t id, reserved;
  Ece ece;
};
struct Listen {
  uint32_t id;
  int32_t backlog;
};
struct Accept {
  uint64_t uid;
  ConnParam conn_param;
  uint32_t id, reserved;
  Ece ece;
};
struct Reject {
  uint32_t id;
  uint8_t private_data_len, reason, reserved[2];
  std::array<uint8_t, 256> private_data;
};
struct Disconnect {
  uint32_t id;
};
struct InitQpAttr {
  uint64_t response;
  uint32_t id, qp_state;
};
struct QpAttr {  // struct ib_uverbs_qp_attr
  uint32_t qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
      qp_access_flags;
  AhAttr ah_attr, alt_ah_attr;
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout,
      retry_cnt, rnr_retry, alt_port_num, alt_timeout, reserved[5];
};
static_assert(sizeof(QpAttr) == 144);
struct GetEvent {
  uint64_t response;
};
struct Event {
  uint64_t uid;
  uint32_t id, event, status;
  union {
    ConnParam conn;
    UdParam ud;
    uint32_t arg[2];  // of a kUser event: a u64, which is not aligned here
  } param;
  uint32_t reserved;
  Ece ece;
};
static_assert(sizeof(Event) == 336 && offsetof(Event, param) == 20);
struct SetOption {
  uint64_t optval;
  uint32_t id, level, optname, optlen;
};
struct Notify {
  uint32_t id, event;
};
struct JoinIpMcast {
  uint64_t response, uid;
  Storage6 addr;
  uint32_t id;
};
struct LeaveMcast {
  uint64_t response;
  uint32_t id, reserved;
};
struct MigrateId {
  uint64_t response;
  uint32_t id, fd;
};
struct Query {
  uint64_t response;
  uint32_t id, option;
};
struct QueryAddrAnswer {
  uint64_t node_guid;
  uint8_t port_num, reserved;
  uint16_t pkey;  // big endian
  uint16_t src_size, dst_size;
  Storage src_addr, dst_addr;
  uint32_t ibdev_index, reserved1;
};
struct PathData {  // struct ib_path_rec_data: the record is the SA's, big endian
  uint32_t flags, reserved;
  std::array<uint8_t, 64> path_rec;
};
static_assert(sizeof(PathData) == 72);
struct QueryPathAnswer {
  uint32_t num_paths, reserved;
  std::array<PathData, 1> path_data;
};
struct Bind {
  uint32_t id;
  uint16_t addr_size, reserved;
  Storage addr;
};
struct ResolveAddr {
  uint32_t id, timeout_ms;
  uint16_t src_size, dst_size;
  uint32_t reserved;
  Storage src_addr, dst_addr;
};
struct JoinMcast {
  uint64_t response, uid;
  uint32_t id;
  uint16_t addr_size, join_flags;
  Storage addr;
};
struct ResolveIbService {
  uint32_t id;
  std::array<uint8_t, 84> service;
};
struct WriteCmEvent {
  uint32_t id, reserved, event, status;
  uint8_t param[304];
  uint64_t reserved1;
};

inline constexpr uint32_t kQueryAddr = 0, kQueryPath = 1, kQueryGid = 2;
inline constexpr uint32_t kLevelId = 0, kLevelIb = 1;
inline constexpr uint32_t kOptionTos = 0, kOptionReuseAddress = 1, kOptionAfOnly = 2, kOptionAckTimeout = 3;
inline constexpr uint32_t kOptionIbPath = 1;
inline constexpr uint16_t kJoinFull = 0, kJoinSendOnly = 1;
inline constexpr uint32_t kNotifyCommEstablished = 4;  // IB_EVENT_COMM_EST
inline constexpr uint32_t kPathFlags = 0x2b;           // GMP, primary, both ways

static_assert(sizeof(CreateId) + sizeof(Header) == 32 && sizeof(DestroyId) + sizeof(Header) == 24);
static_assert(sizeof(BindIp) + sizeof(Header) == 48 && sizeof(ResolveIp) + sizeof(Header) == 72);
static_assert(sizeof(ResolveRoute) + sizeof(Header) == 16 && sizeof(QueryRoute) + sizeof(Header) == 24);
static_assert(sizeof(Connect) + sizeof(Header) == 296 && sizeof(Listen) + sizeof(Header) == 16);
static_assert(sizeof(Accept) + sizeof(Header) == 304 && sizeof(Reject) + sizeof(Header) == 272);
static_assert(sizeof(Disconnect) + sizeof(Header) == 12 && sizeof(InitQpAttr) + sizeof(Header) == 24);
static_assert(sizeof(GetEvent) + sizeof(Header) == 16 && sizeof(SetOption) + sizeof(Header) == 32);
static_assert(sizeof(Notify) + sizeof(Header) == 16 && sizeof(JoinIpMcast) + sizeof(Header) == 56);
static_assert(sizeof(LeaveMcast) + sizeof(Header) == 24 && sizeof(MigrateId) + sizeof(Header) == 24);
static_assert(sizeof(Query) + sizeof(Header) == 24 && sizeof(Bind) + sizeof(Header) == 144);
static_assert(sizeof(ResolveAddr) + sizeof(Header) == 280 && sizeof(JoinMcast) + sizeof(Header) == 160);
static_assert(sizeof(ResolveIbService) + sizeof(Header) == 96 && sizeof(WriteCmEvent) + sizeof(Header) == 336);
static_assert(sizeof(QueryRouteAnswer) == 208 && sizeof(QueryAddrAnswer) == 280 && sizeof(QueryPathAnswer) == 80);

}  // namespace uroce::rdma_cm::abi
