// A libibverbs within the process that moves RC messages from memory to memory, well or with one planted fault.
//
// rc_transfer judges providers; this judges rc_transfer: detection_test.sh links it in place of libibverbs and expects
// every fault to be found. RC_TRANSFER_FAULT=name[:n] plants the fault `name` at its n-th opportunity (default 20). A
// thread of its own executes what is posted, one WR at a time, in order per QP; a message without a receive waits
// (RNR).

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

struct Channel {
  ibv_comp_channel base{};
  int write_end = -1;
  std::deque<ibv_cq*> events;
};

struct Cq {
  ibv_cq base{};
  std::deque<ibv_wc> entries;
  std::deque<ibv_wc> held;  // fault swapped_completions
  bool armed = false;
};

struct SendRequest {
  ibv_send_wr wr;
  std::vector<ibv_sge> sges;
  std::vector<uint8_t> inlined;
};
struct ReceiveRequest {
  uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

struct Qp {
  ibv_qp base{};
  std::deque<SendRequest> sends;
  std::deque<ReceiveRequest> receives;
  uint32_t peer = 0;
};

struct Region {
  uint64_t address;
  uint64_t length;
};

struct World {
  std::mutex mutex;
  std::condition_variable work;
  bool stop = false;
  uint32_t next_key = 0x1100;
  uint32_t next_qpn = 17;
  std::map<uint32_t, Region> regions;  // by lkey = rkey, of regions and bound windows
  std::map<uint32_t, Qp*> qps;
  std::deque<std::pair<uint64_t, std::vector<uint8_t>>> late_writes;  // fault late_write
  ibv_device device{};
  ibv_context context{};
  std::thread engine;
};

World& world() {
  static World instance;
  return instance;
}

// RC_TRANSFER_FAULT: the name, and which opportunity it waits for.
std::string planted(int* opportunity = nullptr) {
  static const char* const text = std::getenv("RC_TRANSFER_FAULT");
  const std::string fault = text == nullptr ? "" : text;
  const size_t colon = fault.find(':');
  if (opportunity != nullptr) *opportunity = colon == std::string::npos ? 20 : std::atoi(fault.c_str() + colon + 1);
  return fault.substr(0, colon);
}

// True once: at the n-th opportunity of the planted fault.
bool fault(const std::string& name) {
  static int left = 0;
  static const std::string wanted = planted(&left);
  return name == wanted && --left == 0;
}

bool covers(uint32_t key, uint64_t address, uint64_t length) {
  const auto region = world().regions.find(key);
  return region != world().regions.end() && address >= region->second.address &&
         address + length <= region->second.address + region->second.length;
}

bool covers(const std::vector<ibv_sge>& sges) {
  for (const ibv_sge& sge : sges) {
    if (!covers(sge.lkey, sge.addr, sge.length)) return false;
  }
  return true;
}

std::vector<uint8_t> gather(const std::vector<ibv_sge>& sges) {
  std::vector<uint8_t> data;
  for (const ibv_sge& sge : sges) {
    const auto* from = reinterpret_cast<const uint8_t*>(sge.addr);
    data.insert(data.end(), from, from + sge.length);
  }
  return data;
}

void scatter(const std::vector<uint8_t>& data, const std::vector<ibv_sge>& sges) {
  size_t done = 0;
  for (const ibv_sge& sge : sges) {
    const size_t count = std::min<size_t>(sge.length, data.size() - done);
    auto* to = reinterpret_cast<uint8_t*>(sge.addr);
    std::memcpy(to, data.data() + done, count);
    done += count;
    if (count > 0 && done == data.size() && fault("stray")) to[count] ^= 1;
  }
}

void notify(Cq& cq) {
  if (!cq.armed) return;
  cq.armed = false;
  auto* channel = reinterpret_cast<Channel*>(cq.base.channel);
  if (fault("lost_event")) return;
  channel->events.push_back(&cq.base);
  if (write(channel->write_end, "", 1) != 1) std::abort();
}

void complete(ibv_cq* base, ibv_wc wc) {
  auto& cq = *reinterpret_cast<Cq*>(base);
  if (fault("lost_completion")) return;
  if (fault("wrong_opcode")) wc.opcode = IBV_WC_LOCAL_INV;
  if (fault("wrong_qp_num")) wc.qp_num ^= 1;
  if (fault("error_status")) wc.status = IBV_WC_RETRY_EXC_ERR;
  if (fault("wrong_wr_id")) wc.wr_id += 1;
  if (fault("swapped_completions")) {
    cq.held.push_back(wc);
    return;
  }
  cq.entries.push_back(wc);
  if (fault("duplicate_completion")) cq.entries.push_back(wc);
  cq.entries.insert(cq.entries.end(), cq.held.begin(), cq.held.end());
  cq.held.clear();
  notify(cq);
}

void complete_send(Qp& qp, const SendRequest& request, ibv_wc_status status, uint32_t length) {
  static const std::map<ibv_wr_opcode, ibv_wc_opcode> opcodes = {
      {IBV_WR_SEND, IBV_WC_SEND},
      {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
      {IBV_WR_SEND_WITH_INV, IBV_WC_SEND},
      {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
      {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD},
      {IBV_WR_BIND_MW, IBV_WC_BIND_MW},
  };
  const bool signaled = (request.wr.send_flags & IBV_SEND_SIGNALED) != 0;
  if (!signaled && status == IBV_WC_SUCCESS && !fault("unsignaled_completion")) return;
  ibv_wc wc{};
  wc.wr_id = request.wr.wr_id;
  wc.status = status;
  wc.opcode = opcodes.at(request.wr.opcode);
  wc.byte_len = length;
  wc.qp_num = qp.base.qp_num;
  if (length > 0 && fault("wrong_read_length")) --wc.byte_len;
  complete(qp.base.send_cq, wc);
}

bool takes_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void complete_receive(Qp& to, const ReceiveRequest& receive, const ibv_send_wr& wr, uint32_t length) {
  ibv_wc wc{};
  wc.wr_id = receive.wr_id;
  wc.opcode = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = length;
  wc.qp_num = to.base.qp_num;
  if (wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = wr.imm_data;
    if (fault("wrong_immediate")) wc.imm_data ^= 1;
    if (fault("missing_flag")) wc.wc_flags = 0;
  } else if (wr.opcode == IBV_WR_SEND_WITH_INV) {
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = wr.invalidate_rkey;
    world().regions.erase(wr.invalidate_rkey);
    if (fault("wrong_invalidated_rkey")) wc.invalidated_rkey ^= 0x100;
  }
  if (fault("wrong_receive_length")) ++wc.byte_len;
  complete(to.base.recv_cq, wc);
}

void write_memory(uint64_t address, const std::vector<uint8_t>& data) {
  if (!data.empty()) std::memcpy(reinterpret_cast<void*>(address), data.data(), data.size());
}

ibv_wc_status execute_write(const SendRequest& request, const std::vector<uint8_t>& data) {
  const uint64_t address = request.wr.wr.rdma.remote_addr;
  if (data.empty()) return IBV_WC_SUCCESS;
  if (!covers(request.wr.wr.rdma.rkey, address, data.size())) return IBV_WC_REM_ACCESS_ERR;
  if (fault("skipped_write")) return IBV_WC_SUCCESS;
  write_memory(address, data);
  if (fault("shifted_write")) write_memory(address + 1, data);
  if (planted() == "repeated_write") world().late_writes.emplace_back(address, data);
  if (world().late_writes.size() > 3) {
    write_memory(world().late_writes.front().first, world().late_writes.front().second);
    world().late_writes.pop_front();
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status execute_read(const SendRequest& request, uint32_t& length) {
  for (const ibv_sge& sge : request.sges) length += sge.length;
  const ibv_sge remote = {request.wr.wr.rdma.remote_addr, length, request.wr.wr.rdma.rkey};
  if (length > 0 && !covers({remote})) return IBV_WC_REM_ACCESS_ERR;
  std::vector<uint8_t> data = gather({remote});
  if (!data.empty() && fault("corrupt_read")) data.back() ^= 0x80;
  scatter(data, request.sges);
  return IBV_WC_SUCCESS;
}

ibv_wc_status execute_atomic(const SendRequest& request) {
  const auto& atomic = request.wr.wr.atomic;
  if (!covers(atomic.rkey, atomic.remote_addr, 8) || atomic.remote_addr % 8 != 0) return IBV_WC_REM_ACCESS_ERR;
  auto* word = reinterpret_cast<uint64_t*>(atomic.remote_addr);
  const uint64_t original = *word;
  if (request.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    *word += atomic.compare_add;
    if (fault("repeated_add")) *word += atomic.compare_add;
  } else if (original == atomic.compare_add && !fault("skipped_swap")) {
    *word = atomic.swap;
  }
  std::vector<uint8_t> result(8);
  std::memcpy(result.data(), &original, 8);
  scatter(result, request.sges);
  return IBV_WC_SUCCESS;
}

void execute_bind(Qp& qp, const SendRequest& request) {
  const auto& bind = request.wr.bind_mw;
  world().regions[bind.rkey] = {bind.bind_info.addr, bind.bind_info.length};
  complete_send(qp, request, IBV_WC_SUCCESS, 0);
}

// Executes the oldest send of `qp`. False when it has to wait.
bool execute(Qp& qp) {
  if (qp.sends.empty()) return false;
  const SendRequest& request = qp.sends.front();
  const ibv_wr_opcode opcode = request.wr.opcode;
  const auto peer = world().qps.find(qp.peer);
  if (opcode == IBV_WR_BIND_MW) {
    execute_bind(qp, request);
    qp.sends.pop_front();
    return true;
  }
  if (qp.base.state != IBV_QPS_RTS || peer == world().qps.end()) return false;
  Qp& to = *peer->second;
  if (takes_receive(opcode) && to.receives.empty()) return false;

  uint32_t length = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  const bool is_inline = (request.wr.send_flags & IBV_SEND_INLINE) != 0;
  if (!is_inline && !covers(request.sges)) {
    status = IBV_WC_LOC_PROT_ERR;
  } else if (opcode == IBV_WR_RDMA_READ) {
    status = execute_read(request, length);
  } else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    length = 8;
    status = execute_atomic(request);
  } else {
    const bool late = is_inline && !request.inlined.empty() && fault("late_inline");
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::vector<uint8_t> data = is_inline && !late ? request.inlined : gather(request.sges);
    if (!data.empty() && fault("corrupt")) data[data.size() / 2] ^= 4;
    if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) status = execute_write(request, data);
    if (takes_receive(opcode) && status == IBV_WC_SUCCESS) {
      const ReceiveRequest receive = std::move(to.receives.front());
      to.receives.pop_front();
      if (opcode != IBV_WR_RDMA_WRITE_WITH_IMM) scatter(data, receive.sges);
      complete_receive(to, receive, request.wr, static_cast<uint32_t>(data.size()));
    }
  }
  complete_send(qp, request, status, length);
  qp.sends.pop_front();
  return true;
}

void run_engine() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  while (!w.stop) {
    bool any = false;
    for (const auto& [qpn, qp] : w.qps) any |= execute(*qp);
    if (!any) {
      w.work.wait(lock);
    } else {
      lock.unlock();
      lock.lock();
    }
  }
}

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
