// SPDX-License-Identifier: BSD-2-Clause
// Names of enumerators, in libibverbs' own words: tools and logs of applications show them.

#include <cstddef>
#include <infiniband/verbs.h>

namespace {

constexpr const char* kNodeTypes[] = {
    nullptr,
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};

constexpr const char* kPortStates[] = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};

constexpr const char* kEvents[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
    "Device link speed change",  // rdma-core 62
};

constexpr const char* kStatuses[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

constexpr const char* kOpcodes[] = {
    "rdma-write",
    "rdma-write-with-imm",
    "send",
    "send-with-imm",
    "rdma-read",
    "atomic-cmp-and-swp",
    "atomic-fetch-and-add",
    "local-inv",
    "bind-mw",
    "send-with-inv",
    "tso",
    "driver1",
    nullptr,
    nullptr,
    "flush",
    "atomic-write",
};

// Applications pass values from newer headers, and anything else.
template <size_t N>
const char* name_of(const char* const (&names)[N], int value) {
  if (value < 0 || static_cast<size_t>(value) >= N || names[value] == nullptr) return "unknown";
  return names[value];
}

}  // namespace

extern "C" {

const char* ibv_node_type_str(ibv_node_type node_type) {
  return name_of(kNodeTypes, static_cast<int>(node_type));
}
const char* ibv_port_state_str(ibv_port_state state) {
  return name_of(kPortStates, static_cast<int>(state));
}
const char* ibv_event_type_str(ibv_event_type event) {
  return name_of(kEvents, static_cast<int>(event));
}
const char* ibv_wc_status_str(ibv_wc_status status) {
  return name_of(kStatuses, static_cast<int>(status));
}
// rdma-core 50, for its providers.
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  return name_of(kOpcodes, static_cast<int>(opcode));
}

}  // extern "C"
