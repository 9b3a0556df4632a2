// SPDX-License-Identifier: BSD-2-Clause
// One completion channel and one queue for all connections, as servers have it. A send is signaled, so that what it
// sends from may be used again; its completion comes by the same queue.
#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "bench/events_src/descriptor_wait.h"
#include "bench/events_src/events_bench.h"
#include "bench/limits_src/process.h"
#include "bench/verbs_objects.h"

namespace uroce::events {
namespace {

using bench::check;

struct Contact {
  ibv_gid gid;
  uint32_t qpn, key;
  uint64_t slots;  // address of those of this connection
};

Contact swap(int fd, const Contact& own) {
  Contact peer;
  if (write(fd, &own, sizeof own) != sizeof own || recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer)
    throw std::runtime_error("the other side has left");
  return peer;
}

class Verbs final : public Exchange {
 public:
  Verbs(const Options& options, int control)
      : options_(options),
        slot_bytes_(std::max({options.request_bytes, options.response_bytes, uint32_t{64}})),
        device_(options.device.c_str(), size_t{2} * options.connections * options.window * slot_bytes_),
        channel_(ibv_create_comp_channel(device_.pd()->context)),
        connections_(options.connections) {
    check(channel_ != nullptr, "ibv_create_comp_channel");
    const int entries = static_cast<int>(options.connections * (2 * options.window + 2));
    cq_.reset(ibv_create_cq(device_.pd()->context, entries, nullptr, channel_.get(), 0));
    check(cq_ != nullptr, "ibv_create_cq");
    for (uint32_t i = 0; i < options.connections; ++i) {
      Connection& c = connections_[i];
      c.qp = bench::create_qp(device_, *cq_, {options.window + 1, options.window + 1, 1, 1, 0});
      c.peer = swap(control, {device_.gid(), c.qp->qp_num, device_.key(), address(i, 0, true)});
      bench::connect(*c.qp, c.peer.gid, c.peer.qpn, IBV_MTU_1024);
      for (uint32_t slot = 0; slot < options.window; ++slot) post_receive(i, slot);
      by_qpn_.emplace_back(c.qp->qp_num, i);
    }
    std::sort(by_qpn_.begin(), by_qpn_.end());
    swap(control, {});  // both are ready
    if (options.wait == Wait::kPolling) return;
    arm();
    if (options.wait != Wait::kEpoll) return;
    fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    descriptor_ = descriptor_waits().at(options.descriptor_wait)(channel_->fd);
  }
  ~Verbs() override { ibv_ack_cq_events(cq_.get(), events_); }

  void send(uint32_t i) override {
    Connection& c = connections_[i];
    const uint32_t slot = c.next++ % options_.window;
    const bool reads = options_.request == Request::kRead;
    ibv_sge part{address(i, slot, false), options_.server ? options_.response_bytes : options_.request_bytes,
                 device_.key()};
    if (reads) part.length = options_.response_bytes;
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {c.peer.slots + uint64_t{slot} * slot_bytes_, c.peer.key};
    request.opcode = reads                                        ? IBV_WR_RDMA_READ
                     : options_.request == Request::kWriteWithImm ? IBV_WR_RDMA_WRITE_WITH_IMM
                                                                  : IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(c.qp.get(), &request, &bad);
    check(errno == 0, "ibv_post_send");
  }

  void wait(const OnMessage& on_message) override {
    if (options_.wait != Wait::kPolling && !wait_for_event()) return;
    std::array<ibv_wc, 16> completions;
    while (const int count = ibv_poll_cq(cq_.get(), completions.size(), completions.data())) {
      check(count > 0, "ibv_poll_cq");
      for (int n = 0; n < count; ++n) take(completions[static_cast<size_t>(n)], on_message);
    }
  }

 private:
  struct Connection {
    bench::QpPtr qp;
    Contact peer{};
    uint32_t next = 0;
  };
  // In one half what is sent, in the other what comes.
  uint64_t address(uint32_t connection, uint32_t slot, bool in) {
    const size_t half = in ? size_t{options_.connections} * options_.window * slot_bytes_ : 0;
    return reinterpret_cast<uintptr_t>(device_.memory()) + half +
           (size_t{connection} * options_.window + slot) * slot_bytes_;
  }
  void post_receive(uint32_t i, uint32_t slot) {
    ibv_sge part{address(i, slot, true), slot_bytes_, device_.key()};
    ibv_recv_wr request{};
    request.wr_id = slot;
    request.sg_list = &part;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    errno = ibv_post_recv(connections_[i].qp.get(), &request, &bad);
    check(errno == 0, "ibv_post_recv");
  }
  void arm() {
    errno = ibv_req_notify_cq(cq_.get(), 0);
    check(errno == 0, "ibv_req_notify_cq");
  }
  // False: there is none.
  bool wait_for_event() {
    if (descriptor_) descriptor_->wait();
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_.get(), &cq, &context) != 0) {
      // As with hardware: nobody else takes events.
      if (descriptor_ && errno == EAGAIN && !limits::stop_requested())
        throw std::runtime_error("EAGAIN although the descriptor was readable");
      check(errno == EAGAIN || errno == EINTR, "ibv_get_cq_event");
      return false;
    }
    ++events_;
    arm();
    return true;
  }
  void take(const ibv_wc& completion, const OnMessage& on_message) {
    if (completion.status != IBV_WC_SUCCESS)
      throw std::runtime_error(std::string("a work request failed: ") + ibv_wc_status_str(completion.status));
    const uint32_t i = std::lower_bound(by_qpn_.begin(), by_qpn_.end(), std::pair(completion.qp_num, 0u))->second;
    if (completion.opcode == IBV_WC_RDMA_READ) return on_message(i);
    if ((completion.opcode & IBV_WC_RECV) == 0) return;
    post_receive(i, static_cast<uint32_t>(completion.wr_id));
    on_message(i);
  }

  const Options options_;
  const uint32_t slot_bytes_;
  bench::Device device_;
  std::unique_ptr<ibv_comp_channel, bench::Destroy<ibv_destroy_comp_channel>> channel_;
  bench::CqPtr cq_;
  std::vector<Connection> connections_;
  std::vector<std::pair<uint32_t, uint32_t>> by_qpn_;
  std::unique_ptr<DescriptorWait> descriptor_;
  unsigned events_ = 0;  // to be acknowledged
};

}  // namespace

std::unique_ptr<Exchange> exchange_over_verbs(const Options& options, int control) {
  return std::make_unique<Verbs>(options, control);
}

}  // namespace uroce::events
