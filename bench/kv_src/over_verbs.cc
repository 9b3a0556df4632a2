// SPDX-License-Identifier: BSD-2-Clause
// Each side of a connection has a ring in its memory, into which the other one writes its messages by WRITE with
// immediate data, the length. No more requests are under way than fit, and an answer says that its request has been
// read: so nobody has to say how far the rings are read. The TCP socket stays, to learn of the other side's end.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/kv_src/kv.h"
#include "bench/verbs_objects.h"

namespace uroce::kv {
namespace {

using bench::check;

struct Hello {
  ibv_gid gid;
  uint32_t qpn, key;
  uint64_t ring;         // the address of what the other side may write to
  uint32_t value_bytes;  // the client's wish, which the server repeats
  uint32_t window;
};

constexpr uint32_t kLeastRing = 16384;  // so that few messages are split at its end

class Verbs;

// A completion channel and its queue, of one connection or of all.
class Completions : public std::enable_shared_from_this<Completions> {
 public:
  Completions(Loop& loop, bench::Device& device, uint32_t entries);
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;
  ibv_cq& queue() const { return *queue_; }
  std::unordered_map<uint32_t, Verbs*> connections;  // by QP number

 private:
  void on_event();

  Loop& loop_;
  std::unique_ptr<ibv_comp_channel, bench::Destroy<ibv_destroy_comp_channel>> channel_;
  bench::CqPtr queue_;
};

class OverVerbs final : public Transport {
 public:
  OverVerbs(Loop& loop, const Options& options);
  std::unique_ptr<Connection> make(UniqueFd socket, Connection::OnMessage on_message,
                                   Connection::OnEnd on_end) override;
  std::shared_ptr<Completions> completions(uint32_t entries);

  Loop& loop;
  const Options options;
  bench::Device device;

 private:
  std::shared_ptr<Completions> of_all_;
};

class Verbs final : public Connection {
 public:
  Verbs(OverVerbs& side, UniqueFd socket, OnMessage on_message, OnEnd on_end)
      : side_(side), socket_(std::move(socket)), on_message_(std::move(on_message)), on_end_(std::move(on_end)) {
    if (!side.options.server) {
      prepare(side.options.value_bytes, side.options.window);
      say_hello();
      if (recv(socket_.get(), &hello_, sizeof hello_, MSG_WAITALL) != sizeof hello_) throw Ended("no hello");
      connect();
    }
    side_.loop.add(socket_.get(), EPOLLIN, [this](uint32_t) {
      const OnEnd ends = on_end_;  // it may destroy this
      try {
        on_socket();
      } catch (const Ended& why) {
        ends(why.what());
      } catch (const std::system_error& why) {  // of what the other side has said of itself
        ends(why.what());
      }
    });
  }
  ~Verbs() override {
    side_.loop.remove(socket_.get());
    if (qp_) completions_->connections.erase(qp_->qp_num);
  }

  // One request, or two where the ring ends between.
  void send(const Message& message, std::span<const uint8_t> value) override {
    if (value.size() > value_bytes_) throw Ended("a value that is longer than the client has room for");
    const auto bytes = static_cast<uint32_t>(sizeof message + value.size());
    const uint32_t at = sent_ % ring_bytes_, first = std::min(bytes, ring_bytes_ - at);
    put(sent_, &message, sizeof message);
    put(sent_ + sizeof message, value.data(), value.size());
    std::array<ibv_sge, 2> parts{
        {{address(ring_bytes_ + at), first, mr_->lkey}, {address(ring_bytes_), bytes - first, mr_->lkey}}};
    std::array<ibv_send_wr, 2> requests{};
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].sg_list = &parts[i];
      requests[i].num_sge = 1;
      requests[i].opcode = IBV_WR_RDMA_WRITE;
      requests[i].wr.rdma = {hello_.ring + (i == 0 ? at : 0), hello_.key};
    }
    ibv_send_wr& last = requests[first < bytes ? 1 : 0];
    if (first < bytes) requests[0].next = &requests[1];
    last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last.imm_data = htonl(bytes);
    last.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(qp_.get(), requests.data(), &bad);
    check(errno == 0, "ibv_post_send");
    sent_ += bytes;
  }

