// SPDX-License-Identifier: BSD-2-Clause
/* A small verbs application in C, compiled against the distribution's headers: the inline functions of verbs.h with
   their dispatch, as applications have them. The tests take its objects further. */
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kClientMemory = 1 << 20 };

struct client {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_mr* mr;
  unsigned char* memory; /* kClientMemory bytes, registered with all rights */
};

/* Opens the first device. 0 or an errno value; on failure nothing is left open. */
int client_open(struct client* client);
void client_close(struct client* client);

/* An RC QP with 16 work requests and 4 SGEs each way and 64 bytes inline. Null with errno set. */
struct ibv_qp* client_create_qp(struct client* client, struct ibv_cq* cq);
struct ibv_qp_init_attr client_qp_attributes(struct ibv_cq* cq);

/* Takes a QP from RESET to RTS, connected to a QP of this host. 0 or an errno value. */
int client_connect(struct client* client, struct ibv_qp* qp, uint32_t remote_qpn);
/* The same up to INIT only. */
int client_init(struct ibv_qp* qp);

/* Polls until a completion is there, for some seconds. 1, or 0 or less when none came. */
int client_wait(struct ibv_cq* cq, struct ibv_wc* wc);

#ifdef __cplusplus
}
#endif
