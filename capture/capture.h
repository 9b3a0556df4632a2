// SPDX-License-Identifier: BSD-2-Clause
// A PacketIo that wraps another one and shows its packets to captures (engine/io/capture/). The engine puts it around
// any backend and outside the fault injector, so that a capture shows what the engine meant to send and what it got to
// see; what the injector did in between is said with each packet, and the packets that it took away on receive are
// shown on an interface of their own. It sends some packets later than it takes them, so that their IPv4 identification
// is not known and shown as 0.
//
// While nobody listens it costs one load per burst.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "capture/tap.h"
#include "engine/io/packet_io.h"

namespace uroce::io {

class Capture final : public PacketIo {
 public:
  // kLoop: a memory loop, the packets between QPs of this process. Each is shown when it has arrived.
  enum class Link : uint8_t { kWire, kLoop };

  // `on_close` is called in the end, when the tap gets no more packets.
  Capture(std::unique_ptr<PacketIo> inner, std::shared_ptr<CaptureTap> tap, std::function<void()> on_close = {},
          Link link = Link::kWire)
      : inner_(std::move(inner)), tap_(std::move(tap)), on_close_(std::move(on_close)), link_(link) {}
  ~Capture() override {
    if (on_close_) on_close_();
  }

  size_t receive(std::span<RxPacket> out) override;
  void look_everywhere() override { inner_->look_everywhere(); }
  bool looked_everywhere() const override { return inner_->looked_everywhere(); }
  bool drained() const override { return inner_->drained(); }
  size_t send(std::span<io::TxPacket> burst) override;
  bool flush() override { return inner_->flush(); }
  std::span<const pollfd> wait_descriptors() const override { return inner_->wait_descriptors(); }
  bool prepare_to_wait() override { return inner_->prepare_to_wait(); }
  bool sent_waits() const override { return inner_->sent_waits(); }
  uint32_t max_udp_length() const override { return inner_->max_udp_length(); }
  std::string description() const override { return inner_->description(); }
  size_t run(uint32_t udp_length) const override { return inner_->run(udp_length); }
  bool takes_runs(const wire::IpAddress& to) const override { return inner_->takes_runs(to); }
  // What is captured is as on a wire.
  uint32_t long_payload(wire::Qpn to) const override { return tap_->listening() ? 0 : inner_->long_payload(to); }
  bool left_over() const override { return inner_->left_over(); }
  bool kernel_routes() const override { return inner_->kernel_routes(); }
  IoCounters counters() const override;

  bool wants_verdicts() const override { return !arrived_.empty(); }
  void on_verdicts(std::span<const uint64_t> verdicts) override;

  // Wall clock, ns since 1970.
  static int64_t wall_clock();

 private:
  std::unique_ptr<PacketIo> inner_;
  std::shared_ptr<CaptureTap> tap_;
  std::function<void()> on_close_;
  const Link link_;
  bool shown_ = false;                 // packets arrive as on a wire
  std::span<const RxPacket> arrived_;  // of the last receive(), while somebody listens
  int64_t arrived_at_ = 0;
};

}  // namespace uroce::io