  void on_completion(const ibv_wc& completion) {
    const OnEnd ends = on_end_;  // it may destroy this
    try {
      if (completion.status != IBV_WC_SUCCESS) throw Ended(ibv_wc_status_str(completion.status));
      if (completion.opcode & IBV_WC_RECV) on_receive(ntohl(completion.imm_data));
    } catch (const Ended& why) {
      ends(why.what());
    } catch (const std::system_error& why) {
      ends(why.what());
    }
  }

 private:
  void prepare(uint32_t value_bytes, uint32_t window) {
    if (value_bytes > kMostValue || window == 0 || window > kMostWindow) throw Ended("a hello asks for too much");
    value_bytes_ = value_bytes;
    window_ = window;
    ring_bytes_ = std::max(kLeastRing, 4 * window * static_cast<uint32_t>(sizeof(Message) + value_bytes));
    memory_.resize(size_t{2} * ring_bytes_);  // what comes, and what is sent
    mr_.reset(ibv_reg_mr(side_.device.pd(), memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    check(mr_ != nullptr, "ibv_reg_mr");
    const uint32_t sends = 4 * window + 4, receives = window + 1;
    completions_ = side_.completions(sends + receives);
    qp_ = bench::create_qp(side_.device, completions_->queue(), {sends, receives, 1, 1, 0});
    completions_->connections[qp_->qp_num] = this;
  }

  void say_hello() {
    const Hello own{side_.device.gid(), qp_->qp_num, mr_->rkey, address(0), value_bytes_, window_};
    if (::send(socket_.get(), &own, sizeof own, MSG_NOSIGNAL) != sizeof own) throw Ended("the other side has left");
  }

  void connect() {
    bench::connect(*qp_, hello_.gid, hello_.qpn, IBV_MTU_1024);
    for (uint32_t i = 0; i < window_ + 1; ++i) post_receive();
  }

  // The server: a hello, piece by piece; then, as with the client, the end.
  void on_socket() {
    auto* const bytes = reinterpret_cast<char*>(&hello_);
    const size_t wanted = qp_ ? 0 : sizeof hello_ - hello_bytes_;
    char excess;
    const ssize_t n = wanted > 0 ? recv(socket_.get(), bytes + hello_bytes_, wanted, MSG_DONTWAIT)
                                 : recv(socket_.get(), &excess, 1, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) throw Ended(std::strerror(errno));
    if (n == 0) throw Ended("closed");
    if (wanted == 0) throw Ended("it says something after its hello");
    hello_bytes_ += static_cast<size_t>(n);
    if (hello_bytes_ < sizeof hello_) return;
    prepare(hello_.value_bytes, hello_.window);
    connect();
    say_hello();
  }

  void on_receive(uint32_t bytes) {
    post_receive();
    Message message;
    if (bytes < sizeof message || bytes > sizeof message + value_bytes_) throw Ended("a message of a wrong length");
    get(received_, &message, sizeof message);
    if (message.bytes != bytes - sizeof message) throw Ended("a message that is longer than it says, or shorter");
    const uint32_t at = (received_ + sizeof message) % ring_bytes_;
    received_ += bytes;
    if (at + message.bytes <= ring_bytes_) return on_message_(message, {memory_.data() + at, message.bytes});
    std::vector<uint8_t> whole(message.bytes);
    get(received_ - message.bytes, whole.data(), whole.size());
    on_message_(message, whole);
  }

  void post_receive() {
    ibv_recv_wr request{}, *bad = nullptr;
    errno = ibv_post_recv(qp_.get(), &request, &bad);
    check(errno == 0, "ibv_post_recv");
  }

  uint64_t address(uint32_t offset) const { return reinterpret_cast<uintptr_t>(memory_.data()) + offset; }
  void put(uint64_t position, const void* from, size_t bytes) {
    if (bytes == 0) return;
    const uint32_t at = position % ring_bytes_;
    const size_t first = std::min<size_t>(bytes, ring_bytes_ - at);
    std::memcpy(memory_.data() + ring_bytes_ + at, from, first);
    std::memcpy(memory_.data() + ring_bytes_, static_cast<const uint8_t*>(from) + first, bytes - first);
  }
  void get(uint64_t position, void* to, size_t bytes) const {
    const uint32_t at = position % ring_bytes_;
    const size_t first = std::min<size_t>(bytes, ring_bytes_ - at);
    std::memcpy(to, memory_.data() + at, first);
    std::memcpy(static_cast<uint8_t*>(to) + first, memory_.data(), bytes - first);
  }

  OverVerbs& side_;
  UniqueFd socket_;
  OnMessage on_message_;
  OnEnd on_end_;
  Hello hello_{};  // the other side's
  size_t hello_bytes_ = 0;
  uint32_t value_bytes_ = 0, window_ = 0, ring_bytes_ = 0;
  uint64_t sent_ = 0, received_ = 0;  // bytes
  std::vector<uint8_t> memory_;
  bench::MrPtr mr_;
  std::shared_ptr<Completions> completions_;
  bench::QpPtr qp_;
};

Completions::Completions(Loop& loop, bench::Device& device, uint32_t entries)
    : loop_(loop), channel_(ibv_create_comp_channel(device.pd()->context)) {
  check(channel_ != nullptr, "ibv_create_comp_channel");
  queue_.reset(ibv_create_cq(device.pd()->context, static_cast<int>(entries), nullptr, channel_.get(), 0));
  check(queue_ != nullptr, "ibv_create_cq");
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  errno = ibv_req_notify_cq(queue_.get(), 0);
  check(errno == 0, "ibv_req_notify_cq");
  loop_.add(channel_->fd, EPOLLIN, [this](uint32_t) { on_event(); });
}

Completions::~Completions() {
  loop_.remove(channel_->fd);
}

// One event for each time that the descriptor is readable, as servers have it.
void Completions::on_event() {
  const auto kept = shared_from_this();  // the connection may end
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  check(ibv_get_cq_event(channel_.get(), &queue, &context) == 0, "ibv_get_cq_event");
  ibv_ack_cq_events(queue, 1);
  errno = ibv_req_notify_cq(queue, 0);
  check(errno == 0, "ibv_req_notify_cq");
  std::array<ibv_wc, 32> completions;
  while (const int count = ibv_poll_cq(queue, completions.size(), completions.data())) {
    check(count > 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      const auto found = connections.find(completion.qp_num);
      if (found == connections.end()) continue;  // over
      found->second->on_completion(completion);
    }
  }
}

OverVerbs::OverVerbs(Loop& in, const Options& wanted) : loop(in), options(wanted), device(wanted.device.c_str(), 64) {}

std::shared_ptr<Completions> OverVerbs::completions(uint32_t entries) {
  if (options.channel_each) return std::make_shared<Completions>(loop, device, entries);
  if (!of_all_) of_all_ = std::make_shared<Completions>(loop, device, 1 << 16);
  return of_all_;
}

std::unique_ptr<Connection> OverVerbs::make(UniqueFd socket, Connection::OnMessage on_message,
                                            Connection::OnEnd on_end) {
  return std::make_unique<Verbs>(*this, std::move(socket), std::move(on_message), std::move(on_end));
}

}  // namespace

std::unique_ptr<Transport> over_verbs(Loop& loop, const Options& options) {
  return std::make_unique<OverVerbs>(loop, options);
}

}  // namespace uroce::kv
