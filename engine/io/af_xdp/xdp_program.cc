// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/xdp_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cerrno>
#include <linux/if_link.h>

#include "roce_steer.skel.h"

namespace uroce::io {

int XdpProgram::load(uint32_t queue_count, const std::optional<wire::QpnRange>& qpns) {
  return SteeringProgram::load(qpns ? Kind::kSteerQpns : Kind::kSteer, queue_count, qpns);
}

int XdpProgram::attach(int ifindex, bool force_generic) {
  if (!force_generic) {
    mode_ = Mode::kNative;
    native_error_ = link(ifindex, BPF_XDP, XDP_FLAGS_DRV_MODE);
    const bool generic_may_help = native_error_ != EPERM && native_error_ != EBUSY && native_error_ != EEXIST;
    if (native_error_ == 0 || !generic_may_help) return native_error_;
  }
  mode_ = Mode::kGeneric;
  return link(ifindex, BPF_XDP, XDP_FLAGS_SKB_MODE);
}

int XdpProgram::set_socket(uint32_t queue, int socket_fd) {
  const int map = bpf_map__fd(skeleton().maps.xsks);
  return bpf_map_update_elem(map, &queue, &socket_fd, BPF_ANY) == 0 ? 0 : errno;
}

}  // namespace uroce::io
