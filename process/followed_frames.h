// SPDX-License-Identifier: BSD-2-Clause
// AF_XDP on a netdev that may change, as under a virtual machine that moves: more receive queues (ethtool -L), a larger
// MTU. An AfXdp has its queues and the size of its chunks for good, so it is closed and another one opened in its place
// (io/replaceable_io.h). The kernel has one program and one socket for a queue, so there is nothing for some tens of
// milliseconds: packets of that time are lost, or take the way through sockets where there are some beside. QPs stay.
// Made by open_io.cc; every call with Device::setup held.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.h"
#include "engine/io/af_xdp/af_xdp.h"
#include "engine/io/replaceable_io.h"
#include "process/open_io.h"

namespace uroce::engine {

class FollowedFrames {
 public:
  using Open = std::function<io::IoResult<io::AfXdp>(const io::AfXdpConfig&)>;

  // Opens AF_XDP, which is the packet I/O that take_io() gives away.
  static std::variant<std::shared_ptr<FollowedFrames>, io::IoError> open(io::AfXdpConfig config,
                                                                         Open open = io::AfXdp::open);
  // Once. Nothing may be called any more when it has ended.
  std::unique_ptr<io::PacketIo> take_io() { return std::move(owned_); }

  // As OpenedIo's.
  int set_addresses(const wire::MacAddress& mac, std::span<const wire::IpAddress> addresses);
  Time follow(const net::Netdev& now, const OpenedIo::Exclusively& exclusively, Time time);
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  FollowedFrames(io::AfXdpConfig config, Open open, std::unique_ptr<io::AfXdp> frames);

  void open_again(const OpenedIo::Exclusively& exclusively, Time time);
  void look_at(const net::Netdev& now, const OpenedIo::Exclusively& exclusively, Time time);
  std::string loss() const;

  io::AfXdpConfig config_;  // for the next one; its MTU is the largest that the netdev has had
  const Open open_;
  io::AfXdp* frames_;  // in io_; null: could not be opened again yet
  std::unique_ptr<io::ReplaceableIo> owned_;
  io::ReplaceableIo& io_;
  std::vector<wire::IpAddress> addresses_;  // as told last
  int addresses_error_ = 0;
  std::string why_;      // it was opened anew, or has to be
  std::string failure_;  // of the last attempt
  Time retry_at_{};
  Duration retry_after_{};
  std::vector<std::string> standing_;  // what is wrong now and has been said
  std::vector<std::string> notices_;
};

}  // namespace uroce::engine
