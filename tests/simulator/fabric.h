// SPDX-License-Identifier: BSD-2-Clause
// A two-tier network: hosts at leaf switches, and every leaf joined to every spine. Which spine a packet takes between
// two leaves is decided by its addresses and UDP source port (ECMP), so a flow stays in order. Queues, marks and drops
// are those of the Links. Nobody judges or keeps the frames: that would take longer than the simulation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/simulator/event_queue.h"
#include "tests/simulator/host.h"
#include "tests/simulator/link.h"

namespace uroce::simulator {

struct FabricConfig {
  uint32_t hosts = 1000;
  uint32_t hosts_per_leaf = 32;
  uint32_t spines = 8;
  LinkConfig host_link;   // from each host to its leaf; its queue is the NIC's
  LinkConfig leaf_link;   // from the leaf to each of its hosts
  LinkConfig trunk_link;  // between leaf and spine, either way
  congestion::Algorithm algorithm = congestion::Algorithm::kAuto;
};

class Fabric {
 public:
  // Whose queue.
  enum Tier : uint8_t { kNic, kLeafToSpine, kSpineToLeaf, kLeafToHost, kTiers };

  Fabric(EventQueue& events, std::mt19937_64& random, const FabricConfig& config);

  Host& host(uint32_t index) { return *hosts_[index]; }
  uint32_t host_count() const { return config_.hosts; }
  LinkCounters counters(Tier tier) const;
  const QueueLengths& lengths(Tier tier) const { return lengths_[tier]; }
  // Counts them from now on.
  void count_lengths();

 private:
  uint32_t leaf_of(uint32_t host) const { return host / config_.hosts_per_leaf; }
  Link& add_link(Tier tier, const LinkConfig& config);
  void at_leaf(uint32_t leaf, Frame frame);
  void at_spine(uint32_t spine, Frame frame);
  Link& trunk(Tier tier, uint32_t leaf, uint32_t spine) { return *links_[tier][leaf * config_.spines + spine]; }

  const FabricConfig config_;
  EventQueue& events_;
  std::mt19937_64& random_;
  std::array<std::vector<std::unique_ptr<Link>>, kTiers> links_;  // by host, or by leaf and spine
  std::array<QueueLengths, kTiers> lengths_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace uroce::simulator
