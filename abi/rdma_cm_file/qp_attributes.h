// SPDX-License-Identifier: BSD-2-Clause
// What INIT_QP_ATTR answers: the attributes with which librdmacm takes a QP to INIT, RTR and RTS.
#pragma once

#include <optional>

#include "abi/rdma_cm_file/abi.h"
#include "abi/rdma_cm_file/ids.h"

namespace uroce::rdma_cm {

// `path`: how packets to the other side are addressed; none: the id's address is gone. 0, or EINVAL: not in this state
// of the connection, or not without a path. (In Linux the path's GID can be asked for, and ibv_modify_qp() says
// EINVAL.)
int qp_attributes(const CmId& id, uint32_t qp_state, const std::optional<abi::AhAttr>& path, abi::QpAttr& out);

}  // namespace uroce::rdma_cm
