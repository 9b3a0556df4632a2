// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
// RoCE v2 packets for our own addresses are kept from the kernel's network stack; everything else goes on into it as if
// nothing were attached. One of these programs is loaded (engine/io/steering_program.cc):
//
//  - uroce_steer takes all of them: the process has the netdev for itself.
//  - uroce_steer_qpn takes those for a range of QPNs and leaves the others, multicast packets among them, to the
//  sockets
//    on port 4791 that other processes have there, and this one too (io/frames_and_sockets.h).
//  - uroce_drop_copies drops, behind the packet sockets of DPDK's net_af_packet, what these take and sockets on the
//  port
//    have no use for: packets for a range of QPNs in frames of their own. Runs of packets go on: they are too long for
//    the rings.
//
// The first two are XDP programs, and give packets to the AF_XDP socket of the receive queue; the third one is at the
// netdev's ingress (tcx).
//
// To us: untagged Ethernet II to the netdev's own MAC address, or to that of the multicast group that the packet is
// for; IPv4 without options and not a fragment, or IPv6 without extension headers; UDP port 4791; destination address
// in `local_addresses`. Deliberately left to the kernel:
//  - VLAN tagged frames: a VLAN is a netdev of its own. A tag that hardware has stripped cannot be seen by XDP: AfXdp
//  is
//    not opened where VLAN netdevs stand above such hardware (engine/io/netdev_query.h).
//  - frames to other MAC addresses, which a bridge floods or a promiscuous netdev lets in. The kernel drops them.
//  - packets that this host only forwards or bridges: their destination is not in `local_addresses`.
//  - queues without a socket (a miss in `xsks`).
// Nothing beyond these headers and the QPN is judged here; user space checks lengths and the ICRC and counts what is
// wrong.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// enum tcx_action_base, Linux 6.6
#define TCX_NEXT (-1)
#define TCX_DROP 2

#define ROCE_UDP_PORT 4791
#define BTH_DESTINATION_QP 5
#define QPN_SIZE 3
#define IP_FRAGMENT_MASK 0x3fff  // "more fragments" and the fragment offset

// An IPv6 address or an IPv4 address as ::ffff:a.b.c.d: the bytes of wire::IpAddress.
struct address {
  __u32 words[4];  // network byte order
};

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __type(key, __u32);  // receive queue
  __type(value, __u32);
  __uint(max_entries, 1);  // set to the number of queues before loading
} xsks SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct address);
  __type(value, __u8);
  __uint(max_entries, 16384);  // the netdev's addresses, and 8192 multicast groups
} local_addresses SEC(".maps");

struct mac_address {
  __u8 bytes[ETH_ALEN];
  __u8 unused[2];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __type(key, __u32);
  __type(value, struct mac_address);
  __uint(max_entries, 1);
} own_mac SEC(".maps");

// Of uroce_steer_qpn and uroce_drop_copies; set before loading.
const volatile __u32 first_qpn = 0;
const volatile __u32 qpn_count = 0;

static __always_inline int same_mac(const __u8* a, const __u8* b) {
  return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && a[5] == b[5];
}

// Where frames to a multicast group go: RFC 1112 section 6.4 (23 bits of the address), RFC 2464 section 7 (32 bits).
// False: not a multicast address.
static __always_inline int group_mac(const struct address* destination, __u8* mac) {
  const __u8* bytes = (const __u8*)destination;
  if (bytes[0] == 0xff) {
    mac[0] = mac[1] = 0x33;
    mac[2] = bytes[12];
    mac[3] = bytes[13];
    mac[4] = bytes[14];
    mac[5] = bytes[15];
    return 1;
  }
  if (destination->words[0] || destination->words[1] || destination->words[2] != bpf_htonl(0x0000ffff)) return 0;
  if ((bytes[12] & 0xf0) != 0xe0) return 0;
  mac[0] = 0x01;
  mac[1] = 0x00;
  mac[2] = 0x5e;
  mac[3] = bytes[13] & 0x7f;
  mac[4] = bytes[14];
  mac[5] = bytes[15];
  return 1;
}

static __always_inline int addressed_to_us(const __u8* destination_mac, const struct address* destination) {
  const __u32 only = 0;
  const struct mac_address* own = bpf_map_lookup_elem(&own_mac, &only);
  if (own && same_mac(destination_mac, own->bytes)) return 1;
  __u8 group[ETH_ALEN];
  return group_mac(destination, group) && same_mac(destination_mac, group);
}

// The headers of a RoCE v2 packet, as far as its QPN.
struct headers {
  struct ethhdr* ethernet;
  struct udphdr* udp;
  struct address destination;
};

