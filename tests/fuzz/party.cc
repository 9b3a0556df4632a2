// SPDX-License-Identifier: BSD-2-Clause
#include "tests/fuzz/party.h"

#include "engine/transport/common/qp_context.h"
#include "tests/fuzz/check.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace uroce::fuzz {

using transport::QpState;

bool Party::may_send() const {
  const QpState state = qp.rc.state();
  return state == QpState::kRts || state == QpState::kSqd || state == QpState::kErr;
}

void Party::collect() {
  while (const auto cqe = qp.poll(qp.send_cq)) sends.completed(*cqe, qp.send_cq.overrun());
  while (const auto cqe = qp.poll(qp.recv_cq)) receives.completed(*cqe, qp.recv_cq.overrun());
}

int Party::modify(const transport::QpAttributes& attributes, uint32_t mask) {
  collect();
  const int error = qp.modify(attributes, mask);
  if (error == 0 && qp.rc.state() == QpState::kReset) {
    sends.reset();
    receives.reset();
  }
  collect();
  return error;
}

void Party::end() {
  if (qp.rc.state() == QpState::kReset) {
    check(qp.send_cq.empty() && qp.recv_cq.empty(), "nothing completes in RESET");
    return;
  }
  transport::QpAttributes attributes;
  attributes.state = QpState::kErr;
  check(modify(attributes, transport::kQpState) == 0, "every state but RESET leads to ERR");
  host.events.run_for(simulator::Host::kRound);  // where it was in ERR already, posts are flushed by a round
  collect();
  // A last request, which asks for its completion: whoever is still missing now is lost.
  queue::SendWqe wqe{};
  wqe.flags = queue::kSignaled;
  wqe.wr_id = sends.posted(true, 0);
  check(qp.post(wqe, {}), "in the error state the queue is empty");
  check(qp.post_receive(receives.posted(true, 0)), "in the error state the queue is empty");
  host.events.run_for(simulator::Host::kRound);
  collect();
  check(sends.settled() || qp.send_cq.overrun(), "every send request completes");
  check(receives.settled() || qp.recv_cq.overrun(), "every receive request completes");
}

void Party::check_counters() const {
  const auto count = [this](Counter counter) { return host.counters.get(counter); };
  check(count(Counter::kTxRetransmissions) <= count(Counter::kTxRequests), "retransmissions are requests");
  check(count(Counter::kRxDuplicates) + count(Counter::kRxOutOfSequence) <= count(Counter::kRxRequests),
        "duplicates and early ones are requests");
  check(count(Counter::kDropAfterNak) <= count(Counter::kRxOutOfSequence), "what is behind a gap is out of sequence");
  check(count(Counter::kTxCnps) <= count(Counter::kRxCongestionMarks), "a CNP answers a mark");
  check(out.counters.sent <= count(Counter::kTxRequests) + count(Counter::kTxReadResponses) + count(Counter::kTxAcks) +
                                 count(Counter::kTxNaks) + count(Counter::kTxRnrNaks) + count(Counter::kTxCnps) +
                                 count(Counter::kRxRequests),  // every atomic response has its request
        "every frame is counted");
}

void Party::observe(std::span<const uint8_t> frame) {
  wire::Envelope envelope;
  std::span<const uint8_t> ib;
  wire::Packet packet;
  check(wire::parse_frame(frame, envelope, ib) == wire::FrameError::kNone, "frames that are sent can be parsed");
  check(wire::parse_packet(ib, packet) == wire::ParseError::kNone, "packets that are sent can be parsed");
  if (packet.info->operation == wire::Operation::kCnp) return;
  if (packet.info->operation == wire::Operation::kReadRequest) {
    next_request = packet.bth.psn + transport::packet_count(packet.reth.length, qp.rc.attributes().path_mtu);
  } else if (packet.info->request) {
    next_request = packet.bth.psn + 1;
  } else {
    const bool nak =
        packet.info->operation == wire::Operation::kAcknowledge && packet.aeth.kind() != wire::AethKind::kAck;
    expected = packet.bth.psn + (nak ? 0 : 1);
  }
}

}  // namespace uroce::fuzz
