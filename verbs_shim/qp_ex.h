// The ibv_wr_* way of posting.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>

namespace uroce::verbs {

// What can be asked for in send_ops_flags. Memory windows, local invalidation and TSO do not exist here.
inline constexpr uint64_t kSupportedSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                              IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;

// Sets the functions for the operations asked for.
void fill_work_request_functions(ibv_qp_ex& qp, uint64_t send_ops);

}  // namespace uroce::verbs
