// What INIT_QP_ATTR answers: the attributes with which librdmacm takes a QP to INIT, RTR and RTS.
#pragma once

#include "rdma_cm/abi.h"
#include "rdma_cm/ids.h"

namespace uroce::rdma_cm {

// `path`: how packets to the other side are addressed. 0, or EINVAL: not in this state of the connection.
int qp_attributes(const CmId& id, uint32_t qp_state, const abi::AhAttr& path, abi::QpAttr& out);

}  // namespace uroce::rdma_cm
