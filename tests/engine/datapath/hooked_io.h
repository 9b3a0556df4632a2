// SPDX-License-Identifier: BSD-2-Clause
// A memory loop, or another packet I/O, that lets a test into the middle of a round: what happens there happens under
// the progress lock.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/io/memory_link.h"

namespace uroce::engine::test {

class HookedIo final : public io::PacketIo {
 public:
  // Called in every receive(), with what arrived.
  using Hook = std::function<void(std::span<io::RxPacket> arrived)>;

  // `waits`: called in every prepare_to_wait().
  explicit HookedIo(
      Hook hook, std::unique_ptr<io::PacketIo> link = io::make_memory_loop(), std::function<void()> waits = [] {})
      : link_(std::move(link)), hook_(std::move(hook)), waits_(std::move(waits)) {}

  size_t receive(std::span<io::RxPacket> out) override {
    const size_t count = link_->receive(out);
    hook_(out.first(count));
    return count;
  }
  size_t send(std::span<io::TxPacket> burst) override { return link_->send(burst); }
  bool flush() override { return link_->flush(); }
  std::span<const pollfd> wait_descriptors() const override { return link_->wait_descriptors(); }
  bool prepare_to_wait() override {
    waits_();
    return link_->prepare_to_wait();
  }
  uint32_t max_udp_length() const override { return link_->max_udp_length(); }
  std::string description() const override { return link_->description(); }
  io::IoCounters counters() const override { return link_->counters(); }

 private:
  const std::unique_ptr<io::PacketIo> link_;
  const Hook hook_;
  const std::function<void()> waits_;
};

}  // namespace uroce::engine::test
