// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/judge.h"

#include <fstream>
#include <utility>

#include "oracle/report.h"
#include "pcapng/pcapng_writer.h"

namespace uroce::simulator {

namespace {

oracle::WorkKind kind_of(queue::WrOpcode opcode) {
  switch (opcode) {
    case queue::WrOpcode::kRdmaWrite:
      return oracle::WorkKind::kWrite;
    case queue::WrOpcode::kRdmaWriteWithImmediate:
      return oracle::WorkKind::kWriteImmediate;
    case queue::WrOpcode::kRdmaRead:
      return oracle::WorkKind::kRead;
    case queue::WrOpcode::kCompareSwap:
    case queue::WrOpcode::kFetchAdd:
      return oracle::WorkKind::kAtomic;
    case queue::WrOpcode::kLocalInvalidate:
    case queue::WrOpcode::kBindMw:
      return oracle::WorkKind::kLocal;
    default:
      return oracle::WorkKind::kSend;
  }
}

}  // namespace

Judge::~Judge() = default;

oracle::Oracle& Judge::oracle_of(const Host& host) {
  auto& oracle = oracles_[host.number()];
  if (oracle == nullptr) {
    oracle = std::make_unique<oracle::Oracle>();
    oracle->add_local(host.address());
  }
  return *oracle;
}

void Judge::declare(const Host& host, const SimQp& qp, const wire::IpAddress& peer, wire::Qpn peer_qpn,
                    const transport::QpAttributes& a) {
  oracle::Attributes known;
  known.path_mtu = a.path_mtu;
  known.timeout = a.timeout;
  known.retry_count = a.retry_count;
  known.rnr_retry = a.rnr_retry;
  known.max_rd_atomic = a.max_rd_atomic;
  known.max_dest_rd_atomic = a.max_dest_rd_atomic;
  known.sq_psn = a.sq_psn;
  known.rq_psn = a.rq_psn;
  known.counts_credits = true;
  oracle_of(host).declare(host.address(), qp.rc.qpn(), peer, peer_qpn, known);
}

void Judge::on_frame(const Host& host, Direction direction, const Frame& frame, Time now) {
  pcapng::Record record;
  record.number = ++frames_;
  record.time = now;
  record.interface = host.number() - 1u;
  record.direction = direction == Direction::kIn ? pcapng::Direction::kIn : pcapng::Direction::kOut;
  record.frame.assign(frame.begin(), frame.end());
  oracle_of(host).add(record);
  kept_bytes_ += frame.size();
  kept_.push_back(std::move(record));
  while (kept_bytes_ > kKeptBytes) {
    kept_bytes_ -= kept_.front().frame.size();
    kept_.pop_front();
  }
}

void Judge::on_posted(const Host& host, const SimQp& qp, const queue::SendWqe& wqe, uint64_t length) {
  const bool signaled = qp.signal_all || (wqe.flags & queue::kSignaled) != 0;
  oracle_of(host).posted(qp.rc.qpn(), wqe.wr_id, signaled, kind_of(wqe.opcode), length);
}

void Judge::on_completed(const Host& host, const queue::Cqe& cqe) {
  const auto outcome = cqe.status == queue::WcStatus::kSuccess      ? oracle::Outcome::kSuccess
                       : cqe.status == queue::WcStatus::kFlushError ? oracle::Outcome::kFlushed
                                                                    : oracle::Outcome::kError;
  oracle_of(host).completed(wire::Qpn(cqe.qpn), cqe.wr_id, outcome);
}

void Judge::on_ended(const Host& host, const SimQp& qp) {
  oracle_of(host).ended(qp.rc.qpn());
}

const std::string& Judge::finish() {
  if (std::exchange(finished_, true)) return error_;
  for (const auto& [number, oracle] : oracles_) {
    oracle->finish(events_.now());
    if (oracle->error_count() == 0) continue;
    for (const oracle::Violation& violation : oracle->violations()) {
      if (oracle::rule_info(violation.rule).severity != oracle::Severity::kError) continue;
      fail(std::to_string(oracle->error_count()) + " violations at host " + std::to_string(number) +
           ", the first: " + oracle::format_violation(violation));
      break;
    }
  }
  return error_;
}

bool Judge::write_capture(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  pcapng::PcapngWriter writer(file, "uroce simulator");
  for (const auto& [number, oracle] : oracles_) writer.add_interface("host" + std::to_string(number));
  for (const pcapng::Record& record : kept_) writer.write(record);
  file.flush();
  return writer.ok() && file.good();
}

}  // namespace uroce::simulator
