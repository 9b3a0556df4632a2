// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
// Which socket on UDP port 4791 of a network namespace gets a packet, where several processes have sockets on it:
// the one that was leased the QPN. Loaded by the broker (broker/steering/map.cc).
//
// The sockets are SO_REUSEPORT groups, one for each IP version. A packet that no lease has goes to the broker's own
// member. Without a broker it is dropped; those for leases go on arriving. Of a multicast packet each socket that
// joined the group gets a copy. If only one has, on a host with few sockets, the kernel finds it before (early
// demultiplexing of IPv4) and asks here all the same: that one stays.
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_UDP_PORT 4791
#define RANGE_BITS 14  // QpnRange::kBits
#define RANGES (1 << (24 - RANGE_BITS))
#define BTH_DESTINATION_QP 5
#define MULTICAST_QPN 0xffffff
#define OWN 0  // the broker's; there is no lease of this number
#define FAMILY_IPV4 2
#define STAGES 32  // Staging::kStages

// Sockmaps, not REUSEPORT_SOCKARRAYs, in which a socket can be once only: a new broker puts the sockets of living
// clients into maps of its own while the program of the one that died still steers with the old ones.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKMAP);
  __type(key, __u32);  // number of the range
  __type(value, __u64);
  __uint(max_entries, RANGES);
} members_v4 SEC(".maps"), members_v6 SEC(".maps");

// All that were leased and are open, with or without packets: those of IPv6 at RANGES + number. For the broker, which
// sees by it when a range can be leased again.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKMAP);
  __type(key, __u32);
  __type(value, __u64);
  __uint(max_entries, 2 * RANGES);
} open_sockets SEC(".maps");

// Sockets that a client of an earlier broker has brought, until they are steered to: those of IPv6 at STAGES + place.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKMAP);
  __type(key, __u32);
  __type(value, __u64);
  __uint(max_entries, 2 * STAGES);
} staged SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __type(key, __u64);    // cookie of an IPv4 member
  __type(value, __u32);  // number of its range
  __uint(max_entries, RANGES);
} numbers SEC(".maps");

static __always_inline long pick(struct sk_reuseport_md* ctx, __u32 number) {
  if (ctx->eth_protocol == bpf_htons(ETH_P_IP)) return bpf_sk_select_reuseport(ctx, &members_v4, &number, 0);
  return bpf_sk_select_reuseport(ctx, &members_v6, &number, 0);
}

static __always_inline __u32 number_of_found(struct sk_reuseport_md* ctx) {
  const __u64 cookie = bpf_get_socket_cookie(ctx->sk);
  const __u32* number = bpf_map_lookup_elem(&numbers, &cookie);
  return number ? *number : OWN;
}

// A run of packets is not linear in memory, and has one QPN.
static __always_inline __u32 range_number(struct sk_reuseport_md* ctx) {
  __u8 bytes[3];
  if (bpf_skb_load_bytes(ctx, sizeof(struct udphdr) + BTH_DESTINATION_QP, bytes, sizeof(bytes))) return OWN;
  const __u32 qpn = bytes[0] << 16 | bytes[1] << 8 | bytes[2];
  return qpn == MULTICAST_QPN ? number_of_found(ctx) : qpn >> RANGE_BITS;
}

SEC("sk_reuseport")
int uroce_qpn_steer(struct sk_reuseport_md* ctx) {
  const __u32 number = range_number(ctx);
  if (pick(ctx, number) == 0) return SK_PASS;
  return pick(ctx, OWN) == 0 ? SK_PASS : SK_DROP;
}

// connect() with AF_UNSPEC, which no program can forbid, takes a socket out of its group, and it may then be the first
// that the kernel finds on the port. So look-ups begin at the broker's own member, and go on within its group.
SEC("sk_lookup")
int uroce_port_lookup(struct bpf_sk_lookup* ctx) {
  const __u32 own = OWN;
  if (ctx->protocol != IPPROTO_UDP || ctx->local_port != ROCE_UDP_PORT) return SK_PASS;
  struct bpf_sock* socket =
      ctx->family == FAMILY_IPV4 ? bpf_map_lookup_elem(&members_v4, &own) : bpf_map_lookup_elem(&members_v6, &own);
  if (!socket) return SK_PASS;
  bpf_sk_assign(ctx, socket, 0);
  bpf_sk_release(socket);
  return SK_PASS;
}

// From `staged` at cb[0] to the range of number cb[1]. Run by the broker (BPF_PROG_TEST_RUN): a program takes a socket
// from map to map without the lock of the socket, which its holder can keep; the system call that updates a map waits
// for it.
SEC("tc")
int uroce_admit(struct __sk_buff* request) {
  const __u32 place = request->cb[0], number = request->cb[1];
  const __u32 place_v6 = STAGES + place, open_v6 = RANGES + number;
  struct bpf_sock* v4 = bpf_map_lookup_elem(&staged, &place);
  if (!v4) return -ENOENT;
  long error = bpf_map_update_elem(&open_sockets, &number, v4, BPF_ANY);
  if (!error) error = bpf_map_update_elem(&members_v4, &number, v4, BPF_ANY);
  bpf_sk_release(v4);
  struct bpf_sock* v6 = error ? 0 : bpf_map_lookup_elem(&staged, &place_v6);
  if (!v6) return error;
  error = bpf_map_update_elem(&open_sockets, &open_v6, v6, BPF_ANY);
  if (!error) error = bpf_map_update_elem(&members_v6, &number, v6, BPF_ANY);
  bpf_sk_release(v6);
  return error;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
