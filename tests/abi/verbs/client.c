// SPDX-License-Identifier: BSD-2-Clause
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ibv_context* open_first_device(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  struct ibv_context* context = NULL;
  if (list == NULL) return NULL;
  errno = ENODEV;
  if (count > 0) context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  return context;
}

int client_open(struct client* client) {
  memset(client, 0, sizeof(*client));
  client->context = open_first_device();
  if (client->context == NULL) return errno;
  client->pd = ibv_alloc_pd(client->context);
  client->memory = calloc(1, kClientMemory);
  if (client->pd != NULL && client->memory != NULL) {
    client->mr = ibv_reg_mr(
        client->pd, client->memory, kClientMemory,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  }
  if (client->mr == NULL) {
    const int error = errno;
    client_close(client);
    return error;
  }
  return 0;
}

void client_close(struct client* client) {
  if (client->mr != NULL) ibv_dereg_mr(client->mr);
  if (client->pd != NULL) ibv_dealloc_pd(client->pd);
  if (client->context != NULL) ibv_close_device(client->context);
  free(client->memory);
  memset(client, 0, sizeof(*client));
}

struct ibv_qp_init_attr client_qp_attributes(struct ibv_cq* cq) {
  struct ibv_qp_init_attr attr;
  memset(&attr, 0, sizeof(attr));
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 4;
  attr.cap.max_inline_data = 64;
  return attr;
}

struct ibv_qp* client_create_qp(struct client* client, struct ibv_cq* cq) {
  struct ibv_qp_init_attr attr = client_qp_attributes(cq);
  return ibv_create_qp(client->pd, &attr);
}

int client_init(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct client* client, struct ibv_qp* qp, uint32_t remote_qpn) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof(attr));
  if (ibv_query_gid(client->context, 1, 0, &attr.ah_attr.grh.dgid) != 0) return errno;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = remote_qpn;
  attr.rq_psn = 0x123456;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.sq_psn = 0x123456;
  attr.max_rd_atomic = 4;
  return ibv_modify_qp(
      qp, &attr,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int client_connect(struct client* client, struct ibv_qp* qp, uint32_t remote_qpn) {
  int error = client_init(qp);
  if (error == 0) error = to_rtr(client, qp, remote_qpn);
  if (error == 0) error = to_rts(qp);
  return error;
}

int client_wait(struct ibv_cq* cq, struct ibv_wc* wc) {
  const time_t give_up = time(NULL) + 10;
  int count;
  do {
    count = ibv_poll_cq(cq, 1, wc);
  } while (count == 0 && time(NULL) < give_up);
  return count;
}
