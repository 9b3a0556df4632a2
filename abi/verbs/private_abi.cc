// SPDX-License-Identifier: BSD-2-Clause
// The symbols that rdma-core keeps for its own provider libraries, at IBVERBS_PRIVATE_34 (57, 59, 64 and 65 in newer
// releases), and the entry points of the ABI before 2007, at IBVERBS_1.0. Programs that link with libmlx5 or libefa do
// not load without the former; nothing here is ever called for a device of ours. What works is elsewhere:
// ibv_query_gid_type, which tools call, in port.cc, and ibv_wr_opcode_str in strings.cc.

#include <cerrno>
#include <infiniband/verbs.h>

// rdma-core renames the node whenever its private ABI changes, and a program linked with a newer libmlx5 or libefa asks
// for the name of its own. Since nothing is ever called, stubs do under all of them. The map gives `name` its first
// node; for the later ones there is newer_`name`, since a symbol with .symver gets no version from the map.
#define UROCE_NODE(name, node) __asm__(".symver newer_" #name "," #name "@" node);
#define UROCE_NODES_FROM_65(name) UROCE_NODE(name, "IBVERBS_PRIVATE_65")
#define UROCE_NODES_FROM_64(name)        \
  UROCE_NODE(name, "IBVERBS_PRIVATE_64") \
  UROCE_NODES_FROM_65(name)
#define UROCE_NODES_FROM_57(name)        \
  UROCE_NODE(name, "IBVERBS_PRIVATE_57") \
  UROCE_NODE(name, "IBVERBS_PRIVATE_59") \
  UROCE_NODES_FROM_64(name)

#define UROCE_STUB_INT(name) \
  int name() {               \
    return EOPNOTSUPP;       \
  }
// NOLINTBEGIN(bugprone-macro-parentheses): a type, not a product
#define UROCE_STUB_POINTER(name) \
  void* name() {                 \
    errno = EOPNOTSUPP;          \
    return nullptr;              \
  }
// NOLINTEND(bugprone-macro-parentheses)
#define UROCE_STUB_VOID(name) \
  void name() {}
#define UROCE_INT(name) UROCE_STUB_INT(name) UROCE_STUB_INT(newer_##name) UROCE_NODES_FROM_57(name)
#define UROCE_POINTER(name) UROCE_STUB_POINTER(name) UROCE_STUB_POINTER(newer_##name) UROCE_NODES_FROM_57(name)
#define UROCE_VOID(name) UROCE_STUB_VOID(name) UROCE_STUB_VOID(newer_##name) UROCE_NODES_FROM_57(name)
// Not in nodes before IBVERBS_PRIVATE_59.
#define UROCE_SINCE_59(name) UROCE_STUB_INT(name) UROCE_STUB_INT(newer_##name) UROCE_NODES_FROM_64(name)
// Not in nodes before IBVERBS_PRIVATE_64.
#define UROCE_SINCE_64(kind, name) UROCE_STUB_##kind(name) UROCE_STUB_##kind(newer_##name) UROCE_NODES_FROM_65(name)
// The same under the name of a symbol whose current version exists as well.
#define UROCE_OLD(kind, name, version) \
  UROCE_STUB_##kind(old_##name) __asm__(".symver old_" #name "," #name "@" version);

