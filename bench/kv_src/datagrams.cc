// SPDX-License-Identifier: BSD-2-Clause
// The reference of the reliable transport over UDP: what UDP sockets alone do with as many datagrams, of the same
// lengths, as RoCE v2 needs for a GET: the request, its ACK, the answer in packets of 1 KiB, its ACK. Payload is copied
// and summed at both ends, as any RoCE endpoint has to; nothing is stored, looked at or sent again. What is equally
// long leaves in one message (UDP_SEGMENT) and comes in one (UDP_GRO). One socket for all connections, epoll, and one
// system call for all that there is to send.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdexcept>
#include <sys/socket.h>
#include <vector>

#include "bench/kv_src/kv.h"
#include "bench/limits_src/latency.h"
#include "bench/limits_src/peer_socket.h"
#include "bench/limits_src/process.h"
#include "bench/usage.h"
#include "wire/crc32.h"

namespace uroce::kv {
namespace {

constexpr uint16_t kHeaders = 16, kReth = 16, kImmediate = 4, kAckBytes = 20, kMtu = 1024;  // BTH and ICRC
constexpr uint16_t kMostOfRun = 62;                                                         // of a frame of 64 KiB
constexpr uint64_t kLostNs = 1'000'000'000;

enum class What : uint8_t { kRequest = 1, kAck, kPart, kEnd };
// How each datagram begins. An ACK's are all.
struct Head {
  What what;
  uint64_t asked_at;
};
static_assert(sizeof(Head) <= kAckBytes);

// Datagrams that leave as one message: all are equally long but for the last.
struct Run {
  uint16_t segment;
  std::vector<uint8_t> bytes;
};

// A message by WRITE with immediate data: the first packet is longer by the RETH, the last by the immediate data.
std::vector<Run> runs_of(What kind, size_t bytes) {
  const size_t packets = std::max<size_t>((bytes + kMtu - 1) / kMtu, 1);
  std::vector<Run> runs;
  uint16_t before = 0;
  for (size_t i = 0; i < packets; ++i) {
    const bool last = i + 1 == packets;
    const size_t payload = last ? bytes - i * kMtu : kMtu;
    const auto length = static_cast<uint16_t>(kHeaders + payload + (i == 0 ? kReth : 0) + (last ? kImmediate : 0));
    const bool joins = !runs.empty() && length <= runs.back().segment && before == runs.back().segment &&
                       runs.back().bytes.size() + length <= size_t{kMostOfRun} * (kHeaders + kMtu) + kMtu;
    if (!joins) runs.push_back({length, {}});
    std::vector<uint8_t>& out = runs.back().bytes;
    out.resize(out.size() + length);
    const Head head{last ? kind : What::kPart, 0};
    std::memcpy(out.data() + out.size() - length, &head, sizeof head);
    before = length;
  }
  return runs;
}

class Exchange {
 public:
  explicit Exchange(const Options& options)
      : options_(options),
        socket_(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        ack_{{kAckBytes, std::vector<uint8_t>(kAckBytes, static_cast<uint8_t>(What::kAck))}},
        answer_(runs_of(options.server ? What::kEnd : What::kRequest,
                        sizeof(Message) + (options.server ? options.value_bytes : 0))),
        came_(size_t{kSlots} << 16) {
    const int on = 1, room = 16 << 20;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    if (setsockopt(socket_.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) != 0) limits::fail_with_errno("UDP_GRO");
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(options.server ? options.port : 0);
    if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) limits::fail_with_errno("bind");
    peer_.sin_family = AF_INET;
    peer_.sin_port = htons(options.port);
    if (!options.server && inet_pton(AF_INET, options.peer.c_str(), &peer_.sin_addr) != 1)
      throw std::runtime_error("not an IPv4 address: " + options.peer);
    epoll_event event{.events = EPOLLIN, .data = {}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket_.get(), &event);
    for (unsigned i = 0; i < kSlots; ++i) {
      parts_[i] = {came_.data() + (size_t{i} << 16), size_t{1} << 16};
      slots_[i].msg_hdr.msg_iov = &parts_[i];
      slots_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  void serve() {
    const bench::Usage before;
    limits::announce_ready();
    while (goes_on()) turn();
    std::printf(R"({"requests": %llu, )", static_cast<unsigned long long>(done_));
    bench::Usage().print_since(before, stdout);
    std::puts("}");
  }
  void ask() {
    limits::announce_ready();
    const bench::Usage before;
    const uint64_t begin = limits::now_ns();
    end_ = begin + static_cast<uint64_t>(options_.seconds * 1e9);
    for (uint32_t i = 0; i < options_.connections; ++i) put(answer_, limits::now_ns());
    send_all();
    for (last_ = begin; goes_on();) {
      turn();
      if (limits::now_ns() > last_ + kLostNs) throw std::runtime_error("datagrams were lost");
    }
    std::printf(R"({"per_second": %.0f, )", static_cast<double>(round_trips_.size()) / options_.seconds);
    limits::Latency(std::move(round_trips_)).print_json(stdout);
    std::printf(R"(, "requests": %llu, "connections": %u, )", static_cast<unsigned long long>(done_),
                options_.connections);
    bench::Usage().print_since(before, stdout);
    std::puts("}");
  }

 private:
  static constexpr unsigned kSlots = 16;
  struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
  };

  bool goes_on() const { return !limits::stop_requested() && limits::now_ns() < end_; }

  // Everything that there is, and what it asks for.
  void turn() {
    epoll_event event;
    if (epoll_wait(epoll_.get(), &event, 1, 100) <= 0) return;
    while (goes_on()) {
      for (unsigned i = 0; i < kSlots; ++i) {
        msghdr& header = slots_[i].msg_hdr;
        header.msg_control = controls_[i].bytes;
        header.msg_controllen = sizeof controls_[i].bytes;
        header.msg_name = &from_[i];
        header.msg_namelen = sizeof from_[i];
      }
      const int count = recvmmsg(socket_.get(), slots_, kSlots, MSG_DONTWAIT, nullptr);
      if (count <= 0) return;
      for (int i = 0; i < count; ++i) take(static_cast<size_t>(i));
      send_all();
    }
  }

  void take(size_t slot) {
    const msghdr& header = slots_[slot].msg_hdr;
    const size_t size = slots_[slot].msg_len;
    int segment = static_cast<int>(size);
    const cmsghdr* const control = CMSG_FIRSTHDR(&header);
    if (control != nullptr && control->cmsg_type == UDP_GRO) std::memcpy(&segment, CMSG_DATA(control), sizeof segment);
    if (options_.server) peer_ = from_[slot];
    const auto* const bytes = static_cast<const uint8_t*>(parts_[slot].iov_base);
    for (size_t at = 0; at + sizeof(Head) <= size && segment > 0; at += static_cast<size_t>(segment)) {
      Head head;
      std::memcpy(&head, bytes + at, sizeof head);
      const size_t datagram = std::min(static_cast<size_t>(segment), size - at);
      sums_ ^= wire::crc32_update(~0u, bytes + at, datagram);
      std::memcpy(payload_, bytes + at, std::min(datagram, sizeof payload_));
      if (head.what == What::kRequest || head.what == What::kEnd) answer(head.asked_at);
    }
  }

  // A request, or an answer, which makes room for the next request.
  void answer(uint64_t asked_at) {
    ++done_;
    put(ack_, asked_at);
    if (options_.server) return put(answer_, asked_at);
    last_ = limits::now_ns();
    round_trips_.push_back(last_ - asked_at);
    put(answer_, last_);
  }

  void put(const std::vector<Run>& runs, uint64_t asked_at) {
    for (const Run& run : runs) queue_.push_back({&run, asked_at});
  }

  void send_all() {
    size_t size = 0;
    for (const Queued& each : queue_) size += each.run->bytes.size();
    if (staged_.size() < size) staged_.resize(size);
    std::vector<mmsghdr> headers(queue_.size());
    std::vector<iovec> parts(queue_.size());
    std::vector<Control> controls(queue_.size());
    uint8_t* out = staged_.data();
    for (size_t i = 0; i < queue_.size(); ++i) {
      const Run& run = *queue_[i].run;
      parts[i] = {out, run.bytes.size()};
      out = stage(run, queue_[i].asked_at, out);
      msghdr& header = headers[i].msg_hdr;
      header.msg_name = &peer_;
      header.msg_namelen = sizeof peer_;
      header.msg_iov = &parts[i];
      header.msg_iovlen = 1;
      if (run.bytes.size() == run.segment) continue;
      header.msg_control = controls[i].bytes;
      header.msg_controllen = CMSG_SPACE(sizeof(uint16_t));
      cmsghdr& segment = *CMSG_FIRSTHDR(&header);
      segment.cmsg_level = SOL_UDP;
      segment.cmsg_type = UDP_SEGMENT;
      segment.cmsg_len = CMSG_LEN(sizeof(uint16_t));
      std::memcpy(CMSG_DATA(&segment), &run.segment, sizeof run.segment);
    }
    queue_.clear();
    for (size_t sent = 0; sent < headers.size();) {
      const int count = sendmmsg(socket_.get(), headers.data() + sent, static_cast<unsigned>(headers.size() - sent), 0);
      if (count < 0 && errno != EAGAIN && errno != EINTR) limits::fail_with_errno("sendmmsg");
      sent += static_cast<size_t>(std::max(count, 0));
    }
  }

  // When it was asked is in each datagram, as a PSN would be. Returns where the next one begins.
  uint8_t* stage(const Run& run, uint64_t asked_at, uint8_t* out) {
    for (size_t at = 0; at < run.bytes.size(); at += run.segment) {
      const size_t size = std::min<size_t>(run.segment, run.bytes.size() - at);
      sums_ ^= wire::crc32_copy(~0u, out, run.bytes.data() + at, size);
      std::memcpy(out + offsetof(Head, asked_at), &asked_at, sizeof asked_at);
      out += size;
    }
    return out;
  }

  struct Queued {
    const Run* run;
    uint64_t asked_at;
  };

  const Options options_;
  const UniqueFd socket_, epoll_;
  const std::vector<Run> ack_, answer_;
  sockaddr_in peer_{};
  std::vector<uint8_t> came_, staged_;
  uint8_t payload_[2 * kMtu] = {};
  uint32_t sums_ = 0;
  std::vector<Queued> queue_;
  iovec parts_[kSlots] = {};
  mmsghdr slots_[kSlots] = {};
  Control controls_[kSlots] = {};
  sockaddr_in from_[kSlots] = {};
  std::vector<uint64_t> round_trips_;
  uint64_t end_ = UINT64_MAX, last_ = 0, done_ = 0;
};

}  // namespace

void exchange_datagrams(const Options& options) {
  Exchange exchange(options);
  options.server ? exchange.serve() : exchange.ask();
}

}  // namespace uroce::kv
