// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
// What a client cannot do with the sockets on UDP port 4791 that the broker leaves to it: take packets of others,
// change the steering, send to other ports. Programs of the cgroup in which the sockets are made
// (broker/steering/pool.cc): a socket keeps them wherever it is passed, for as long as it lives.
#include <linux/bpf.h>
#include <linux/in.h>

#include <asm/socket.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_UDP_PORT 4791
#define LEVEL_SOCKET 1
#define REFUSE 0
#define ALLOW 1

// A connected socket gets all packets of its peer, whoever they are for.
SEC("cgroup/connect4")
int uroce_connect4(struct bpf_sock_addr* ctx) {
  return REFUSE;
}

SEC("cgroup/connect6")
int uroce_connect6(struct bpf_sock_addr* ctx) {
  return REFUSE;
}

SEC("cgroup/sendmsg4")
int uroce_sendmsg4(struct bpf_sock_addr* ctx) {
  return ctx->user_port == bpf_htons(ROCE_UDP_PORT) ? ALLOW : REFUSE;
}

SEC("cgroup/sendmsg6")
int uroce_sendmsg6(struct bpf_sock_addr* ctx) {
  return ctx->user_port == bpf_htons(ROCE_UDP_PORT) ? ALLOW : REFUSE;
}

// Clients join multicast groups. The broker attaches the filter and locks it, after which the kernel refuses another.
SEC("cgroup/setsockopt")
int uroce_setsockopt(struct bpf_sockopt* ctx) {
  const int name = ctx->optname;
  if (ctx->level == IPPROTO_IP || ctx->level == IPPROTO_IPV6)
    return name == MCAST_JOIN_GROUP || name == MCAST_LEAVE_GROUP ? ALLOW : REFUSE;
  if (ctx->level == LEVEL_SOCKET) return name == SO_ATTACH_FILTER || name == SO_LOCK_FILTER ? ALLOW : REFUSE;
  return REFUSE;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
