// SPDX-License-Identifier: BSD-2-Clause
// The layout against the header of the system, which is the definition.
#include "abi/rdma_cm_file/abi.h"

#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

namespace uroce::rdma_cm::abi {
namespace {

#define SAME_SIZE(ours, theirs) EXPECT_EQ(sizeof(ours), sizeof(theirs)) << #theirs
#define SAME(ours, theirs, field)                                                        \
  EXPECT_EQ(offsetof(ours, field), offsetof(theirs, field)) << #theirs << "." << #field; \
  EXPECT_EQ(sizeof(ours::field), sizeof(theirs::field)) << #theirs << "." << #field

TEST(Abi, CommandsHaveTheSizesAndFieldsOfTheHeader) {
  SAME_SIZE(Header, rdma_ucm_cmd_hdr);
  SAME_SIZE(CreateId, rdma_ucm_create_id);
  SAME(CreateId, rdma_ucm_create_id, uid);
  SAME(CreateId, rdma_ucm_create_id, response);
  SAME(CreateId, rdma_ucm_create_id, ps);
  SAME(CreateId, rdma_ucm_create_id, qp_type);
  SAME_SIZE(DestroyId, rdma_ucm_destroy_id);
  SAME(DestroyId, rdma_ucm_destroy_id, id);
  SAME_SIZE(BindIp, rdma_ucm_bind_ip);
  SAME(BindIp, rdma_ucm_bind_ip, addr);
  SAME(BindIp, rdma_ucm_bind_ip, id);
  SAME_SIZE(ResolveIp, rdma_ucm_resolve_ip);
  SAME(ResolveIp, rdma_ucm_resolve_ip, dst_addr);
  SAME(ResolveIp, rdma_ucm_resolve_ip, id);
  SAME(ResolveIp, rdma_ucm_resolve_ip, timeout_ms);
  SAME_SIZE(ResolveRoute, rdma_ucm_resolve_route);
  SAME_SIZE(QueryRoute, rdma_ucm_query);
  SAME_SIZE(Connect, rdma_ucm_connect);
  SAME(Connect, rdma_ucm_connect, id);
  SAME(Connect, rdma_ucm_connect, ece);
  SAME_SIZE(Listen, rdma_ucm_listen);
  SAME_SIZE(Accept, rdma_ucm_accept);
  SAME(Accept, rdma_ucm_accept, conn_param);
  SAME(Accept, rdma_ucm_accept, id);
  SAME(Accept, rdma_ucm_accept, ece);
  SAME_SIZE(Reject, rdma_ucm_reject);
  SAME(Reject, rdma_ucm_reject, reason);
  SAME(Reject, rdma_ucm_reject, private_data);
  SAME_SIZE(Disconnect, rdma_ucm_disconnect);
  SAME_SIZE(InitQpAttr, rdma_ucm_init_qp_attr);
  SAME_SIZE(GetEvent, rdma_ucm_get_event);
  SAME_SIZE(SetOption, rdma_ucm_set_option);
  SAME(SetOption, rdma_ucm_set_option, optname);
  SAME_SIZE(Notify, rdma_ucm_notify);
  SAME_SIZE(JoinIpMcast, rdma_ucm_join_ip_mcast);
  SAME(JoinIpMcast, rdma_ucm_join_ip_mcast, addr);
  SAME(JoinIpMcast, rdma_ucm_join_ip_mcast, id);
  SAME_SIZE(MigrateId, rdma_ucm_migrate_id);
  SAME_SIZE(Query, rdma_ucm_query);
  SAME_SIZE(Bind, rdma_ucm_bind);
  SAME(Bind, rdma_ucm_bind, addr);
  SAME_SIZE(ResolveAddr, rdma_ucm_resolve_addr);
  SAME(ResolveAddr, rdma_ucm_resolve_addr, src_addr);
  SAME(ResolveAddr, rdma_ucm_resolve_addr, dst_addr);
  SAME_SIZE(JoinMcast, rdma_ucm_join_mcast);
  SAME(JoinMcast, rdma_ucm_join_mcast, id);
  SAME(JoinMcast, rdma_ucm_join_mcast, join_flags);
  SAME(JoinMcast, rdma_ucm_join_mcast, addr);
}

TEST(Abi, AnswersHaveTheSizesAndFieldsOfTheHeader) {
  SAME_SIZE(ConnParam, rdma_ucm_conn_param);
  SAME(ConnParam, rdma_ucm_conn_param, private_data_len);
  SAME(ConnParam, rdma_ucm_conn_param, rnr_retry_count);
  SAME(ConnParam, rdma_ucm_conn_param, valid);
  SAME_SIZE(UdParam, rdma_ucm_ud_param);
  SAME(UdParam, rdma_ucm_ud_param, ah_attr);
  SAME(UdParam, rdma_ucm_ud_param, private_data);
  SAME(UdParam, rdma_ucm_ud_param, private_data_len);
  SAME_SIZE(Event, rdma_ucm_event_resp);
  SAME(Event, rdma_ucm_event_resp, status);
  SAME(Event, rdma_ucm_event_resp, param);
  SAME(Event, rdma_ucm_event_resp, ece);
  SAME_SIZE(PathRecord, ib_user_path_rec);
  SAME(PathRecord, ib_user_path_rec, flow_label);
  SAME(PathRecord, ib_user_path_rec, pkey);
  SAME(PathRecord, ib_user_path_rec, preference);
  SAME_SIZE(QueryRouteAnswer, rdma_ucm_query_route_resp);
  SAME(QueryRouteAnswer, rdma_ucm_query_route_resp, ib_route);
  SAME(QueryRouteAnswer, rdma_ucm_query_route_resp, dst_addr);
  SAME(QueryRouteAnswer, rdma_ucm_query_route_resp, num_paths);
  SAME(QueryRouteAnswer, rdma_ucm_query_route_resp, ibdev_index);
  SAME_SIZE(QueryAddrAnswer, rdma_ucm_query_addr_resp);
  SAME(QueryAddrAnswer, rdma_ucm_query_addr_resp, pkey);
  SAME(QueryAddrAnswer, rdma_ucm_query_addr_resp, src_addr);
  SAME(QueryAddrAnswer, rdma_ucm_query_addr_resp, ibdev_index);
  SAME_SIZE(PathData, ib_path_rec_data);
  SAME_SIZE(AhAttr, ib_uverbs_ah_attr);
  SAME(AhAttr, ib_uverbs_ah_attr, dlid);
  SAME(AhAttr, ib_uverbs_ah_attr, is_global);
  SAME(AhAttr, ib_uverbs_ah_attr, port_num);
  SAME_SIZE(QpAttr, ib_uverbs_qp_attr);
  SAME(QpAttr, ib_uverbs_qp_attr, dest_qp_num);
  SAME(QpAttr, ib_uverbs_qp_attr, ah_attr);
  SAME(QpAttr, ib_uverbs_qp_attr, pkey_index);
  SAME(QpAttr, ib_uverbs_qp_attr, max_rd_atomic);
  SAME(QpAttr, ib_uverbs_qp_attr, min_rnr_timer);
  SAME(QpAttr, ib_uverbs_qp_attr, timeout);
  SAME(QpAttr, ib_uverbs_qp_attr, rnr_retry);
}

TEST(Abi, CommandsHaveTheNumbersOfTheHeader) {
  EXPECT_EQ(static_cast<uint32_t>(Command::kConnect), uint32_t{RDMA_USER_CM_CMD_CONNECT});
  EXPECT_EQ(static_cast<uint32_t>(Command::kGetEvent), uint32_t{RDMA_USER_CM_CMD_GET_EVENT});
  EXPECT_EQ(static_cast<uint32_t>(Command::kMigrateId), uint32_t{RDMA_USER_CM_CMD_MIGRATE_ID});
  EXPECT_EQ(static_cast<uint32_t>(Command::kJoinMcast), uint32_t{RDMA_USER_CM_CMD_JOIN_MCAST});
}

}  // namespace
}  // namespace uroce::rdma_cm::abi
