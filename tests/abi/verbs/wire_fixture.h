// SPDX-License-Identifier: BSD-2-Clause
// One process with two netdevs, which are the ends of one wire: a device, a context and a QP on each, connected to each
// other. Everything goes through the packet I/O. For tests that run alone (alone.h) with kAllNetdevs.
#pragma once

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "alone.h"
#include "client.h"

inline ibv_context* open_device(const std::string& netdev) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (ibv_get_device_name(list[i]) == "uroce_" + netdev) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

inline ibv_gid gid_of(const std::string& address) {
  ibv_gid gid{};
  in_addr v4{};
  if (inet_pton(AF_INET6, address.c_str(), gid.raw) == 1) return gid;
  EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &v4), 1) << address;
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &v4, 4);
  return gid;
}

// The index of an address in the GID table; -1: not there.
inline int gid_index(ibv_context* context, const std::string& address) {
  const ibv_gid wanted = gid_of(address);
  ibv_gid_entry table[64];
  const ssize_t count = ibv_query_gid_table(context, table, 64, 0);
  for (ssize_t i = 0; i < count; ++i) {
    if (std::memcmp(&table[i].gid, &wanted, sizeof(wanted)) == 0) return static_cast<int>(table[i].gid_index);
  }
  return -1;
}

class Side {
 public:
  static constexpr size_t kSize = 1 << 20;

  explicit Side(const std::string& netdev) : memory(kSize), context(open_device(netdev)) {
    EXPECT_NE(context, nullptr) << netdev;
    if (context == nullptr) return;
    pd = ibv_alloc_pd(context);
    mr = ibv_reg_mr(pd, memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 64, this, channel, 0);
    ibv_qp_init_attr attr = client_qp_attributes(cq);
    qp = ibv_create_qp(pd, &attr);
    EXPECT_NE(qp, nullptr) << netdev << ": " << strerror(errno);
  }
  ~Side() {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    if (cq != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }
    if (channel != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }
    if (mr != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
    if (pd != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    }
    if (context != nullptr) {
      EXPECT_EQ(ibv_close_device(context), 0);
    }
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // 0 or an errno value.
  int connect(const Side& peer, const std::string& own_address, const std::string& peer_address) const {
    return peer.qp == nullptr ? ENOENT : connect(peer.qp->qp_num, own_address, peer_address);
  }
  int connect(uint32_t peer_qpn, const std::string& own_address, const std::string& peer_address) const {
    if (qp == nullptr) return ENOENT;
    if (const int error = client_init(qp)) return error;
    const int index = gid_index(context, own_address);
    EXPECT_GE(index, 0) << own_address;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer_qpn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
    attr.ah_attr.grh.dgid = gid_of(peer_address);
    if (const int error = ibv_modify_qp(qp, &attr,
                                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
      return error;
    }
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 16;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    return ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  // `size` bytes of `fill` into the peer's memory. -1: no completion.
  int write(Side& peer, unsigned char fill, uint32_t size = kSize) {
    std::memset(memory.data(), fill, size);
    ibv_sge list{reinterpret_cast<uintptr_t>(memory.data()), size, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(peer.memory.data());
    wr.wr.rdma.rkey = peer.mr->rkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp, &wr, &bad) != 0) return -1;
    ibv_wc wc{};
    if (client_wait(cq, &wc) != 1) return -1;
    if (wc.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(std::memcmp(memory.data(), peer.memory.data(), size), 0);
    }
    return wc.status;
  }

  std::vector<unsigned char> memory;
  ibv_context* context;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

// Addresses for both ends. What goes through the kernel's stack (UDP sockets) needs more: it takes packets from its own
// addresses for spoofed, and answers for the addresses of all its netdevs on each.
inline void set_up_wire(const std::string& near = "rdma0", const std::string& far = "other0") {
  run("ip addr replace 192.0.2.1/24 dev " + near + " && ip addr add 192.0.2.2/24 dev " + far);
  run("ip addr add fd00:192:0:2::1/64 dev " + near + " nodad && ip addr add fd00:192:0:2::2/64 dev " + far + " nodad");
  if (std::string(getenv("UROCE_IO")) != "udp") return;
  run("echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore");
  for (const std::string& name : {std::string("all"), near, far}) {
    run("cd /proc/sys/net/ipv4/conf/" + name + " && echo 1 > accept_local && echo 0 > rp_filter");
  }
}
