// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups of UD queue pairs.

#include <cerrno>

#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"

using namespace uroce::verbs;

extern "C" {

// Joins the group as a host does (IGMP, MLD). RoCE has no LIDs: `lid` is not looked at. Joining twice has the
// effect of joining once.
int ibv_attach_mcast(ibv_qp* verbs, const ibv_gid* gid, uint16_t) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  Qp& qp = from(verbs);
  return without_exceptions([&] { return qp.engine->attach_multicast(*qp.engine_qp, gid_from_verbs(*gid)); });
}

int ibv_detach_mcast(ibv_qp* verbs, const ibv_gid* gid, uint16_t) {
  if (refuses_orphan(verbs->context)) return answer(EIO);
  Qp& qp = from(verbs);
  return without_exceptions([&] { return qp.engine->detach_multicast(*qp.engine_qp, gid_from_verbs(*gid)); });
}

}  // extern "C"
