// SPDX-License-Identifier: BSD-2-Clause
// What the fake libibverbs (fake_verbs.cc) moves messages with: its objects, and the thread that executes what is
// posted to them, one WR at a time and in order per QP, well or with one planted fault. A message without a receive
// waits (RNR).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <infiniband/verbs.h>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace uroce::transfer::fake {

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

World& world();

// The contents of the SGEs, one after the other.
std::vector<uint8_t> gather(const std::vector<ibv_sge>& sges);

// Executes sends until world().stop.
void run_engine();

}  // namespace uroce::transfer::fake
