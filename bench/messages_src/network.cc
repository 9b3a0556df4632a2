// SPDX-License-Identifier: BSD-2-Clause
#include "bench/messages_src/network.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "bench/messages_src/split.h"
#include "engine/io/memory_link.h"
#include "engine/io/packet_io.h"
#include "engine/io/steering.h"
#include "engine/net/net_view.h"
#include "process/host.h"

namespace uroce::messages {
namespace {

constexpr uint32_t kMtu = 1500;

net::Netdev make_netdev(uint8_t number) {
  net::Netdev netdev;
  netdev.index = number + 1;
  netdev.name = "memory" + std::to_string(number);
  netdev.mac = {0x02, 0, 0, 0, 0, number};
  netdev.mtu = kMtu;
  netdev.up = netdev.running = true;
  const uint8_t address[] = {192, 0, 2, static_cast<uint8_t>(number + 1)};
  netdev.addresses = netdev.gids = {wire::IpAddress::v4(address)};
  return netdev;
}

// Nothing changes, and everybody is on the link.
class TwoNetdevs final : public net::NetView {
 public:
  std::vector<net::Netdev> netdevs() override { return netdevs_; }
  std::optional<net::Netdev> netdev(int index) override { return netdevs_.at(static_cast<size_t>(index) - 1); }
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress& destination) override {
    return net::Route{.next_hop = destination, .mtu = kMtu, .hop_limit = 64, .local = true};
  }
  std::shared_ptr<net::NextHop> next_hop(int index, const wire::IpAddress& address) override {
    return std::make_shared<net::NextHop>(index, address, neighbour(index, address));
  }
  net::Neighbour neighbour(int, const wire::IpAddress&) override { return {}; }
  void resolve_neighbour(int, const wire::IpAddress&) override {}
  int descriptor() const override { return -1; }
  bool process_changes() override { return false; }
  uint64_t generation() const override { return 1; }
  uint64_t requests() const override { return 0; }

 private:
  const std::vector<net::Netdev> netdevs_{make_netdev(0), make_netdev(1)};
};

class TimedIo final : public io::PacketIo {
 public:
  explicit TimedIo(std::unique_ptr<io::PacketIo> inner) : inner_(std::move(inner)) {}

  size_t receive(std::span<io::RxPacket> out) override {
    return on_wire([&] { return inner_->receive(out); });
  }
  size_t send(std::span<io::TxPacket> burst) override {
    return on_wire([&] { return inner_->send(burst); });
  }
  bool flush() override {
    return on_wire([&] { return inner_->flush(); });
  }
  std::span<const pollfd> wait_descriptors() const override { return inner_->wait_descriptors(); }
  bool prepare_to_wait() override { return inner_->prepare_to_wait(); }
  uint32_t max_udp_length() const override { return inner_->max_udp_length(); }
  std::string description() const override { return inner_->description(); }
  io::IoCounters counters() const override { return inner_->counters(); }

 private:
  const std::unique_ptr<io::PacketIo> inner_;
};

}  // namespace

void make_network(bool timed) {
  const uint32_t cpus = std::max(1u, std::thread::hardware_concurrency());
  engine::Options options;
  options.shards = std::min(std::bit_floor(cpus), io::kMaxShards);
  auto [first, second] = io::make_memory_links(options.shards);
  auto ends = std::make_shared<std::array<io::MemoryEnds, 2>>();
  *ends = {std::move(first), std::move(second)};
  engine::Host::make(std::move(options), std::make_shared<TwoNetdevs>(),
                     [ends, timed](const net::Netdev& netdev) -> std::variant<engine::OpenedIo, io::IoError> {
                       engine::OpenedIo opened;
                       for (std::unique_ptr<io::MemoryEnd>& end : ends->at(static_cast<size_t>(netdev.index) - 1)) {
                         opened.io.push_back(std::move(end));
                         if (timed) opened.io.back() = std::make_unique<TimedIo>(std::move(opened.io.back()));
                       }
                       return opened;
                     });
}

std::string counters_text() {
  std::string text;
  for (const auto& [index, engine] : engine::Host::existing()->existing_engines()) text += engine->counters_text();
  return text;
}

}  // namespace uroce::messages
