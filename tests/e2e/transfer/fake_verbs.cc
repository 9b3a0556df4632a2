// SPDX-License-Identifier: BSD-2-Clause
// A libibverbs within the process, just as much of it as rc_transfer calls. rc_transfer judges providers; this judges
// rc_transfer: detection_test.sh runs it linked with this in place of libibverbs and expects every fault that
// fake_fabric.cc can plant to be found. RC_TRANSFER_FAULT=name[:n] plants the fault `name` at its n-th opportunity
// (default 20); repeated_write repeats every WRITE three WRITEs later.

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "tests/e2e/transfer/fake_fabric.h"

namespace uroce::transfer::fake {
namespace {

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr**) {
  auto& qp = *reinterpret_cast<Qp*>(base);
  const std::lock_guard lock(world().mutex);
  for (; wr != nullptr; wr = wr->next) {
    SendRequest request{*wr, {wr->sg_list, wr->sg_list + wr->num_sge}, {}};
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) request.inlined = gather(request.sges);
    qp.sends.push_back(std::move(request));
  }
  world().work.notify_one();
  return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr**) {
  auto& qp = *reinterpret_cast<Qp*>(base);
  const std::lock_guard lock(world().mutex);
  for (; wr != nullptr; wr = wr->next) qp.receives.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
  world().work.notify_one();
  return 0;
}

int poll_cq(ibv_cq* base, int count, ibv_wc* wc) {
  auto& cq = *reinterpret_cast<Cq*>(base);
  const std::lock_guard lock(world().mutex);
  int polled = 0;
  for (; polled < count && !cq.entries.empty(); ++polled) {
    wc[polled] = cq.entries.front();
    cq.entries.pop_front();
  }
  return polled;
}

int req_notify_cq(ibv_cq* base, int) {
  const std::lock_guard lock(world().mutex);
  reinterpret_cast<Cq*>(base)->armed = true;
  return 0;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  const std::lock_guard lock(world().mutex);
  return new ibv_mw{pd->context, pd, world().next_key += 0x100, 0, type};
}

int dealloc_mw(ibv_mw* mw) {
  delete mw;
  return 0;
}

}  // namespace
}  // namespace uroce::transfer::fake

using namespace uroce::transfer::fake;

extern "C" {

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

ibv_device** ibv_get_device_list(int* count) {
  std::strcpy(world().device.name, "fake_0");
  *count = 1;
  return new ibv_device* [2] { &world().device, nullptr };
}
void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* ibv_open_device(ibv_device* device) {
  ibv_context& context = world().context;
  context.device = device;
  context.async_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.alloc_mw = alloc_mw;
  context.ops.dealloc_mw = dealloc_mw;
  world().engine = std::thread(run_engine);
  return &context;
}
int ibv_close_device(ibv_context* context) {
  {
    const std::lock_guard lock(world().mutex);
    world().stop = true;
  }
  world().work.notify_one();
  world().engine.join();
  return close(context->async_fd);
}

int ibv_query_device(ibv_context*, ibv_device_attr* attr) {
  *attr = {};
  attr->max_sge = 16;
  attr->max_sge_rd = 16;
  attr->max_qp_rd_atom = 16;
  attr->max_qp_init_rd_atom = 16;
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* attr) {
  auto* port = reinterpret_cast<ibv_port_attr*>(attr);
  port->state = IBV_PORT_ACTIVE;
  port->active_mtu = IBV_MTU_1024;
  return 0;
}
int ibv_query_gid(ibv_context*, uint8_t, int, ibv_gid* gid) {
  *gid = {};
  return 0;
}
int ibv_get_async_event(ibv_context*, ibv_async_event*) {
  errno = EAGAIN;
  return -1;
}
void ibv_ack_async_event(ibv_async_event*) {}
const char* ibv_event_type_str(ibv_event_type) {
  return "event";
}
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_SUCCESS ? "success" : "error";
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return new ibv_pd{context, 0};
}
int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int) {
  const std::lock_guard lock(world().mutex);
  const uint32_t key = world().next_key += 0x100;
  world().regions[key] = {reinterpret_cast<uintptr_t>(address), length};
  return new ibv_mr{pd->context, pd, address, length, 0, key, key};
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t, unsigned int) {
  return ibv_reg_mr(pd, address, length, 0);
}
int ibv_dereg_mr(ibv_mr* mr) {
  const std::lock_guard lock(world().mutex);
  world().regions.erase(mr->lkey);
  delete mr;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  auto* channel = new Channel;
  channel->base = {context, ends[0], 0};
  channel->write_end = ends[1];
  return &channel->base;
}
int ibv_destroy_comp_channel(ibv_comp_channel* base) {
  auto* channel = reinterpret_cast<Channel*>(base);
  close(base->fd);
  close(channel->write_end);
  delete channel;
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** cq, void** cq_context) {
  char byte;
  if (read(base->fd, &byte, 1) != 1) return -1;
  auto* channel = reinterpret_cast<Channel*>(base);
  const std::lock_guard lock(world().mutex);
  *cq = channel->events.front();
  *cq_context = (*cq)->cq_context;
  channel->events.pop_front();
  return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned int) {}

ibv_cq* ibv_create_cq(ibv_context* context, int, void* cq_context, ibv_comp_channel* channel, int) {
  auto* cq = new Cq;
  cq->base.context = context;
  cq->base.channel = channel;
  cq->base.cq_context = cq_context;
  return &cq->base;
}
int ibv_destroy_cq(ibv_cq* cq) {
  delete reinterpret_cast<Cq*>(cq);
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  const std::lock_guard lock(world().mutex);
  auto* qp = new Qp;
  qp->base.context = pd->context;
  qp->base.send_cq = init->send_cq;
  qp->base.recv_cq = init->recv_cq;
  qp->base.qp_num = world().next_qpn++;
  world().qps[qp->base.qp_num] = qp;
  return &qp->base;
}
int ibv_destroy_qp(ibv_qp* qp) {
  const std::lock_guard lock(world().mutex);
  world().qps.erase(qp->qp_num);
  delete reinterpret_cast<Qp*>(qp);
  return 0;
}
int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
  const std::lock_guard lock(world().mutex);
  base->state = attr->qp_state;
  if ((mask & IBV_QP_DEST_QPN) != 0) reinterpret_cast<Qp*>(base)->peer = attr->dest_qp_num;
  world().work.notify_one();
  return 0;
}
int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  attr->qp_state = qp->state;
  return 0;
}

}  // extern "C"
