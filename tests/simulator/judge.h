// SPDX-License-Identifier: BSD-2-Clause
// Watches every host's NIC and queues: hands what passes to that host's oracle, and keeps the last frames for a capture
// file.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "oracle/oracle.h"
#include "pcapng/record.h"
#include "tests/simulator/host.h"

namespace uroce::simulator {

class Judge final : public Tap {
 public:
  explicit Judge(EventQueue& events) : events_(events) {}
  ~Judge();

  // What is known of a QP before its first packet. `peer_qpn`: of the host with address `peer`.
  void declare(const Host& host, const SimQp& qp, const wire::IpAddress& peer, wire::Qpn peer_qpn,
               const transport::QpAttributes& attributes);
  void on_frame(const Host& host, Direction direction, const Frame& frame, Time now) override;
  void on_posted(const Host& host, const SimQp& qp, const queue::SendWqe& wqe, uint64_t length) override;
  void on_completed(const Host& host, const queue::Cqe& cqe) override;
  void on_ended(const Host& host, const SimQp& qp) override;

  // Something that somebody else found wrong; the first one counts.
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  // The first thing that is wrong, or empty. Ends the judgement.
  const std::string& finish();

  // What was seen, unless it was too much, with the host's number less one as interface.
  const std::deque<pcapng::Record>& kept() const { return kept_; }
  // Everything kept, as pcapng: one interface per host. False: cannot be written.
  bool write_capture(const std::string& path) const;

 private:
  static constexpr size_t kKeptBytes = 64u << 20;

  oracle::Oracle& oracle_of(const Host& host);

  EventQueue& events_;
  std::map<uint16_t, std::unique_ptr<oracle::Oracle>> oracles_;  // by host number
  std::deque<pcapng::Record> kept_;
  size_t kept_bytes_ = 0;
  uint64_t frames_ = 0;
  std::string error_;
  bool finished_ = false;
};

}  // namespace uroce::simulator
