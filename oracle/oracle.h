// SPDX-License-Identifier: BSD-2-Clause
// The trace oracle: reads the packets of one endpoint host and tells which rules of the reliable connected service, and
// of the connection manager, it broke. Written from the specification, shares nothing with the transport that it judges
// but the packet formats. Called by the simulator after every run, and by `uroce check` on captures of anybody's
// endpoints.
//
// Only the host whose packets these are is judged, because only at its own NIC is known what it had received when it
// sent. Its peers may do what they like.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "oracle/verdict.h"
#include "pcapng/record.h"

namespace uroce::oracle {

// What is known of a QP of the judged host. What is not known is not judged, or learnt from the packets.
struct Attributes {
  std::optional<uint32_t> path_mtu;            // bytes
  std::optional<uint8_t> timeout;              // code: 4.096 us * 2^code, 0 is for ever
  std::optional<uint8_t> retry_count;          // 0..7
  std::optional<uint8_t> rnr_retry;            // 0..7, 7 is for ever
  std::optional<uint32_t> max_rd_atomic;       // READs and atomics outstanding as requester
  std::optional<uint32_t> max_dest_rd_atomic;  // and as responder
  std::optional<wire::Psn> sq_psn;             // first PSN that it sends
  std::optional<wire::Psn> rq_psn;             // first PSN that it expects
  std::optional<bool> counts_credits;          // as responder; false: it must offer code 31 (it has an SRQ)
};

struct Options {
  // How much later than its record a received packet may take effect at the endpoint, and how much earlier than its
  // record a packet may have been decided. 0 in the simulator.
  Duration slack{};
  // A request that asks for an acknowledgement and gets none within this time was not answered.
  Duration answer_within = std::chrono::seconds(1);
  std::optional<uint32_t> path_mtu;  // of all connections without one of their own
  // A requester may wait for a peer that is away for so long, whatever its timeout and retry_cnt say: uroce does where
  // its user has asked for it.
  Duration patience{};
  size_t kept_violations = 10000;  // more are only counted
  bool whole = false;              // nothing was said before the first packet: an answer to nothing is a violation
};

enum class WorkKind : uint8_t { kSend, kWrite, kWriteImmediate, kRead, kAtomic, kLocal };  // kLocal: sends nothing
enum class Outcome : uint8_t { kSuccess, kFlushed, kError };

class Oracle {
 public:
  explicit Oracle(const Options& options = {});
  ~Oracle();
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  // `address` is the judged host's. Until one has been named, the sources of outbound records are.
  void add_local(const wire::IpAddress& address);

  // A connection from now on, before its first packet. What the connection manager's messages say needs no declaration,
  // and does not change one. Calling again begins it anew, as after a reset of the QP.
  // Once anything has been declared, packets to QPs that were not are violations.
  void declare(const wire::IpAddress& local, wire::Qpn local_qpn, const wire::IpAddress& remote, wire::Qpn remote_qpn,
               const Attributes& attributes);
  // The QP left its working states (error, reset, destroyed): it owes no more answers or completions.
  void ended(wire::Qpn local_qpn);

  // The packets in the order in which they passed the NIC. Those of other hosts and protocols are ignored.
  void add(const pcapng::Record& record);

  // Work of a declared QP, from its first request on; each before the packets that it causes. `length`: bytes of the
  // whole message.
  void posted(wire::Qpn local_qpn, uint64_t wr_id, bool signaled, WorkKind kind, uint64_t length);
  // After the packets that caused it.
  void completed(wire::Qpn local_qpn, uint64_t wr_id, Outcome outcome);

  // The end of the run; judges what should have happened by then. Only once.
  void finish(Time end);

  const std::vector<Violation>& violations() const;
  uint64_t violation_count() const;  // also those not kept
  uint64_t error_count() const;      // of Severity::kError
  uint64_t packet_count() const;     // RoCE v2 packets of the judged host
  std::vector<ConnectionSummary> summary() const;
  std::vector<CmSummary> cm_summary() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::oracle
