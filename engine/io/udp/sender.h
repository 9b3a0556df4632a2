// Sends packets through one UDP socket, in runs where it can (run.h). Packets are staged in memory of our own, so that
// what was summed is what the kernel sends, whatever the application does to it meanwhile. Part of UdpIo.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/socket.h>

#include "engine/io/packet_io.h"
#include "engine/io/udp/message.h"
#include "engine/io/udp/run.h"

namespace uroce::io {

// Whether a socket sends runs. A kernel or a path that cannot refuses the first one; then packets leave one by one, and
// runs are tried again later, after a time that doubles.
class RunSupport {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::minutes(1);

  using Now = Clock::time_point (*)();
  explicit RunSupport(Now now = Clock::now) : now_(now) {}

  bool allowed() const { return state_ == State::kOn || (state_ == State::kPaused && now_() >= resume_); }
  // A run was refused. Whether because it was one, tells the next packet alone.
  void doubt() { state_ = State::kDoubted; }
  void on_alone(bool sent) {
    if (state_ != State::kDoubted) return;
    if (!sent) return resume();
    state_ = State::kPaused;
    resume_ = now_() + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    ++pauses_;
  }
  void on_run_sent() {
    if (state_ != State::kOn) resume();
    pause_ = kFirstPause;
  }
  uint64_t pauses() const { return pauses_; }

 private:
  enum class State { kOn, kDoubted, kPaused };
  void resume() { state_ = State::kOn; }

  Now now_;
  State state_ = State::kOn;
  Clock::time_point resume_;
  Clock::duration pause_ = kFirstPause;
  uint64_t pauses_ = 0;
};

class UdpSender {
 public:
  static constexpr size_t kBurst = 64;  // packets of one system call

  // `max_udp_length`: of any packet. `ifindex`: for link-local destinations.
  UdpSender(int fd, int ifindex, uint32_t max_udp_length, const RunLimits& limits, IoCounters& counters);

  // Packets of the socket's IP version. Returns how many are done with: sent, refused and counted, or unreadable. Fewer
  // than all: the send buffer is full.
  size_t send(std::span<io::TxPacket> packets);
  const RunSupport& runs() const { return support_; }

 private:
  struct Staged {
    size_t packets = 0;
    size_t messages = 0;
    bool unreadable = false;  // the packet behind these
  };
  struct Sent {
    size_t packets = 0;  // done with
    bool full = false;   // the send buffer
  };
  Staged stage(std::span<io::TxPacket> packets);
  Sent send_staged(const Staged& staged);
  void account(size_t message, bool sent);

  const int fd_;
  const int ifindex_;
  const uint32_t max_udp_length_;
  const RunLimits limits_;
  IoCounters& counters_;
  RunSupport support_;
  std::unique_ptr<uint8_t[]> bytes_;
  // One entry per message:
  std::array<mmsghdr, kBurst> headers_;
  std::array<UdpTxSlot, kBurst> slots_;
  std::array<size_t, kBurst> packets_in_;
};

}  // namespace uroce::io
