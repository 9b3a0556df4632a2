// Watches every host's NIC: hands each frame to that host's oracle, and keeps the last ones for a capture file.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/simulator/host.h"

namespace uroce::simulator {

class Judge final : public Tap {
 public:
  explicit Judge(EventQueue& events) : events_(events) {}
  ~Judge();

  // What is known of a QP before its first packet.
  void declare(const Host& host, const SimQp& qp, const wire::IpAddress& peer, wire::Qpn peer_qpn,
               const transport::QpAttributes& attributes);
  void on_frame(const Host& host, Direction direction, const Frame& frame, Time now) override;

  // Something that somebody else found wrong; the first one counts.
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  // The first thing that is wrong, or empty. Ends the judgement.
  const std::string& finish();

  // Everything kept, as pcapng: one interface per host. False: cannot be written.
  bool write_capture(const std::string& path) const;

 private:
  static constexpr size_t kKeptBytes = 64u << 20;

  EventQueue& events_;
  std::string error_;
};

}  // namespace uroce::simulator
