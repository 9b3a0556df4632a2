// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/resolution.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/net/multicast_mac.h"
#include "wire/bytes.h"

namespace uroce::net {
namespace {

using wire::IpAddress;
using wire::MacAddress;

constexpr Duration kAskAgain = std::chrono::seconds(1);
constexpr Duration kConfirmedFor = std::chrono::seconds(30);
constexpr int kMostTries = 3;
constexpr int kAnnouncements = 3;
constexpr Duration kAnnounceAgain = std::chrono::seconds(1);

constexpr size_t kEthernet = 14, kIpv6 = 40;
constexpr uint16_t kTypeArp = 0x0806, kTypeIpv6 = 0x86dd;

// ARP for Ethernet and IPv4, behind the Ethernet header.
constexpr size_t kArpSize = 28;
constexpr uint8_t kArpFront[6] = {0, 1, 8, 0, 6, 4};  // Ethernet, IPv4, and the lengths of their addresses
constexpr uint16_t kArpRequest = 1, kArpReply = 2;

// ICMPv6, behind the IPv6 header.
constexpr uint8_t kIcmpv6 = 58, kSolicitation = 135, kAdvertisement = 136;
constexpr size_t kDiscoverySize = 24;  // without options
constexpr uint8_t kOptionSource = 1, kOptionTarget = 2;
constexpr uint8_t kFlagSolicited = 0x40, kFlagOverride = 0x20;
constexpr uint8_t kDiscoveryHopLimit = 255;  // nothing from beyond a router has it

constexpr MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

MacAddress mac_at(const uint8_t* p) {
  MacAddress mac;
  std::memcpy(mac.data(), p, mac.size());
  return mac;
}

// Of one station: not a group, not nothing.
bool is_of_a_station(const MacAddress& mac) {
  return (mac[0] & 1) == 0 && mac != MacAddress{};
}

uint32_t sum_words(std::span<const uint8_t> bytes, uint32_t sum) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += wire::load_be16(bytes.data() + i);
  if (bytes.size() % 2 != 0) sum += uint32_t{bytes.back()} << 8;
  return sum;
}

// Of an ICMPv6 message between `addresses`, source and destination. 0: the one in it is right.
uint16_t icmpv6_checksum(std::span<const uint8_t> addresses, std::span<const uint8_t> message) {
  uint32_t sum = sum_words(message, sum_words(addresses, static_cast<uint32_t>(message.size()) + kIcmpv6));
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

// The link-layer address in an option of this type; nothing: none, or the options are malformed.
std::optional<MacAddress> option_in(std::span<const uint8_t> options, uint8_t type) {
  std::optional<MacAddress> found;
  while (!options.empty()) {
    if (options.size() < 8 || options[1] == 0) return std::nullopt;
    const size_t size = size_t{8} * options[1];
    if (size > options.size()) return std::nullopt;
    if (options[0] == type && size == 8 && !found) found = mac_at(options.data() + 2);
    options = options.subspan(size);
  }
  return found;
}

IpAddress solicited_node(const IpAddress& target) {
  IpAddress group;
  const uint8_t front[13] = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};
  std::memcpy(group.bytes.data(), front, sizeof(front));
  std::memcpy(group.bytes.data() + sizeof(front), target.bytes.data() + sizeof(front), 3);
  return group;
}

std::vector<uint8_t> ethernet(const MacAddress& to, const MacAddress& from, uint16_t type, size_t payload) {
  std::vector<uint8_t> frame(kEthernet + payload);
  std::memcpy(frame.data(), to.data(), to.size());
  std::memcpy(frame.data() + 6, from.data(), from.size());
  wire::store_be16(frame.data() + 12, type);
  return frame;
}

// A message of neighbour discovery with one option, the sender's MAC address.
struct Discovery {
  uint8_t type, flags;
  IpAddress source, destination, target;
  MacAddress to, from;
};
std::vector<uint8_t> discovery_frame(const Discovery& what) {
  constexpr size_t kMessage = kDiscoverySize + 8;
  std::vector<uint8_t> frame = ethernet(what.to, what.from, kTypeIpv6, kIpv6 + kMessage);
  uint8_t* const ip = frame.data() + kEthernet;
  ip[0] = 0x60;
  wire::store_be16(ip + 4, kMessage);
  ip[6] = kIcmpv6;
  ip[7] = kDiscoveryHopLimit;
  std::memcpy(ip + 8, what.source.bytes.data(), 16);
  std::memcpy(ip + 24, what.destination.bytes.data(), 16);
  uint8_t* const message = ip + kIpv6;
  message[0] = what.type;
  message[4] = what.flags;
  std::memcpy(message + 8, what.target.bytes.data(), 16);
  message[24] = what.type == kSolicitation ? kOptionSource : kOptionTarget;
  message[25] = 1;
  std::memcpy(message + 26, what.from.data(), 6);
  wire::store_be16(message + 2, icmpv6_checksum({ip + 8, 32}, {message, kMessage}));
  return frame;
}

}  // namespace

