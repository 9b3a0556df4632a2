// SPDX-License-Identifier: BSD-2-Clause
// One QP of any type with everything around it, driven by a script: the test posts work, hands in packets of an
// imagined peer, moves the time, and looks at the packets, completions and events that come out.
#pragma once

#include <array>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iosfwd>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/transport/any_qp.h"
#include "tests/engine/transport/packet_matchers.h"
#include "tests/engine/transport/peer_packet.h"

namespace uroce::queue {
void PrintTo(const Cqe& cqe, std::ostream* out);
}  // namespace uroce::queue

namespace uroce::transport::test {

inline constexpr auto kOk = queue::WcStatus::kSuccess;
// Memory of the peer that does not exist: nobody looks at it.
inline constexpr uint64_t kRemote = 0x10'0000;
inline constexpr uint32_t kRkey = 0xa1b2c3d4;

inline constexpr uint32_t kPd = 7;
inline constexpr uint32_t kQpn = 0x101;
inline constexpr uint32_t kPeerQpn = 0x202;
inline constexpr uint32_t kMtu = 256;
inline constexpr uint32_t kSqPsn = 100;   // the QP's first request
inline constexpr uint32_t kRqPsn = 5000;  // the peer's first request
inline constexpr uint64_t kIova = 0x7000'0000'1000;
inline constexpr uint32_t kAllRemote = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;

inline constexpr uint32_t kToInit = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
inline constexpr uint32_t kToRtr =
    kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
inline constexpr uint32_t kToRts = kQpState | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic;

inline constexpr uint32_t kQkey = 0x1234;
inline constexpr uint32_t kAddressHandle = 77;

// What each type wants to be told on its way to RTR and RTS (wire.md "State transitions").
uint32_t init_mask(QpType type);
uint32_t rtr_mask(QpType type);
uint32_t rts_mask(QpType type);

// A memory region: its bytes, and how work requests and the peer name it. Not at the address that it has in memory.
struct Buffer {
  Bytes bytes;
  uint64_t iova = kIova;
  uint32_t key = 0;

  queue::Sge sge(uint32_t offset, uint32_t size) const { return {iova + offset, size, key}; }
};

QpAttributes default_attributes();

// The shared receive queues of XRC domains, by domain and number.
class ScriptedSrqs final : public XrcSrqs {
 public:
  const ReceiveTarget* find(uint32_t xrcd, uint32_t srqn) const override {
    const auto it = targets.find({xrcd, srqn});
    return it == targets.end() ? nullptr : &it->second;
  }
  std::map<std::pair<uint32_t, uint32_t>, ReceiveTarget> targets;
};

class ScriptedQp final : public QpEvents {
 public:
  struct Config {
    QpType type = QpType::kRc;
    uint32_t qpn = kQpn;
    uint32_t depth = 256;
    uint32_t max_sge = 4;
    uint32_t max_inline = 128;
    uint32_t cq_capacity = 1024;
    bool signal_all = false;
    bool rq_shared = false;
    std::optional<uint32_t> rq_pd = std::nullopt;  // of a shared receive queue
    uint32_t xrcd = 0;
    Duration patience{};
  };

  // clang 14 does not take a default argument of a nested type with member initialisers.
  ScriptedQp() : ScriptedQp(Config{}) {}
  explicit ScriptedQp(const Config& config);
  virtual ~ScriptedQp();

  // --- state ---------------------------------------------------------------------------------------------------------
  // As the engine does it: with room for the answers that are granted.
  int modify(QpState to, uint32_t mask, QpAttributes attributes = default_attributes());
  void to_init(const QpAttributes& a = default_attributes());
  void to_rtr(const QpAttributes& a = default_attributes());
  void to_rts(const QpAttributes& a = default_attributes());