// Whether there are `size` bytes from `start` on. `checked`: there are, which is known. A constant: without CAP_PERFMON
// the kernel has only such pointers compared that point into packets, and `start` may not.
static __always_inline int has(const void* start, __u64 size, const void* end, int checked) {
  return checked || start + size <= end;
}

static __always_inline int udp_of_ipv4(void* network, void* end, int checked, struct headers* out) {
  struct iphdr* ip = network;
  if (!has(ip, sizeof(*ip), end, checked)) return 0;
  if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP) return 0;
  if (ip->frag_off & bpf_htons(IP_FRAGMENT_MASK)) return 0;
  out->destination.words[2] = bpf_htonl(0x0000ffff);
  out->destination.words[3] = ip->daddr;
  out->udp = (struct udphdr*)(ip + 1);
  return 1;
}

static __always_inline int udp_of_ipv6(void* network, void* end, int checked, struct headers* out) {
  struct ipv6hdr* ip = network;
  if (!has(ip, sizeof(*ip), end, checked)) return 0;
  if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP) return 0;
  __builtin_memcpy(&out->destination, &ip->daddr, sizeof(out->destination));
  out->udp = (struct udphdr*)(ip + 1);
  return 1;
}

// Whether the frame has the headers of a RoCE v2 packet. `checked`, a constant: it is as long as any of them.
static __always_inline int parse(void* frame, void* end, int checked, struct headers* out) {
  struct ethhdr* ethernet = frame;
  if (!has(ethernet, sizeof(*ethernet), end, checked)) return 0;
  out->ethernet = ethernet;
  int found = 0;
  if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
    found = udp_of_ipv4(ethernet + 1, end, checked, out);
  } else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
    found = udp_of_ipv6(ethernet + 1, end, checked, out);
  }
  return found && has(out->udp, sizeof(*out->udp), end, checked) && out->udp->dest == bpf_htons(ROCE_UDP_PORT);
}

// Its QPN is in the range.
static __always_inline int for_our_qpns(const struct headers* packet, void* end, int checked) {
  const __u8* qpn = (const __u8*)(packet->udp + 1) + BTH_DESTINATION_QP;
  if (!has(qpn, QPN_SIZE, end, checked)) return 0;
  const __u32 number = qpn[0] << 16 | qpn[1] << 8 | qpn[2];
  return number - first_qpn < qpn_count;
}

static __always_inline int to_us(const struct headers* packet) {
  return bpf_map_lookup_elem(&local_addresses, &packet->destination) &&
         addressed_to_us(packet->ethernet->h_dest, &packet->destination);
}

SEC("xdp.frags")
int uroce_steer(struct xdp_md* ctx) {
  struct headers packet = {};
  const int taken = parse((void*)(long)ctx->data, (void*)(long)ctx->data_end, 0, &packet) && to_us(&packet);
  return taken ? bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) : XDP_PASS;
}

SEC("xdp.frags")
int uroce_steer_qpn(struct xdp_md* ctx) {
  struct headers packet = {};
  void* end = (void*)(long)ctx->data_end;
  const int taken = parse((void*)(long)ctx->data, end, 0, &packet) && for_our_qpns(&packet, end, 0) && to_us(&packet);
  return taken ? bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) : XDP_PASS;
}

// To the QPN.
#define HEADERS_V4 \
  (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr) + BTH_DESTINATION_QP + QPN_SIZE)
#define HEADERS_V6 (HEADERS_V4 + sizeof(struct ipv6hdr) - sizeof(struct iphdr))
#define IP_ALIGN 2  // puts the IP header where its words can be read

// Of a frame that comes over veth from a ring only the Ethernet header lies in one piece. So headers are copied.
SEC("tc")
int uroce_drop_copies(struct __sk_buff* ctx) {
  __u8 bytes[IP_ALIGN + HEADERS_V6] __attribute__((aligned(8))) = {};
  void* frame = bytes + IP_ALIGN;
  struct headers packet = {};
  if (ctx->gso_size || ctx->vlan_present) return TCX_NEXT;
  if (ctx->protocol == bpf_htons(ETH_P_IP)) {
    if (bpf_skb_load_bytes(ctx, 0, frame, HEADERS_V4)) return TCX_NEXT;
  } else if (ctx->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(ctx, 0, frame, HEADERS_V6)) {
    return TCX_NEXT;
  }
  return parse(frame, 0, 1, &packet) && for_our_qpns(&packet, 0, 1) && to_us(&packet) ? TCX_DROP : TCX_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