bool Resolution::is_own(const IpAddress& address) const {
  return std::find(own_.begin(), own_.end(), address) != own_.end();
}

// The source for packets to `other`; null: this port has none of that IP version.
const IpAddress* Resolution::own_like(const IpAddress& other) const {
  const IpAddress* like = nullptr;
  for (const IpAddress& own : own_) {
    if (own.is_v4() != other.is_v4()) continue;
    if (like == nullptr || own.is_link_local() == other.is_link_local()) like = &own;
  }
  return like;
}

// --- what arrives
// -----------------------------------------------------------------------------------------------------

bool Resolution::take(std::span<const uint8_t> frame, Time now) {
  if (frame.size() < kEthernet) return false;
  const MacAddress from = mac_at(frame.data() + 6);
  const std::span<const uint8_t> packet = frame.subspan(kEthernet);
  switch (wire::load_be16(frame.data() + 12)) {
    case kTypeArp:
      return take_arp(packet, now);
    case kTypeIpv6:
      return take_discovery(packet, from, now);
    default:
      return false;
  }
}

bool Resolution::take_arp(std::span<const uint8_t> packet, Time now) {
  if (packet.size() < kArpSize || std::memcmp(packet.data(), kArpFront, sizeof(kArpFront)) != 0) return false;
  const uint16_t operation = wire::load_be16(packet.data() + 6);
  const MacAddress mac = mac_at(packet.data() + 8);
  const IpAddress sender = IpAddress::v4(packet.data() + 14), target = IpAddress::v4(packet.data() + 24);
  if (!is_of_a_station(mac) || mac == mac_ || is_own(sender)) return false;
  const bool to_us = is_own(target);
  if (operation == kArpRequest && to_us) send_arp(kArpReply, mac, target, sender);
  const bool announcement = sender == target;
  if (operation > kArpReply || (!to_us && !announcement)) return false;
  return learn(sender, mac, operation == kArpReply && to_us, now);
}

bool Resolution::take_discovery(std::span<const uint8_t> packet, const MacAddress& from, Time now) {
  if (packet.size() < kIpv6 + kDiscoverySize || packet[6] != kIcmpv6 || packet[7] != kDiscoveryHopLimit) return false;
  const size_t length = wire::load_be16(packet.data() + 4);
  if (length < kDiscoverySize || length > packet.size() - kIpv6) return false;
  const std::span<const uint8_t> message = packet.subspan(kIpv6, length);
  const uint8_t type = message[0];
  if ((type != kSolicitation && type != kAdvertisement) || message[1] != 0) return false;
  if (icmpv6_checksum(packet.subspan(8, 32), message) != 0 || !is_of_a_station(from) || from == mac_) return false;
  const IpAddress source = IpAddress::v6(packet.data() + 8), target = IpAddress::v6(message.data() + 8);
  const auto mac = option_in(message.subspan(kDiscoverySize), type == kSolicitation ? kOptionSource : kOptionTarget);
  if (mac && !is_of_a_station(*mac)) return false;
  if (type == kAdvertisement) {
    return !is_own(target) && learn(target, mac.value_or(from), (message[4] & kFlagSolicited) != 0, now);
  }
  if (!is_own(target) || is_own(source)) return false;
  send_advertisement(target, source, mac.value_or(from));
  return !source.is_unspecified() && mac && learn(source, *mac, false, now);
}

// Somebody says that he has the address. True: that is new.
bool Resolution::learn(const IpAddress& address, const MacAddress& mac, bool confirmed, Time now) {
  const auto found = entries_.find(address.bytes);
  if (found == entries_.end()) return false;  // nobody wants it
  Entry& entry = found->second;
  const Neighbour before = entry.now;
  if (confirmed || !entry.now.has_mac()) {
    entry.tries = 0;
    entry.due = now + kConfirmedFor;
    set(found->first, entry, {NeighbourState::kUsable, mac});
  } else if (entry.now.mac != mac) {
    entry.due = kNever;
    set(found->first, entry, {NeighbourState::kStale, mac});
  }
  return !(entry.now == before);
}

// --- what is wanted
// ---------------------------------------------------------------------------------------------------

void Resolution::want(const IpAddress& address, Time now) {
  auto found = entries_.find(address.bytes);
  if (found == entries_.end()) {
    make_room();
    found = entries_.emplace(address.bytes, Entry{}).first;
    found->second.asked = now - kAskAgain;
  }
  Entry& entry = found->second;
  if (entry.now.state == NeighbourState::kUsable || now - entry.asked < kAskAgain) return;
  if (!entry.now.has_mac()) {
    entry.tries = 0;
    set(found->first, entry, {NeighbourState::kResolving, {}});
  } else if (entry.tries > 0) {
    return;  // being confirmed
  }
  ask(address, entry, now);
}

// The one that was asked for least recently goes.
void Resolution::make_room() {
  if (entries_.size() < kMostNeighbours) return;
  entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                  [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; }));
}

