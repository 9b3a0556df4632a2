// SPDX-License-Identifier: BSD-2-Clause
// The soak's calls that only ask, and those that every device answers with "not supported".
#include <cerrno>
#include <cstring>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include "tests/stress/soak_objects.h"

// Not in any header that is installed.
extern "C" {
void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
const char* ibv_get_sysfs_path(void);
}

namespace uroce::stress {
namespace {

uint8_t some_port(Random& random) {
  return static_cast<uint8_t>(random.one_in(4) ? random.next() : 1);
}

void query_device(Objects& o) {
  ibv_context* const context = o.context();
  ibv_device_attr attr;
  judge(o, "ibv_query_device", ibv_query_device(context, &attr), {});
  ibv_device_attr_ex extended;
  ibv_query_device_ex_input input{o.random.one_in(4) ? 1u : 0u};
  judge(o, "ibv_query_device_ex", ibv_query_device_ex(context, o.random.one_in(2) ? nullptr : &input, &extended),
        {EINVAL, EOPNOTSUPP});
  ibv_values_ex values{};
  values.comp_mask = static_cast<uint32_t>(o.random.below(4));
  judge(o, "ibv_query_rt_values_ex", ibv_query_rt_values_ex(context, &values), {EINVAL, EOPNOTSUPP});
  ibv_get_device_name(context->device);
  ibv_get_device_guid(context->device);
  ibv_get_device_index(context->device);
}

void query_port(Objects& o) {
  ibv_context* const context = o.context();
  ibv_port_attr port;
  judge(o, "ibv_query_port", ibv_query_port(context, some_port(o.random), &port), {EINVAL});
  ibv_gid gid;
  const int index = static_cast<int>(o.random.below(4)) - (o.random.one_in(4) ? 5 : 0);
  if (ibv_query_gid(context, some_port(o.random), index, &gid) != 0 && errno != EINVAL && errno != ENODATA &&
      errno != ENOENT) {
    give_up("ibv_query_gid: %s", std::strerror(errno));
  }
  ibv_gid_entry entry;
  judge(o, "ibv_query_gid_ex",
        ibv_query_gid_ex(context, some_port(o.random), o.random.below(5), &entry, o.random.below(2)),
        {EINVAL, ENODATA, EOPNOTSUPP});
  ibv_gid_entry table[8];
  const ssize_t count = ibv_query_gid_table(context, table, o.random.below(9), o.random.below(2));
  if (count < 0) judge(o, "ibv_query_gid_table", static_cast<int>(-count), {EINVAL, EOPNOTSUPP});
  __be16 pkey;
  ibv_query_pkey(context, some_port(o.random), index, &pkey);
  ibv_get_pkey_index(context, some_port(o.random), static_cast<uint16_t>(o.random.next()));
}

void ask_names(Objects& o) {
  const auto number = static_cast<int>(o.random.one_in(2) ? o.random.below(40) : o.random.next());
  for (const char* name :
       {ibv_node_type_str(static_cast<ibv_node_type>(number)), ibv_port_state_str(static_cast<ibv_port_state>(number)),
        ibv_event_type_str(static_cast<ibv_event_type>(number)),
        ibv_wc_status_str(static_cast<ibv_wc_status>(number))}) {
    if (name == nullptr || *name == '\0') give_up("nothing is called %d", number);
  }
  const int multiple = ibv_rate_to_mult(static_cast<ibv_rate>(number));
  if (multiple > 0 && mult_to_ibv_rate(multiple) != number) give_up("ibv_rate_to_mult(%d) is %d", number, multiple);
  const int speed = ibv_rate_to_mbps(static_cast<ibv_rate>(number));
  if (speed > 0 && mbps_to_ibv_rate(speed) != number) give_up("ibv_rate_to_mbps(%d) is %d", number, speed);
  ibv_fork_init();
  ibv_is_fork_initialized();
  char text[64];
  ibv_read_sysfs_file("/sys/class/net/lo", o.random.one_in(2) ? "mtu" : "nothing", text, o.random.below(64));
  ibv_get_sysfs_path();
}

void address_from_completion(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  if (pd == nullptr) return;
  ibv_grh grh{};
  for (size_t i = 0; i < sizeof(grh); ++i) reinterpret_cast<uint8_t*>(&grh)[i] = static_cast<uint8_t>(o.random.next());
  ibv_wc wc{};
  wc.wc_flags = o.random.one_in(4) ? 0u : static_cast<unsigned>(IBV_WC_GRH);
  ibv_ah_attr attr{};
  const int result = ibv_init_ah_from_wc(pd->verbs->context, some_port(o.random), &wc, &grh, &attr);
  if (result != 0 && result != -1 && result < 0) give_up("ibv_init_ah_from_wc: %d", result);
  if (ibv_ah* ah = ibv_create_ah_from_wc(pd->verbs, &wc, &grh, some_port(o.random))) {
    judge(o, "ibv_destroy_ah", ibv_destroy_ah(ah), {});
  }
  attr.is_global = 1;
  attr.port_num = 1;
  uint8_t mac[6];
  uint16_t vlan = 0;
  if (ibv_query_gid(pd->verbs->context, 1, 0, &attr.grh.dgid) == 0) {
    ibv_resolve_eth_l2_from_gid(pd->verbs->context, &attr, mac, &vlan);
  }
}

void marshal(Objects&) {
  ib_uverbs_ah_attr kernel_ah{};
  ib_uverbs_qp_attr kernel_qp{};
  ib_user_path_rec kernel_path{};
  ibv_ah_attr ah;
  ibv_qp_attr qp;
  ibv_sa_path_rec path;
  ibv_copy_ah_attr_from_kern(&ah, &kernel_ah);
  ibv_copy_qp_attr_from_kern(&qp, &kernel_qp);
  ibv_copy_path_rec_from_kern(&path, &kernel_path);
  ibv_copy_path_rec_to_kern(&kernel_path, &path);
}

// Slots of the tables that stay empty: the header's inline functions answer.
void ask_for_what_is_not_there(Objects& o) {
  ibv_context* const context = o.context();
  Object<ibv_qp>* qp = o.qps.any(o.random);
  const auto absent = [&](const char* what, const void* made) {
    if (made != nullptr) give_up("%s: made", what);
    judge(o, what, errno, {EOPNOTSUPP, ENOSYS});
  };
  ibv_wq_init_attr wq{};
  absent("ibv_create_wq", ibv_create_wq(context, &wq));
  ibv_rwq_ind_table_init_attr table{};
  absent("ibv_create_rwq_ind_table", ibv_create_rwq_ind_table(context, &table));
  ibv_flow_action_esp_attr esp{};
  absent("ibv_create_flow_action_esp", ibv_create_flow_action_esp(context, &esp));
  ibv_counters_init_attr counters{};
  absent("ibv_create_counters", ibv_create_counters(context, &counters));
  ibv_flow_attr flow{};
  if (qp != nullptr) absent("ibv_create_flow", ibv_create_flow(qp->verbs, &flow));
}

using Call = void (*)(Objects&);
constexpr Call kCalls[] = {
    query_device, query_port, ask_names, address_from_completion, marshal, ask_for_what_is_not_there};

}  // namespace

void random_query(Objects& objects) {
  objects.activity.at("query");
  objects.random.of(kCalls)(objects);
}

}  // namespace uroce::stress
