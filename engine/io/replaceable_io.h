// SPDX-License-Identifier: BSD-2-Clause
// A PacketIo whose inner one can be taken out and another one put in, while everything around it stays as it is: a
// fault injector, a capture, the memory of other processes, the QPs. For a netdev that has changed so that its packet
// I/O has to be opened anew (device/followed_frames.h).
//
// In between packets to send are lost, as on a wire, and counted (tx_errors); is_open() lets others find another way.
// Calls are as of any PacketIo: with the shard's lock held, take() and put() too.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/io/packet_io.h"

namespace uroce::io {

class ReplaceableIo final : public PacketIo {
 public:
  explicit ReplaceableIo(std::unique_ptr<PacketIo> inner) { put(std::move(inner)); }

  // The inner one, whose end may take long; what receive() has handed out last goes with it. Null: there is none.
  std::unique_ptr<PacketIo> take() {
    if (inner_ != nullptr) former_ += inner_->counters();
    return std::move(inner_);
  }
  // After take().
  void put(std::unique_ptr<PacketIo> inner) {
    if (malformed_observer_) inner->observe_malformed(malformed_observer_);
    inner_ = std::move(inner);
    max_udp_length_ = inner_->max_udp_length();
    kernel_routes_ = inner_->kernel_routes();
  }

  size_t receive(std::span<RxPacket> out) override { return inner_ ? inner_->receive(out) : 0; }
  void look_everywhere() override {
    if (inner_) inner_->look_everywhere();
  }
  bool looked_everywhere() const override { return !inner_ || inner_->looked_everywhere(); }
  bool drained() const override { return inner_ && inner_->drained(); }
  size_t send(std::span<io::TxPacket> burst) override {
    if (inner_) return inner_->send(burst);
    former_.tx_errors += burst.size();
    return burst.size();
  }
  bool is_open() const override { return inner_ != nullptr; }
  size_t run(uint32_t udp_length) const override { return inner_ ? inner_->run(udp_length) : 1; }
  bool takes_runs(const wire::IpAddress& to) const override { return !inner_ || inner_->takes_runs(to); }
  size_t room() const override { return inner_ ? inner_->room() : SIZE_MAX; }
  bool flush() override { return !inner_ || inner_->flush(); }
  std::span<const pollfd> wait_descriptors() const override {
    return inner_ ? inner_->wait_descriptors() : std::span<const pollfd>();
  }
  bool left_over() const override { return inner_ && inner_->left_over(); }
  bool prepare_to_wait() override { return !inner_ || inner_->prepare_to_wait(); }
  uint32_t max_udp_length() const override { return max_udp_length_; }
  std::string description() const override { return inner_ ? inner_->description() : "closed"; }
  bool kernel_routes() const override { return kernel_routes_; }
  IoCounters counters() const override {
    IoCounters sum = former_;
    return inner_ ? sum += inner_->counters() : sum;
  }
  void observe_malformed(MalformedObserver observer) override {
    malformed_observer_ = std::move(observer);
    if (inner_) inner_->observe_malformed(malformed_observer_);
  }

 private:
  std::unique_ptr<PacketIo> inner_;
  IoCounters former_;            // of those that have ended, and of none
  uint32_t max_udp_length_ = 0;  // of the last one
  bool kernel_routes_ = false;
  MalformedObserver malformed_observer_;
};

}  // namespace uroce::io
