// SPDX-License-Identifier: BSD-2-Clause
// The exception path of a DPDK port: a tap, a netdev of the kernel whose frames are the port's. The kernel gets all
// that the port receives but RoCE packets, and the port sends what the kernel sends there. So the kernel has the
// addresses, answers ARP, pings and logs in through a port that it does not see.
//
// What bounds what: a frame to the kernel is as long as the port says; one from the kernel is cut at the room that it
// is read into. A tap holds as many as its queue is long (txqueuelen), and the kernel drops those beyond.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "engine/io/dpdk/dpdk.h"

namespace uroce::io {

class TapPath final : public OtherFrames {
 public:
  // On the tap with this name, which is there and which no other process has. Its owner needs no privilege.
  static IoResult<TapPath> open(const std::string& netdev);
  ~TapPath() override;

  void take(std::span<const uint8_t> frame) override;
  size_t next(std::span<uint8_t> out) override;
  // What the port has, the tap has.
  void link(bool up) override;
  int descriptor() const override { return fd_.get(); }

 private:
  explicit TapPath(UniqueFd fd);

  UniqueFd fd_;
  bool link_ = true;
};

}  // namespace uroce::io
