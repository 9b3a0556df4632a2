// SPDX-License-Identifier: BSD-2-Clause
// What `bpftool link detach` does to the XDP program of a netdev: by force, while whoever attached it lives.
#pragma once

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/io/af_xdp/xdp_program.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::io::test {

inline void detach_xdp(const VethPair::End& end) {
  VethPair::enter(end);
  const auto attached = attached_xdp_program(end.ifindex);
  ASSERT_TRUE(attached);
  for (uint32_t id = 0; bpf_link_get_next_id(id, &id) == 0;) {
    const int fd = bpf_link_get_fd_by_id(id);
    bpf_link_info info{};
    uint32_t size = sizeof(info);
    const bool is_it = fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0 && info.prog_id == attached->id;
    const bool detached = is_it && bpf_link_detach(fd) == 0;
    if (fd >= 0) close(fd);
    if (detached) return;
  }
  ADD_FAILURE() << "no link of program " << attached->id;
}

}  // namespace uroce::io::test
