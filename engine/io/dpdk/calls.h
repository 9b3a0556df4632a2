// SPDX-License-Identifier: BSD-2-Clause
// Between DpdkIo and uroce_dpdk.so, which alone is linked with DPDK: ports that move frames, as a table of functions.
// Plain data and C functions, because the two are linked apart and each has a C++ library of its own. Whoever includes
// this needs no DPDK.
//
// The functions of a port are called by one thread at a time, any thread: DPDK need not know it. What the module tells
// of a frame comes from the driver: its lengths lie inside the buffers that it names (see receive).
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::io {

struct DpdkPort;  // of the module

struct DpdkPortConfig {
  const char* devargs;   // "net_af_packet0,iface=eth0", "0000:01:00.0"
  uint32_t buffer_size;  // bytes of a frame in one buffer
  uint32_t mtu;          // what the port is to take, where the driver can be told
  uint32_t queues;       // at most so many, each way
  uint16_t vlan;         // ID of the VLAN that all frames belong to; 0: none
  // Not null: the port's MAC address from now on; and frames to all groups are taken. Null: the kernel sees to that.
  const uint8_t* mac;
  // On a netdev: only packets to these QP numbers and to groups are wanted. None: all.
  uint32_t first_qpn, qpn_count;
};

struct DpdkPortInfo {
  static constexpr size_t kMaxDescriptors = 16;

  int ifindex;  // of the kernel's netdev that is behind the port; 0: the kernel does not see it
  uint8_t mac[6];
  char driver[32];
  uint32_t queues;
  bool hugepages;
  bool inserts_vlan;  // of frames to send, where DpdkBuffer::vlan says so
  // To sleep on: readable when frames are there. None: the driver has no interrupts.
  uint32_t descriptor_count;
  int descriptors[kMaxDescriptors];
};

// A buffer with a frame, or for one.
struct DpdkBuffer {
  void* handle;       // the module's
  uint8_t* data;      // of the first segment
  uint32_t size;      // bytes in the first segment; of a free buffer: room
  uint32_t total;     // bytes in all of them
  uint16_t segments;  // 0: what the driver says of it cannot be, and there are no bytes
  uint16_t vlan;      // ID in the tag that the driver has taken out of it, or is to put into it; 0: none
  bool bad_checksum;  // the NIC says so
};

struct DpdkPortCounters {
  uint64_t rx_no_buffer;  // lost: a ring was full, or no buffer was free
  uint64_t tx_errors;     // the driver took them and did not send them
};

struct DpdkText {
  char text[512];
};

struct DpdkCalls {
  const char* interface;     // UROCE_DPDK_INTERFACE of the build
  const char* (*version)();  // "DPDK 22.11.11"

  // Opens a port; the first one starts DPDK, in the calling thread, which is none of the application's. Null, and why.
  DpdkPort* (*open)(const DpdkPortConfig* config, DpdkPortInfo* info, DpdkText* error);
  // All buffers that were received or reserved have been given back.
  void (*close)(DpdkPort* port);

  // Up to `count` frames, which are the caller's until release(). `size` <= `total`, and the first segment has `size`
  // bytes at `data`.
  size_t (*receive)(DpdkPort* port, DpdkBuffer* frames, size_t count);
  void (*release)(const DpdkBuffer* frames, size_t count);
  // Copies the frame, in however many segments, to `out`. The number of bytes; 0: it has more than `room`, or its
  // segments and its length disagree.
  size_t (*gather)(const DpdkBuffer* frame, uint8_t* out, size_t room);

  // Free buffers to build frames in, `count` or none. Whoever has filled one sets `size`.
  size_t (*reserve)(DpdkPort* port, DpdkBuffer* buffers, size_t count);
  // Hands frames to the driver: how many it took, which are not the caller's any more.
  size_t (*send)(DpdkPort* port, uint32_t queue, const DpdkBuffer* frames, size_t count);

  bool (*link_up)(DpdkPort* port);
  // Before a sleep on the descriptors: asks for interrupts. False: frames are there.
  bool (*arm)(DpdkPort* port);
  void (*counters)(DpdkPort* port, DpdkPortCounters* counters);
};

}  // namespace uroce::io