  // --- memory --------------------------------------------------------------------------------------------------------
  Buffer make_buffer(size_t size, uint32_t access = memory::kLocalWrite | kAllRemote, uint32_t seed = 3);
  // `region` gives what differs from an ordinary region: access, pd if not 0.
  void add(Buffer& buffer, memory::MemoryRegion region);
  // What the peer may invalidate: a type 2 window for all of `buffer`, bound on this QP; its key becomes the buffer's.
  void add_window(Buffer& buffer, uint32_t pd = kPd);

  // --- work ----------------------------------------------------------------------------------------------------------
  void post(queue::SendWqe wqe, const std::vector<queue::Sge>& sges = {});
  void post_inline(queue::SendWqe wqe, const Bytes& bytes);
  void post_receive(uint64_t wr_id, const std::vector<queue::Sge>& sges = {});

  // --- packets -------------------------------------------------------------------------------------------------------
  void receive(const PeerPacket& from_peer);
  // All that the QP gives out now, acknowledgements not counted. Its bytes are made at once.
  std::vector<SentPacket> pull() { return pull(SIZE_MAX); }
  // At most `count` of them.
  std::vector<SentPacket> pull(size_t count);
  // The same, but their bytes have still to be made: the caller says when, with qp.on_taken() or on_unreadable().
  std::vector<io::TxPacket> pull_waiting(size_t count = SIZE_MAX);
  // The acknowledgement, if one may go now. Does not wait for its deadline.
  std::vector<SentPacket> pull_ack();
  // Everything: responses, requests, acknowledgement.
  std::vector<SentPacket> drain();

  // --- time ----------------------------------------------------------------------------------------------------------
  void advance(Duration time) { now += time; }
  // Moves on to the deadline, which must exist, and tells the QP.
  void expire();
  // As the engine does it: calls on_timer() at every deadline until `end`, gives the packets sent meanwhile.
  std::vector<SentPacket> run_until(Time end);

  // --- results -------------------------------------------------------------------------------------------------------
  static std::vector<queue::Cqe> take(queue::CompletionQueue& cq);
  std::vector<queue::Cqe> sends() { return take(send_cq); }
  std::vector<queue::Cqe> receives() { return take(recv_cq); }
  uint64_t count(Counter counter) const { return counters.get(counter); }

  void on_event(AsyncEvent event) override { events.push_back(event); }
  void on_srq_limit(queue::ReceiveQueue&) override { events.push_back(AsyncEvent::kSrqLimitReached); }
  void on_cq_overrun(queue::CompletionQueue&) override { events.push_back(AsyncEvent::kCqError); }

  Time now{std::chrono::seconds(1)};
  queue::SendQueue sq;
  queue::ReceiveQueue rq;
  queue::CompletionQueue send_cq;
  queue::CompletionQueue recv_cq;
  memory::MrTable mrs;
  Counters counters;
  std::vector<AsyncEvent> events;
  ScriptedSrqs srqs;
  wire::Envelope envelope;  // of what the peer sends
  const QpType type;

 private:
  std::array<queue::Sge, queue::kMaxSge> receive_sges_;
  std::vector<ReplayEntry> answers_;
  const AnyQp transport_;

 public:
  TransportQp& qp;
  congestion::Controller congestion;  // of the peer

 private:
  SentPacket as_sent(const io::TxPacket& packet) const;

  uint32_t key_source_ = 0x1234567;
};

// Work requests as an application writes them.
queue::SendWqe work(queue::WrOpcode opcode, uint64_t wr_id, uint8_t flags = queue::kSignaled);
queue::SendWqe rdma(queue::WrOpcode opcode, uint64_t wr_id, uint64_t va, uint32_t rkey,
                    uint8_t flags = queue::kSignaled);

queue::SendWqe datagram(uint64_t wr_id, uint8_t flags = queue::kSignaled,
                        queue::WrOpcode opcode = queue::WrOpcode::kSend);

testing::Matcher<const queue::Cqe&> IsCompletion(uint64_t wr_id, queue::WcStatus status);

}  // namespace uroce::transport::test