void Resolution::ask(const IpAddress& address, Entry& entry, Time now) {
  ++entry.tries;
  entry.asked = now;
  entry.due = now + kAskAgain;
  if (!address.is_v4()) return send_solicitation(address, entry.now);
  const IpAddress* const own = own_like(address);
  if (own != nullptr) send_arp(kArpRequest, entry.now.has_mac() ? entry.now.mac : kBroadcast, *own, address);
}

void Resolution::announce(Time now) {
  announcements_ = kAnnouncements;
  announce_at_ = now;
  on_time(now);
}

bool Resolution::on_time(Time now) {
  if (announce_at_ <= now) {
    for (const IpAddress& own : own_) send_announcement(own);
    announce_at_ = --announcements_ > 0 ? now + kAnnounceAgain : kNever;
  }
  bool changed = false;
  for (auto& [key, entry] : entries_) {
    if (entry.due > now) continue;
    if (entry.now.state == NeighbourState::kUsable) {
      entry.due = kNever;  // until it is wanted
      set(key, entry, {NeighbourState::kStale, entry.now.mac});
      changed = true;
    } else if (entry.tries < kMostTries) {
      ask(IpAddress{key}, entry, now);
    } else {
      entry.tries = 0;
      entry.due = kNever;
      set(key, entry, {NeighbourState::kFailed, {}});
      changed = true;
    }
  }
  return changed;
}

Time Resolution::due() const {
  Time first = announce_at_;
  for (const auto& [key, entry] : entries_) first = std::min(first, entry.due);
  return first;
}

Neighbour Resolution::neighbour(const IpAddress& address) const {
  const auto found = entries_.find(address.bytes);
  return found == entries_.end() ? Neighbour{} : found->second.now;
}

void Resolution::set(const Key& key, Entry& entry, const Neighbour& neighbour) {
  if (entry.now == neighbour) return;
  entry.now = neighbour;
  const IpAddress address{key};
  if (std::find(changed_.begin(), changed_.end(), address) == changed_.end()) changed_.push_back(address);
}

std::vector<IpAddress> Resolution::take_changed() {
  return std::exchange(changed_, {});
}

// --- what leaves
// ------------------------------------------------------------------------------------------------------

void Resolution::send_arp(uint16_t operation, const MacAddress& to, const IpAddress& source, const IpAddress& target) {
  std::vector<uint8_t> frame = ethernet(to, mac_, kTypeArp, kArpSize);
  uint8_t* const arp = frame.data() + kEthernet;
  std::memcpy(arp, kArpFront, sizeof(kArpFront));
  wire::store_be16(arp + 6, operation);
  std::memcpy(arp + 8, mac_.data(), 6);
  std::memcpy(arp + 14, source.v4_bytes(), 4);
  if (operation == kArpReply) std::memcpy(arp + 18, to.data(), 6);
  std::memcpy(arp + 24, target.v4_bytes(), 4);
  send(std::move(frame));
}

void Resolution::send_solicitation(const IpAddress& target, const Neighbour& known) {
  const IpAddress* const own = own_like(target);
  if (own == nullptr) return;
  const IpAddress group = solicited_node(target);
  send(discovery_frame({.type = kSolicitation,
                        .flags = 0,
                        .source = *own,
                        .destination = known.has_mac() ? target : group,
                        .target = target,
                        .to = known.has_mac() ? known.mac : multicast_mac(group),
                        .from = mac_}));
}

// Who asks whether anybody has the address that he is about to take has none: all are told.
void Resolution::send_advertisement(const IpAddress& own, const IpAddress& to, const MacAddress& to_mac) {
  const uint8_t all_nodes[16] = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const bool to_all = to.is_unspecified();
  const IpAddress destination = to_all ? IpAddress::v6(all_nodes) : to;
  send(discovery_frame({.type = kAdvertisement,
                        .flags = static_cast<uint8_t>(kFlagOverride | (to_all ? 0 : kFlagSolicited)),
                        .source = own,
                        .destination = destination,
                        .target = own,
                        .to = to_all ? multicast_mac(destination) : to_mac,
                        .from = mac_}));
}

// Who has the address with another MAC address learns this one.
void Resolution::send_announcement(const IpAddress& own) {
  if (own.is_v4()) return send_arp(kArpRequest, kBroadcast, own, own);
  send_advertisement(own, IpAddress{}, MacAddress{});
}

void Resolution::send(std::vector<uint8_t> frame) {
  constexpr size_t kShortest = 60;  // of Ethernet, without FCS
  frame.resize(std::max(frame.size(), kShortest));
  if (frames_.size() < kMostFrames) frames_.push_back(std::move(frame));
}

size_t Resolution::next_frame(std::span<uint8_t> out) {
  if (frames_.empty() || frames_.front().size() > out.size()) return 0;
  const size_t size = frames_.front().size();
  std::copy(frames_.front().begin(), frames_.front().end(), out.begin());
  frames_.pop_front();
  return size;
}

}  // namespace uroce::net
