// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/flow_table.h"

#include <algorithm>
#include <cstring>

namespace uroce::dissector {
namespace {

// Bound the work per packet: a flow searches in few others, and not at each of its answers.
constexpr size_t kMostCandidates = 4096;
constexpr uint32_t kEagerAttempts = 16;

size_t mix(size_t seed, uint64_t value) {
  uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

size_t hash(const wire::IpAddress& address) {
  uint64_t halves[2];
  std::memcpy(halves, address.bytes.data(), sizeof halves);
  return mix(mix(0, halves[0]), halves[1]);
}

// The source port that Linux and mlx5 choose when the address handle has no flow label (wire.md "IP and UDP").
uint16_t source_port_for(uint32_t qpn_a, uint32_t qpn_b) {
  uint64_t v = uint64_t{qpn_a} * qpn_b;
  v ^= v >> 20;
  v ^= v >> 40;
  const auto label = static_cast<uint32_t>(v & 0xfffff);
  return static_cast<uint16_t>(((label & 0x3fff) ^ ((label & 0xfc000) >> 14)) | 0xc000);
}

bool ports_fit(const Flow& a, const Flow& b) {
  return a.source_port == b.source_port &&
         a.source_port == source_port_for(a.key.destination_qpn, b.key.destination_qpn);
}

bool may_pair(const Flow& a, const Flow& b) {
  const auto unknown = wire::Transport::kCnp;  // of a flow that began with a CNP
  return a.peer == kNone && (a.transport == b.transport || a.transport == unknown || b.transport == unknown);
}

}  // namespace

size_t FlowKeyHash::operator()(const FlowKey& key) const {
  return mix(hash(key.source), hash(key.destination) ^ (uint64_t{key.destination_qpn} << 32 | key.source_qpn));
}

size_t FlowTable::AddressesHash::operator()(const Addresses& addresses) const {
  return mix(hash(addresses.source), hash(addresses.destination));
}

uint32_t FlowTable::find(const FlowKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? kNone : found->second;
}

uint32_t FlowTable::find_or_add(const FlowKey& key, wire::Transport transport, uint16_t source_port) {
  const uint32_t found = find(key);
  if (found != kNone) return found;
  const uint32_t flow = add(key, transport, source_port);
  if (key.source_qpn == FlowKey::kConnected) {
    unpaired_[{key.source, key.destination}].push_back(flow);
    pair_by_port(flow);
    return flow;
  }
  const uint32_t other = find({key.destination, key.source, key.source_qpn, key.destination_qpn});
  if (other != kNone && other != flow) pair(flow, other);
  return flow;
}

uint32_t FlowTable::add(const FlowKey& key, wire::Transport transport, uint16_t source_port) {
  const auto flow = static_cast<uint32_t>(flows_.size());
  Flow& added = flows_.emplace_back(key, transport);
  added.source_port = source_port;
  added.stream = streams_++;
  by_key_[key] = flow;
  return flow;
}

uint32_t FlowTable::restart(uint32_t flow) {
  const Flow& old = flows_[flow];
  const uint32_t old_peer = old.peer;
  if (old_peer == kNone) forget_unpaired(flow);
  const uint32_t fresh = add(old.key, old.transport, old.source_port);
  if (old_peer == kNone) {
    unpaired_[{old.key.source, old.key.destination}].push_back(fresh);
    return fresh;
  }
  const Flow& peer = flows_[old_peer];
  const uint32_t fresh_peer = add(peer.key, peer.transport, peer.source_port);
  pair(fresh, fresh_peer);
  return fresh;
}

// Both directions have the source port that only few pairs of QPNs lead to: 1 in 2^14 by chance.
void FlowTable::pair_by_port(uint32_t flow) {
  uint32_t match = kNone;
  for (const uint32_t other : unpaired_towards(flow)) {
    if (other == flow || !may_pair(flows_[other], flows_[flow]) || !ports_fit(flows_[other], flows_[flow])) continue;
    if (match != kNone) return;
    match = other;
  }
  if (match != kNone) pair(flow, match);
}

void FlowTable::pair_by_answer(uint32_t flow, wire::Psn psn) {
  Flow& answers = flows_[flow];
  const uint32_t attempt = ++answers.pairing_attempts;
  if (attempt > kEagerAttempts && (attempt & (attempt - 1)) != 0) return;
  const auto fits = [&](uint32_t other) {
    const Flow& candidate = flows_[other];
    return other != flow && may_pair(candidate, answers) && candidate.requests.awaits(psn);
  };
  // Many applications start all connections with PSN 0: then it takes several answers until one candidate is left.
  std::erase_if(answers.candidates, [&](uint32_t other) { return !fits(other); });
  if (answers.candidates.empty()) {
    for (const uint32_t other : unpaired_towards(flow)) {
      if (fits(other)) answers.candidates.push_back(other);
    }
  }
  if (answers.candidates.empty()) pair_only_ones(flow, psn);
  if (answers.candidates.size() != 1) return;
  if (attempt > 1) flows_[answers.candidates.front()].requests.missed_answers();
  pair(flow, answers.candidates.front());
}

// The answer is for a request in front of the capture, or for one that was lost. If there is only one connection
// between these addresses it can be nobody else's.
void FlowTable::pair_only_ones(uint32_t flow, wire::Psn psn) {
  const auto& others = unpaired_towards(flow);
  const auto own = unpaired_.find({flows_[flow].key.source, flows_[flow].key.destination});
  if (others.size() != 1 || own == unpaired_.end() || own->second.size() != 1) return;
  const uint32_t other = others.front();
  if (other == flow || !may_pair(flows_[other], flows_[flow]) || !flows_[other].requests.may_have_missed(psn)) return;
  pair(flow, other);
}

void FlowTable::pair(uint32_t a, uint32_t b) {
  forget_unpaired(a);
  forget_unpaired(b);
  Flow& one = flows_[a];
  Flow& two = flows_[b];
  one.candidates = two.candidates = {};
  one.peer = b;
  two.peer = a;
  const uint32_t stream = std::min(one.stream, two.stream);
  // Numbers stay dense when the later one was the last that was given.
  if (std::max(one.stream, two.stream) + 1 == streams_ && one.stream != two.stream) --streams_;
  one.stream = two.stream = stream;
}

void FlowTable::connect(const FlowKey& a, wire::Psn first_a, const FlowKey& b, wire::Psn first_b,
                        wire::Transport transport, const Made& made) {
  for (const FlowKey& key : {a, b}) {
    const uint32_t old = find(key);
    if (old != kNone) forget_unpaired(old);
  }
  const uint32_t streams = streams_;
  const uint32_t one = add(a, transport, 0);
  const uint32_t two = add(b, transport, 0);
  streams_ = streams;
  for (const uint32_t flow : {one, two}) {
    flows_[flow].stream = made.stream;
    flows_[flow].exchange = made.exchange;
  }
  flows_[one].requests.expect(first_a);
  flows_[two].requests.expect(first_b);
  pair(one, two);
}

std::vector<uint32_t>& FlowTable::unpaired_towards(uint32_t flow) {
  auto& found = unpaired_[{flows_[flow].key.destination, flows_[flow].key.source}];
  if (found.size() > kMostCandidates) found.erase(found.begin(), found.end() - kMostCandidates);
  return found;
}

void FlowTable::forget_unpaired(uint32_t flow) {
  const FlowKey& key = flows_[flow].key;
  const auto found = unpaired_.find({key.source, key.destination});
  if (found != unpaired_.end()) std::erase(found->second, flow);
}

uint32_t FlowTable::source_qpn(uint32_t flow) const {
  const Flow& f = flows_[flow];
  if (f.key.source_qpn != FlowKey::kConnected) return f.key.source_qpn;
  return f.peer == kNone ? FlowKey::kConnected : flows_[f.peer].key.destination_qpn;
}

}  // namespace uroce::dissector
