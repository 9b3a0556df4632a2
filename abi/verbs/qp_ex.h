// SPDX-License-Identifier: BSD-2-Clause
// The ibv_wr_* way of posting.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>

#include "abi/verbs/objects.h"

namespace uroce::verbs {

inline constexpr uint64_t kSendOpFlush = 1 << 11;  // IBV_QP_EX_WITH_FLUSH, rdma-core 45
inline constexpr uint32_t kAtomicWriteSize = 8;    // bytes

// What can be asked for in send_ops_flags for a type of QP; 0: nothing, also for types that are not offered. TSO
// belongs to IPoIB and raw packets.
constexpr uint64_t supported_send_ops(ibv_qp_type type) {
  constexpr uint64_t kDatagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t kUnreliable = kDatagram | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
  constexpr uint64_t kReliable = kUnreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
  switch (type) {
    case IBV_QPT_RC:
      return kReliable | kSendOpFlush | IBV_QP_EX_WITH_ATOMIC_WRITE;
    case IBV_QPT_XRC_SEND:
      return kReliable;
    case IBV_QPT_UC:
      return kUnreliable;
    case IBV_QPT_UD:
      return kDatagram;
    default:
      return 0;
  }
}

// Sets the functions for the operations asked for.
void fill_work_request_functions(Qp& qp, uint64_t send_ops);

}  // namespace uroce::verbs
