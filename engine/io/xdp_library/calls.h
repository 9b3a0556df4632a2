// SPDX-License-Identifier: BSD-2-Clause
// The functions of libbpf and libxdp that the engine calls (steering_program.cc, silent_libbpf.h, af_xdp/ and the
// skeleton), as a table: uroce_af_xdp.so, which is linked with the two libraries, fills it (module.cc); liburoce.so
// calls through it (late.cc). A function that is missing here makes liburoce.so need the library again;
// tests/e2e/install.py finds that.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <xdp/xsk.h>

// CALL(result, name, parameters, arguments)
#define UROCE_XDP_CALLS(CALL)                                                                                       \
  CALL(int, bpf_link_create, (int a, int b, bpf_attach_type c, const bpf_link_create_opts* d), (a, b, c, d))        \
  CALL(int, bpf_map__fd, (const bpf_map* a), (a))                                                                   \
  CALL(int, bpf_map__set_max_entries, (bpf_map * a, __u32 b), (a, b))                                               \
  CALL(int, bpf_map_delete_elem, (int a, const void* b), (a, b))                                                    \
  CALL(int, bpf_map_update_elem, (int a, const void* b, const void* c, __u64 d), (a, b, c, d))                      \
  CALL(void, bpf_object__destroy_skeleton, (bpf_object_skeleton * a), (a))                                          \
  CALL(int, bpf_object__load_skeleton, (bpf_object_skeleton * a), (a))                                              \
  CALL(int, bpf_object__open_skeleton, (bpf_object_skeleton * a, const bpf_object_open_opts* b), (a, b))            \
  CALL(int, bpf_program__fd, (const bpf_program* a), (a))                                                           \
  CALL(__u32, bpf_program__flags, (const bpf_program* a), (a))                                                      \
  CALL(int, bpf_program__set_autoload, (bpf_program * a, bool b), (a, b))                                           \
  CALL(int, bpf_program__set_flags, (bpf_program * a, __u32 b), (a, b))                                             \
  CALL(libbpf_print_fn_t, libbpf_set_print, (libbpf_print_fn_t a), (a))                                             \
  CALL(int, xsk_socket__create_shared,                                                                              \
       (xsk_socket * *a, const char* b, __u32 c, xsk_umem* d, xsk_ring_cons* e, xsk_ring_prod* f, xsk_ring_prod* g, \
        xsk_ring_cons* h, const xsk_socket_config* i),                                                              \
       (a, b, c, d, e, f, g, h, i))                                                                                 \
  CALL(void, xsk_socket__delete, (xsk_socket * a), (a))                                                             \
  CALL(int, xsk_socket__fd, (const xsk_socket* a), (a))                                                             \
  CALL(int, xsk_umem__create,                                                                                       \
       (xsk_umem * *a, void* b, __u64 c, xsk_ring_prod* d, xsk_ring_cons* e, const xsk_umem_config* f),             \
       (a, b, c, d, e, f))                                                                                          \
  CALL(int, xsk_umem__delete, (xsk_umem * a), (a))                                                                  \
  CALL(int, xsk_umem__fd, (const xsk_umem* a), (a))

namespace uroce::io {

struct XdpCalls {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared
#define UROCE_MEMBER(result, name, parameters, arguments) decltype(&::name) name;
  UROCE_XDP_CALLS(UROCE_MEMBER)
#undef UROCE_MEMBER
};

}  // namespace uroce::io

// Exported by uroce_af_xdp.so.
extern "C" const uroce::io::XdpCalls uroce_xdp_calls;
