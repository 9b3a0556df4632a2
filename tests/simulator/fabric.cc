// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/fabric.h"

#include <utility>

#include "wire/ip_udp.h"

namespace uroce::simulator {

namespace {

// Frames of hosts, so IPv4 without options.
constexpr size_t kSource = wire::kEthernetSize + 12;
constexpr size_t kDestination = kSource + 4;
constexpr size_t kSourcePort = wire::kEthernetSize + wire::kIpv4Size;

uint32_t destination_of(const Frame& frame) {
  return Host::number_at(frame[kDestination + 2], frame[kDestination + 3]);
}

uint32_t flow_hash(const Frame& frame) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  uint64_t hash = wire::load_be32(&frame[kSource]);
  for (const uint32_t part : {wire::load_be32(&frame[kDestination]), uint32_t{wire::load_be16(&frame[kSourcePort])}}) {
    hash = (hash ^ hash >> 32) * kMultiplier + part;
  }
  return static_cast<uint32_t>((hash ^ hash >> 32) * kMultiplier >> 32);
}

}  // namespace

Fabric::Fabric(EventQueue& events, std::mt19937_64& random, const FabricConfig& config)
    : config_(config), events_(events), random_(random) {
  for (uint32_t i = 0; i < config_.hosts; ++i) {
    Link& out = add_link(kNic, config_.host_link);
    Host& host =
        *hosts_.emplace_back(std::make_unique<Host>(events, static_cast<uint16_t>(i), out, nullptr, config_.algorithm));
    out.connect([this, leaf = leaf_of(i)](Frame frame) { at_leaf(leaf, std::move(frame)); });
    add_link(kLeafToHost, config_.leaf_link).connect([&host](Frame frame) { host.receive(std::move(frame)); });
  }
  for (uint32_t leaf = 0; leaf <= leaf_of(config_.hosts - 1); ++leaf) {
    for (uint32_t spine = 0; spine < config_.spines; ++spine) {
      add_link(kLeafToSpine, config_.trunk_link).connect([this, spine](Frame frame) {
        at_spine(spine, std::move(frame));
      });
      add_link(kSpineToLeaf, config_.trunk_link).connect([this, leaf](Frame frame) {
        at_leaf(leaf, std::move(frame));
      });
    }
  }
}

Link& Fabric::add_link(Tier tier, const LinkConfig& config) {
  return *links_[tier].emplace_back(std::make_unique<Link>(events_, random_, config));
}

void Fabric::at_leaf(uint32_t leaf, Frame frame) {
  const uint32_t to = destination_of(frame);
  if (to >= config_.hosts) return;
  Link& next =
      leaf_of(to) == leaf ? *links_[kLeafToHost][to] : trunk(kLeafToSpine, leaf, flow_hash(frame) % config_.spines);
  next.send(std::move(frame));
}

void Fabric::at_spine(uint32_t spine, Frame frame) {
  trunk(kSpineToLeaf, leaf_of(destination_of(frame)), spine).send(std::move(frame));
}

LinkCounters Fabric::counters(Tier tier) const {
  LinkCounters sum;
  for (const auto& link : links_[tier]) {
    sum.sent += link->counters.sent;
    sum.dropped += link->counters.dropped;
    sum.overflowed += link->counters.overflowed;
    sum.marked += link->counters.marked;
  }
  return sum;
}

void Fabric::count_lengths() {
  for (size_t tier = 0; tier < kTiers; ++tier) {
    lengths_[tier] = {};
    for (const auto& link : links_[tier]) link->lengths = &lengths_[tier];
  }
}

}  // namespace uroce::simulator