extern "C" {

// --- IBVERBS_PRIVATE_34: registration of providers ---

UROCE_STUB_VOID(verbs_register_driver_34)
UROCE_STUB_VOID(verbs_register_driver_57)
UROCE_STUB_VOID(verbs_register_driver_59)
UROCE_STUB_VOID(verbs_register_driver_64)
UROCE_STUB_VOID(verbs_register_driver_65)
UROCE_POINTER(_verbs_init_and_alloc_context)
UROCE_POINTER(verbs_open_device)
UROCE_VOID(verbs_set_ops)
UROCE_VOID(verbs_uninit_context)
UROCE_VOID(verbs_init_cq)
UROCE_VOID(__verbs_log)
UROCE_INT(execute_ioctl)

// A counter in rdma-core: how many attributes an ioctl has.
unsigned int __ioctl_final_num_attrs() {
  return 0;
}
unsigned int newer___ioctl_final_num_attrs() {
  return 0;
}
UROCE_NODES_FROM_57(__ioctl_final_num_attrs)

// -1 like every read of a file that is not there.
int ibv_read_ibdev_sysfs_file() {
  errno = ENOENT;
  return -1;
}
int newer_ibv_read_ibdev_sysfs_file() {
  errno = ENOENT;
  return -1;
}
UROCE_NODES_FROM_57(ibv_read_ibdev_sysfs_file)

// A flag, not a function.
bool verbs_allow_disassociate_destroy = false;
bool newer_verbs_allow_disassociate_destroy = false;
UROCE_NODES_FROM_57(verbs_allow_disassociate_destroy)

int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index, int* type);  // port.cc
int newer_ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index, int* type) {
  return ibv_query_gid_type(context, port_num, index, type);
}
UROCE_NODES_FROM_57(ibv_query_gid_type)

const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);  // strings.cc
const char* newer_ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  return ibv_wr_opcode_str(opcode);
}
UROCE_NODES_FROM_57(ibv_wr_opcode_str)

// --- IBVERBS_PRIVATE_34: commands to the kernel ---

UROCE_INT(ibv_cmd_advise_mr)
UROCE_INT(ibv_cmd_alloc_dm)
UROCE_INT(ibv_cmd_alloc_mw)
UROCE_INT(ibv_cmd_alloc_pd)
UROCE_INT(ibv_cmd_attach_mcast)
UROCE_INT(ibv_cmd_close_xrcd)
UROCE_INT(ibv_cmd_create_ah)
UROCE_INT(ibv_cmd_create_counters)
UROCE_INT(ibv_cmd_create_cq)
UROCE_INT(ibv_cmd_create_cq_ex)
UROCE_INT(ibv_cmd_create_cq_ex2)
UROCE_INT(ibv_cmd_create_flow)
UROCE_INT(ibv_cmd_create_flow_action_esp)
UROCE_INT(ibv_cmd_create_qp)
UROCE_INT(ibv_cmd_create_qp_ex)
UROCE_INT(ibv_cmd_create_qp_ex2)
UROCE_INT(ibv_cmd_create_rwq_ind_table)
UROCE_INT(ibv_cmd_create_srq)
UROCE_INT(ibv_cmd_create_srq_ex)
UROCE_INT(ibv_cmd_create_wq)
UROCE_INT(ibv_cmd_dealloc_mw)
UROCE_INT(ibv_cmd_dealloc_pd)
UROCE_INT(ibv_cmd_dereg_mr)
UROCE_INT(ibv_cmd_destroy_ah)
UROCE_INT(ibv_cmd_destroy_counters)
UROCE_INT(ibv_cmd_destroy_cq)
UROCE_INT(ibv_cmd_destroy_flow)
UROCE_INT(ibv_cmd_destroy_flow_action)
UROCE_INT(ibv_cmd_destroy_qp)
UROCE_INT(ibv_cmd_destroy_rwq_ind_table)
UROCE_INT(ibv_cmd_destroy_srq)
UROCE_INT(ibv_cmd_destroy_wq)
UROCE_INT(ibv_cmd_detach_mcast)
UROCE_INT(ibv_cmd_free_dm)
UROCE_INT(ibv_cmd_get_context)
UROCE_INT(ibv_cmd_modify_cq)
UROCE_INT(ibv_cmd_modify_flow_action_esp)
UROCE_INT(ibv_cmd_modify_qp)
UROCE_INT(ibv_cmd_modify_qp_ex)
UROCE_INT(ibv_cmd_modify_srq)
UROCE_INT(ibv_cmd_modify_wq)
UROCE_INT(ibv_cmd_open_qp)
UROCE_INT(ibv_cmd_open_xrcd)
UROCE_INT(ibv_cmd_poll_cq)
UROCE_INT(ibv_cmd_post_recv)
UROCE_INT(ibv_cmd_post_send)
UROCE_INT(ibv_cmd_post_srq_recv)
UROCE_INT(ibv_cmd_query_context)
UROCE_INT(ibv_cmd_query_device_any)
UROCE_INT(ibv_cmd_query_mr)
UROCE_INT(ibv_cmd_query_port)
UROCE_INT(ibv_cmd_query_qp)
UROCE_INT(ibv_cmd_query_srq)
UROCE_INT(ibv_cmd_read_counters)
UROCE_INT(ibv_cmd_reg_dm_mr)
UROCE_INT(ibv_cmd_reg_dmabuf_mr)
UROCE_INT(ibv_cmd_reg_mr)
UROCE_INT(ibv_cmd_req_notify_cq)
UROCE_INT(ibv_cmd_rereg_mr)
UROCE_INT(ibv_cmd_resize_cq)

