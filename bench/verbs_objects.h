// SPDX-License-Identifier: BSD-2-Clause
// What benchmarks over verbs begin with: a device with a memory region, its completion queues, and connected RC QPs.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <vector>

namespace uroce::bench {

void check(bool good, const char* what);  // throws what errno says

template <auto destroy>
struct Destroy {
  void operator()(auto* object) const { destroy(object); }
};
using ContextPtr = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using PdPtr = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using MrPtr = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;
using CqPtr = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using QpPtr = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;

class Device {
 public:
  Device(const char* name, size_t memory_size);

  ibv_pd* pd() const { return pd_.get(); }
  uint8_t* memory() { return memory_.data(); }
  uint32_t key() const { return mr_->lkey; }  // the rkey is the same
  ibv_gid gid() const;
  CqPtr create_cq(uint32_t entries);

 private:
  std::vector<uint8_t> memory_;
  ContextPtr context_;
  PdPtr pd_;
  MrPtr mr_;
};

QpPtr create_qp(Device& device, ibv_cq& cq, const ibv_qp_cap& capacity);
void connect(ibv_qp& qp, const ibv_gid& peer, uint32_t peer_qpn, ibv_mtu path_mtu);  // from RESET to RTS

}  // namespace uroce::bench
