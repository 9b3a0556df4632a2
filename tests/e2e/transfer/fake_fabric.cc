// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/fake_fabric.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

namespace uroce::transfer::fake {

World& world() {
  static World instance;
  return instance;
}

std::vector<uint8_t> gather(const std::vector<ibv_sge>& sges) {
  std::vector<uint8_t> data;
  for (const ibv_sge& sge : sges) {
    const auto* from = reinterpret_cast<const uint8_t*>(sge.addr);
    data.insert(data.end(), from, from + sge.length);
  }
  return data;
}

namespace {

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

void scatter(const std::vector<uint8_t>& data, const std::vector<ibv_sge>& sges) {
  size_t done = 0;
  for (const ibv_sge& sge : sges) {
    const size_t count = std::min<size_t>(sge.length, data.size() - done);
    auto* to = reinterpret_cast<uint8_t*>(sge.addr);
    if (count == 0) break;
    std::memcpy(to, data.data() + done, count);
    done += count;
    if (done == data.size() && fault("stray")) to[count] ^= 1;
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

}  // namespace

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

}  // namespace uroce::transfer::fake