// --- IBVERBS_PRIVATE_59 and 64 ---------------------------------------------------------------------------------------

UROCE_SINCE_59(ibv_cmd_alloc_dmah)
UROCE_SINCE_59(ibv_cmd_export_dmabuf_fd)
UROCE_SINCE_59(ibv_cmd_free_dmah)
UROCE_SINCE_59(ibv_cmd_query_port_speed)
UROCE_SINCE_59(ibv_cmd_reg_mr_ex)
UROCE_SINCE_64(POINTER, ibv_dmabuf_heap_alloc)
UROCE_SINCE_64(POINTER, ibv_dmabuf_heap_cc_shared_init)
UROCE_SINCE_64(VOID, ibv_dmabuf_heap_destroy)
UROCE_SINCE_64(VOID, ibv_dmabuf_heap_free)
UROCE_STUB_INT(ibv_cmd_create_comp_cntr)
UROCE_STUB_INT(ibv_cmd_destroy_comp_cntr)
UROCE_STUB_INT(ibv_cmd_inc_comp_cntr)
UROCE_STUB_INT(ibv_cmd_inc_err_comp_cntr)
UROCE_STUB_INT(ibv_cmd_qp_attach_comp_cntr)
UROCE_STUB_INT(ibv_cmd_query_comp_cntr_caps)
UROCE_STUB_INT(ibv_cmd_read_comp_cntr)
UROCE_STUB_INT(ibv_cmd_read_err_comp_cntr)
UROCE_STUB_INT(ibv_cmd_set_comp_cntr)
UROCE_STUB_INT(ibv_cmd_set_err_comp_cntr)

// --- IBVERBS_1.0: structs of that time had other layouts -------------------------------------------------------------

UROCE_OLD(POINTER, ibv_get_device_list, "IBVERBS_1.0")
UROCE_OLD(VOID, ibv_free_device_list, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_get_device_name, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_get_device_guid, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_open_device, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_close_device, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_get_async_event, "IBVERBS_1.0")
UROCE_OLD(VOID, ibv_ack_async_event, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_query_device, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_query_port, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_query_gid, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_query_pkey, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_alloc_pd, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_dealloc_pd, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_reg_mr, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_dereg_mr, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_create_cq, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_resize_cq, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_destroy_cq, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_get_cq_event, "IBVERBS_1.0")
UROCE_OLD(VOID, ibv_ack_cq_events, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_create_srq, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_modify_srq, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_query_srq, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_destroy_srq, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_create_qp, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_query_qp, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_modify_qp, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_destroy_qp, "IBVERBS_1.0")
UROCE_OLD(POINTER, ibv_create_ah, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_destroy_ah, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_attach_mcast, "IBVERBS_1.0")
UROCE_OLD(INT, ibv_detach_mcast, "IBVERBS_1.0")

// How providers registered before rdma-core.
UROCE_OLD(VOID, ibv_register_driver, "IBVERBS_1.1")

}  // extern "C"
