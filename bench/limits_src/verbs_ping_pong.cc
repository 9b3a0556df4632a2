// SPDX-License-Identifier: BSD-2-Clause
// verbs_bench ping and pong: round trips of 2-byte SENDs on one QP while another keeps its queue full of WRITEs. One
// thread of each side drives both QPs: with one for each, two cores would measure the scheduler.
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "bench/limits_src/latency.h"
#include "bench/limits_src/process.h"
#include "bench/limits_src/verbs_bench.h"
#include "bench/verbs_objects.h"

namespace uroce::limits {
namespace {

using bench::check;

constexpr uint32_t kMessageBytes = 2;
constexpr uint32_t kBulkOffset = 4096;      // in the memory, behind the messages
constexpr uint32_t kReceives = 4;           // one is under way
constexpr uint32_t kLongestBulk = 1 << 20;  // what the answering side has room for
constexpr uint64_t kWarmUpNs = 200'000'000;
constexpr ibv_qp_cap kLatencyQueues{kReceives, kReceives, 1, 1, 0};

// What one side tells the other, in the byte order of the machine that both are on.
struct Contact {
  ibv_gid gid;
  uint32_t latency_qpn, bulk_qpn;
  uint64_t bulk_address;
  uint32_t key;
};

Contact exchange(int fd, const Contact& own) {
  Contact peer;
  if (write(fd, &own, sizeof own) != sizeof own || recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer)
    throw std::runtime_error("the other side has left");
  return peer;
}

// IBV_MTU_256 is 1, and each further one is twice as long.
ibv_mtu path_mtu_code(uint32_t path_mtu) {
  return static_cast<ibv_mtu>(std::countr_zero(path_mtu / 256) + 1);
}

class Side {
 public:
  Side(const VerbsBenchOptions& options, int (*meet)(const PeerOptions&))
      : device_(options.device.c_str(), kBulkOffset + kLongestBulk), depth_(options.bulk_depth) {
    const int fd = meet(options.peer);
    peer_ = exchange(fd, {device_.gid(), latency_->qp_num, bulk_->qp_num,
                          reinterpret_cast<uintptr_t>(device_.memory() + kBulkOffset), device_.key()});
    const ibv_mtu path_mtu = path_mtu_code(options.path_mtu);
    bench::connect(*latency_, peer_.gid, peer_.latency_qpn, path_mtu);
    bench::connect(*bulk_, peer_.gid, peer_.bulk_qpn, path_mtu);
    for (uint32_t i = 0; i < kReceives; ++i) post_receive();
    exchange(fd, {});  // both are ready
    close(fd);
  }

  // Takes completions of the latency QP; true: a message has come.
  bool message_arrived() {
    ibv_wc completion;
    if (poll(*latency_cq_, {&completion, 1}) == 0 || completion.opcode != IBV_WC_RECV) return false;
    post_receive();
    return true;
  }
  void send_message() {
    ibv_sge part = sge(0, kMessageBytes);
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    post(*latency_, request);
  }
  // Takes what has completed, adds a WRITE to those under way, if there is room, and returns how many have completed.
  // Both once only: the caller looks for the answer to its message in between, and further WRITEs may complete for as
  // long as one polls.
  uint32_t drive_bulk(uint32_t bytes) {
    const uint32_t completed = poll(*bulk_cq_, bulk_completions_);
    under_way_ -= completed;
    if (under_way_ == depth_) return completed;
    ibv_sge part = sge(kBulkOffset, bytes);
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma = {peer_.bulk_address, peer_.key};
    post(*bulk_, request);
    ++under_way_;
    return completed;
  }

 private:
  ibv_sge sge(uint32_t offset, uint32_t bytes) {
    return {reinterpret_cast<uintptr_t>(device_.memory() + offset), bytes, device_.key()};
  }
  void post_receive() {
    ibv_sge part = sge(kBulkOffset / 2, kMessageBytes);
    ibv_recv_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    errno = ibv_post_recv(latency_.get(), &request, &bad);
    check(errno == 0, "ibv_post_recv");
  }
  static void post(ibv_qp& qp, ibv_send_wr& request) {
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(&qp, &request, &bad);
    check(errno == 0, "ibv_post_send");
  }
  static uint32_t poll(ibv_cq& cq, std::span<ibv_wc> completions) {
    const int count = ibv_poll_cq(&cq, static_cast<int>(completions.size()), completions.data());
    check(count >= 0, "ibv_poll_cq");
    for (const ibv_wc& completion : completions.first(static_cast<size_t>(count))) {
      if (completion.status != IBV_WC_SUCCESS)
        throw std::runtime_error(std::string("a work request failed: ") + ibv_wc_status_str(completion.status));
    }
    return static_cast<uint32_t>(count);
  }

  bench::Device device_;
  const uint32_t depth_;
  bench::CqPtr latency_cq_ = device_.create_cq(2 * kReceives), bulk_cq_ = device_.create_cq(depth_);
  bench::QpPtr latency_ = create_qp(device_, *latency_cq_, kLatencyQueues);
  bench::QpPtr bulk_ = create_qp(device_, *bulk_cq_, {depth_, 1, 1, 1, 0});
  Contact peer_;
  uint32_t under_way_ = 0;
  std::array<ibv_wc, 16> bulk_completions_;  // of one look
};

}  // namespace

void run_verbs_ping(const VerbsBenchOptions& options) {
  if (options.bulk_bytes > kLongestBulk) throw std::runtime_error("--bulk is longer than the other side has room for");
  Side side(options, connect_to_peer);
  std::vector<uint64_t> round_trips;
  uint64_t writes = 0;
  const uint64_t begin = now_ns() + kWarmUpNs, end = begin + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t sent = now_ns();
  side.send_message();
  while (!stop_requested()) {
    const uint32_t completed = options.bulk_bytes > 0 ? side.drive_bulk(options.bulk_bytes) : 0;
    const bool answered = side.message_arrived();
    const uint64_t now = now_ns();
    if (now >= end) break;
    if (now >= begin) writes += completed;
    if (!answered) continue;
    if (sent >= begin) round_trips.push_back(now - sent);
    sent = now;
    side.send_message();
  }
  std::printf(R"({"mode": "ping", "gbps": %.3f, )",
              static_cast<double>(writes * options.bulk_bytes) * 8 / options.seconds / 1e9);
  Latency(std::move(round_trips)).print_json(stdout);
  std::puts("}");
}

void run_verbs_pong(const VerbsBenchOptions& options) {
  Side side(options, wait_for_peer);
  while (!stop_requested()) {
    if (side.message_arrived()) side.send_message();
  }
  std::puts(R"({"mode": "pong"})");
}

}  // namespace uroce::limits
