// SPDX-License-Identifier: BSD-2-Clause
#include "abi/verbs/values.h"

#include <cerrno>

namespace uroce::verbs {

int address_from_verbs(const ibv_ah_attr& from, transport::AddressVector& to) {
  if (!from.is_global || from.port_num != 1) return EINVAL;
  to.destination = gid_from_verbs(from.grh.dgid);
  to.flow_label = from.grh.flow_label & 0xfffff;
  to.source_gid_index = from.grh.sgid_index;
  to.hop_limit = from.grh.hop_limit;
  to.traffic_class = from.grh.traffic_class;
  to.service_level = from.sl;
  to.static_rate = from.static_rate;
  to.port = from.port_num;
  to.global = true;
  return 0;
}

ibv_ah_attr address_to_verbs(const transport::AddressVector& from) {
  ibv_ah_attr to{};
  to.grh.dgid = gid_to_verbs(from.destination);
  to.grh.flow_label = from.flow_label;
  to.grh.sgid_index = from.source_gid_index;
  to.grh.hop_limit = from.hop_limit;
  to.grh.traffic_class = from.traffic_class;
  to.sl = from.service_level;
  to.static_rate = from.static_rate;
  to.is_global = from.global ? 1 : 0;
  to.port_num = from.port;
  return to;
}

}  // namespace uroce::verbs
