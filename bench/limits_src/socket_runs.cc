// SPDX-License-Identifier: BSD-2-Clause
// socket_bench blast of runs: equal datagrams that leave as one message (UDP_SEGMENT), as the bulk plane of uroce wants
// them. The socket is not connected and sets DF: so the IP IDs of every run count up from 0, which an ICRC has to know.
// Contiguous: the run in one buffer. Gathered: of each datagram the headers, the payload and the ICRC in a place each.
// Summed: contiguous, and each payload is copied there from application memory and summed on the way.
// Acknowledged: no more than a window leaves without an answer, which says how many datagrams have come.
#include <algorithm>
#include <cstring>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "bench/limits_src/process.h"
#include "bench/limits_src/socket_bench.h"
#include "wire/crc32.h"

namespace uroce::limits {
namespace {

constexpr uint32_t kHeaderBytes = 12;  // BTH
constexpr uint32_t kIcrcBytes = 4;

uint32_t payload_bytes_of(const SocketBenchOptions& options) {
  if (options.bytes <= kHeaderBytes + kIcrcBytes) throw std::runtime_error("the datagrams are too short for a packet");
  return options.bytes - kHeaderBytes - kIcrcBytes;
}

int open_unconnected(const PeerOptions& options) {
  const int fd = open_socket(options);
  const int discover = options.ipv6 ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO;
  const int result = options.ipv6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof discover)
                                  : setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  if (result != 0) fail_with_errno("MTU_DISCOVER");
  return fd;
}

// The same run again and again.
class Run {
 public:
  explicit Run(const SocketBenchOptions& options)
      : peer_(peer_endpoint(options.peer)),
        bytes_(size_t{options.segments} * options.bytes),
        parts_(options.gather ? gathered(options) : std::vector<iovec>{{bytes_.data(), bytes_.size()}}) {
    message_.msg_name = &peer_.any;
    message_.msg_namelen = peer_.length;
    message_.msg_iov = parts_.data();
    message_.msg_iovlen = parts_.size();
    message_.msg_control = control_;
    message_.msg_controllen = sizeof control_;
    cmsghdr& segment = *CMSG_FIRSTHDR(&message_);
    segment.cmsg_level = SOL_UDP;
    segment.cmsg_type = UDP_SEGMENT;
    segment.cmsg_len = CMSG_LEN(sizeof(uint16_t));
    const auto segment_bytes = static_cast<uint16_t>(options.bytes);
    std::memcpy(CMSG_DATA(&segment), &segment_bytes, sizeof segment_bytes);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  bool send_by(int fd) const { return sendmsg(fd, &message_, 0) >= 0; }

  void fill_from(const std::vector<uint8_t>& payload, uint32_t bytes) {
    const uint32_t payload_bytes = bytes - kHeaderBytes - kIcrcBytes;
    const uint8_t* from = payload.data();
    for (uint8_t* to = bytes_.data(); to < bytes_.data() + bytes_.size(); to += bytes, from += payload_bytes) {
      const uint32_t crc =
          wire::crc32_copy(wire::crc32_update(~0u, to, kHeaderBytes), to + kHeaderBytes, from, payload_bytes);
      std::memcpy(to + kHeaderBytes + payload_bytes, &crc, kIcrcBytes);
    }
  }

 private:
  // Three arrays, one behind the other: of headers, of payloads, of ICRCs.
  std::vector<iovec> gathered(const SocketBenchOptions& options) {
    const uint32_t payload_bytes = payload_bytes_of(options);
    uint8_t* const payloads = bytes_.data() + size_t{options.segments} * kHeaderBytes;
    uint8_t* const icrcs = payloads + size_t{options.segments} * payload_bytes;
    std::vector<iovec> parts;
    for (size_t i = 0; i < options.segments; ++i) {
      parts.push_back({bytes_.data() + i * kHeaderBytes, kHeaderBytes});
      parts.push_back({payloads + i * payload_bytes, payload_bytes});
      parts.push_back({icrcs + i * kIcrcBytes, kIcrcBytes});
    }
    return parts;
  }

  Endpoint peer_;
  std::vector<uint8_t> bytes_;
  std::vector<iovec> parts_;
  alignas(cmsghdr) uint8_t control_[CMSG_SPACE(sizeof(uint16_t))] = {};
  msghdr message_{};
};

// Datagrams sent and acknowledged.
class Window {
 public:
  explicit Window(int fd) : fd_(fd) {}

  // Looks for answers, as an endpoint does in every round; waits until so many more may leave.
  void take(uint64_t datagrams) {
    uint64_t idle_looks = 0;
    do {
      uint64_t arrived = 0;
      const bool answered = recv(fd_, &arrived, sizeof arrived, MSG_DONTWAIT) == sizeof arrived;
      if (answered) acknowledged_ = std::max(acknowledged_, arrived);
      if (!answered && ++idle_looks == kLooksForLost) acknowledged_ = sent_;  // it does not repeat anything
    } while (sent_ - acknowledged_ > kWindow - datagrams && !stop_requested());
    sent_ += datagrams;
  }

 private:
  static constexpr uint64_t kLooksForLost = 1'000'000;  // a second or so
  const int fd_;
  uint64_t sent_ = 0, acknowledged_ = 0;
};

}  // namespace

void blast_runs(const SocketBenchOptions& options) {
  const int fd = open_unconnected(options.peer);
  Run run(options);
  Window window(fd);
  const std::vector<uint8_t> payload(options.sum ? size_t{options.segments} * payload_bytes_of(options) : 0);
  while (!stop_requested()) {
    if (options.acknowledge > 0) window.take(options.segments);
    if (options.sum) run.fill_from(payload, options.bytes);
    if (!run.send_by(fd) && !stop_requested()) fail_with_errno("sendmsg");
  }
  close(fd);
}

Summer::Summer(const SocketBenchOptions& options) : bytes_(options.bytes), payload_bytes_(payload_bytes_of(options)) {}

uint32_t Summer::take(std::span<const uint8_t> run) {
  payload_.resize(run.size());
  uint32_t sums = 0;
  uint8_t* to = payload_.data();
  for (; run.size() >= bytes_; run = run.subspan(bytes_), to += payload_bytes_) {
    sums ^= wire::crc32_update(~0u, run.data(), bytes_);
    std::memcpy(to, run.data() + kHeaderBytes, payload_bytes_);
  }
  return sums;
}

}  // namespace uroce::limits
