// SPDX-License-Identifier: BSD-2-Clause
// libibverbs as NCCL gets it: loaded at run time, every function by its name and version.
#pragma once

#include <infiniband/verbs.h>
#include <stdexcept>
#include <string>

namespace uroce::nccl_style {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The members are called as the functions, without ibv_. Those that old libraries lack may be null.
struct Symbols {
  int (*fork_init)();
  ibv_device** (*get_device_list)(int*);
  void (*free_device_list)(ibv_device**);
  const char* (*get_device_name)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*close_device)(ibv_context*);
  int (*get_async_event)(ibv_context*, ibv_async_event*);
  void (*ack_async_event)(ibv_async_event*);
  const char* (*event_type_str)(ibv_event_type);
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*);  // of old: fills the members up to `flags`
  int (*query_gid)(ibv_context*, uint8_t, int, ibv_gid*);
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int);
  int (*dereg_mr)(ibv_mr*);
  ibv_comp_channel* (*create_comp_channel)(ibv_context*);
  int (*destroy_comp_channel)(ibv_comp_channel*);
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int);
  int (*destroy_cq)(ibv_cq*);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  int (*destroy_qp)(ibv_qp*);
  ibv_mr* (*reg_mr_iova2)(ibv_pd*, void*, size_t, uint64_t, unsigned);
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, uint64_t, size_t, uint64_t, int, int);
  int (*query_ece)(ibv_qp*, ibv_ece*);
  int (*set_ece)(ibv_qp*, ibv_ece*);
};

// Throws Failure when there is no libibverbs, or one without a function that is needed. `file`: where it lies.
Symbols load_symbols(std::string& file);

// Throws Failure unless `result` is 0.
void expect_ok(int result, const std::string& what);
[[noreturn]] void fail(const std::string& what, int error);

template <typename Pointer>
Pointer* expect_made(Pointer* made, const std::string& what) {
  if (made == nullptr) fail(what, errno);
  return made;
}

}  // namespace uroce::nccl_style
