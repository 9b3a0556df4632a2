// SPDX-License-Identifier: BSD-2-Clause
#include "bench/messages_src/measure.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <exception>
#include <fstream>
#include <memory>
#include <sched.h>
#include <thread>
#include <unistd.h>

#include "bench/messages_src/network.h"
#include "bench/messages_src/traffic.h"

namespace uroce::messages {
namespace {

constexpr size_t kPage = 4096;
constexpr ibv_qp_cap kSmallest{1, 1, 1, 1, 0};
constexpr ibv_mtu kPathMtu = IBV_MTU_1024;

void pin_to_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  check(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Times clocks() {
  return {seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

void connect_pair(Device& a, ibv_qp& qp_a, Device& b, ibv_qp& qp_b) {
  connect(qp_a, b.gid(), qp_b.qp_num, kPathMtu);
  connect(qp_b, a.gid(), qp_a.qp_num, kPathMtu);
}

// The engine's background thread runs where its first QP is created.
Device open_device(const Settings& settings, bool responding) {
  pin_to_cpu(settings.cpu(0, responding));
  Device device(kDeviceNames[responding ? 1 : 0], settings.threads * buffer_size(settings));
  create_qp(device, *device.create_cq(1), kSmallest);
  return device;
}

// Both sides of the messages of one thread.
struct Lane {
  Lane(const Settings& settings, Device& requesting, Device& responding, size_t memory)
      : requester(settings, requesting, memory, responding), responder(settings, responding, memory) {
    for (size_t i = 0; i < requester.qps().size(); ++i) {
      connect_pair(requesting, *requester.qps()[i], responding, *responder.qps()[i]);
    }
    responder.post_receives();
  }
  Requester requester;
  Responder responder;
  Times begin, end;
};

class Measurement {
 public:
  explicit Measurement(const Settings& settings)
      : settings_(settings), requesting_(open_device(settings, false)), responding_(open_device(settings, true)) {
    for (uint32_t i = 0; i < settings.idle; ++i) {
      QpPtr& a = idle_qps_.emplace_back(create_qp(requesting_, *requesting_idle_, kSmallest));
      QpPtr& b = idle_qps_.emplace_back(create_qp(responding_, *responding_idle_, kSmallest));
      connect_pair(requesting_, *a, responding_, *b);
    }
    for (uint32_t i = 0; i < settings.threads; ++i) {
      lanes_.emplace_back(settings, requesting_, responding_, i * buffer_size(settings));
    }
  }

  Repetition run(bool counts) {
    std::vector<std::thread> threads;
    std::barrier start(settings_.threads * (settings_.place == Place::kSides ? 2 : 1));
    requesting_threads_ = settings_.threads;
    const auto start_thread = [&](uint32_t number, bool responder, auto&& work) {
      threads.emplace_back([&start, work, cpu = settings_.cpu(number, responder)] {
        try {
          pin_to_cpu(cpu);
          start.arrive_and_wait();
          work();
        } catch (const std::exception& e) {
          std::fprintf(stderr, "messages_bench: %s\n%s", e.what(), counters_text().c_str());
          std::_Exit(1);
        }
      });
    };
    for (uint32_t i = 0; i < settings_.threads; ++i) {
      Lane& lane = lanes_[i];
      lane.requester.start(settings_.messages_per_thread());
      start_thread(i, false, [this, &lane, counts] { counts ? measured(lane) : drive(lane); });
      if (settings_.place == Place::kSides) start_thread(i, true, [this, &lane] { respond(lane); });
    }
    for (std::thread& thread : threads) thread.join();
    Repetition result;
    Times first = lanes_.front().begin, last{};
    for (Lane& lane : lanes_) {
      first = {std::min(first.seconds, lane.begin.seconds), std::min(first.cpu_seconds, lane.begin.cpu_seconds)};
      last = {std::max(last.seconds, lane.end.seconds), std::max(last.cpu_seconds, lane.end.cpu_seconds)};
      result.requester += lane.requester.take_split();
      result.responder += lane.responder.take_split();
    }
    result.times = {last.seconds - first.seconds, last.cpu_seconds - first.cpu_seconds};
    return result;
  }

 private:
  // A function of its own: valgrind counts what happens in it (--toggle-collect).
  [[gnu::noinline]] void measured(Lane& lane) {
    lane.begin = clocks();
    drive(lane);
    lane.end = clocks();
  }

  void drive(Lane& lane) {
    while (!lane.requester.done()) {
      bool found = lane.requester.step();
      if (settings_.place != Place::kSides) found |= lane.responder.step();
      if (!found && settings_.yields()) sched_yield();
    }
    --requesting_threads_;
  }

  void respond(Lane& lane) {
    while (requesting_threads_.load(std::memory_order_relaxed) > 0) {
      if (!lane.responder.step() && settings_.yields()) sched_yield();
    }
  }

  const Settings settings_;
  Device requesting_, responding_;
  const CqPtr requesting_idle_ = requesting_.create_cq(1), responding_idle_ = responding_.create_cq(1);
  std::deque<QpPtr> idle_qps_;
  std::deque<Lane> lanes_;
  std::atomic<uint32_t> requesting_threads_{0};
};

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Result measure(const Settings& settings) {
  Measurement measurement(settings);
  Result result;
  measurement.run(false);
  for (uint32_t i = 0; i < settings.repetitions; ++i) result.repetitions.push_back(measurement.run(true));
  result.counters = counters_text();
  return result;
}

IdleMemory idle_memory(uint32_t count) {
  Device device(kDeviceNames[0], kPage);
  const CqPtr cq = device.create_cq(1);
  std::deque<QpPtr> qps;
  const auto create = [&](const ibv_qp_cap& capacity) {
    QpPtr& qp = qps.emplace_back(create_qp(device, *cq, capacity));
    connect(*qp, device.gid(), qp->qp_num, kPathMtu);
  };
  const auto bytes_of_one = [&](const ibv_qp_cap& capacity) {
    create(capacity);  // the first opens the packet I/O
    const double before = resident_bytes();
    for (uint32_t i = 0; i < count; ++i) create(capacity);
    return (resident_bytes() - before) / count;
  };
  const double smallest = bytes_of_one(kSmallest);
  return {smallest, bytes_of_one({128, 128, 4, 4, 0})};
}

}  // namespace uroce::messages
