// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/same_host.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <numeric>
#include <sys/epoll.h>
#include <utility>

#include "engine/io/frame_builder.h"
#include "wire/bth.h"
#include "wire/ip_udp.h"
#include "wire/opcode.h"

namespace uroce::io {
namespace {

// Between looks whether peers are still there.
constexpr uint32_t kLooksPerPeerLook = 1024;
// How long a peer may leave what there is for it before that is counted, and it is woken once more.
constexpr Duration kStall = std::chrono::seconds(1);
// Packets that the network may have for this process when a peer begins to use the memory: two sockets of 16 MiB, as
// the kernel counts, hold some 44 000 short ones. A look takes so many at least, if they are there.
constexpr size_t kMostBefore = 49152, kLeastOfALook = 16;
// Bytes that one receive() takes; they are to stay in the cache until they are delivered.
constexpr size_t kReceiveRoom = size_t{256} << 10;
// Payload of a long packet.
constexpr uint32_t kLongPayload = uint32_t{64} << 10;
constexpr size_t kLongest = io::TxPacket::kMaxHeaderSize + kLongPayload + wire::kIcrcSize;
// Those that a peer may have written, or made, before it hears that none are taken any more: more than a ring and a
// burst hold.
constexpr uint32_t kMostLate = 2048;
// Packets that have gone without a peer, as if, when one has been left whose rings cost too much: it is not asked for
// again before as many more have.
constexpr uint32_t kCostlyPause = (uint32_t{1} << 24) + 1;
// A packet so long is not copied out of the ring.
constexpr size_t kApart = 512;
// As many packets to one process: many on this host may be in a group, and each of them is woken.
constexpr size_t kPacketsOfGroup = 10;
// The reader gets to see what is written when there is so much of it.
constexpr size_t kPublish = size_t{32} << 10;

// A record: this, and the packet from BTH to ICRC.
struct Prefix {
  wire::IpAddress source, destination;
  uint16_t source_port;
  uint8_t traffic_class, hop_limit;
  uint8_t has_icrc;  // else its place is empty
  uint8_t reserved;
  uint16_t more_psns;  // that it takes besides one
};
static_assert(sizeof(Prefix) == 40 && std::is_trivially_copyable_v<Prefix>);

size_t ib_size(const io::TxPacket& packet) {
  return packet.udp_length() - wire::kUdpSize;
}

// What the receiver gets to see of it.
wire::Envelope envelope_of(const Prefix& prefix) {
  wire::Envelope envelope;
  envelope.source = prefix.source;
  envelope.destination = prefix.destination;
  envelope.source_port = prefix.source_port;
  envelope.traffic_class = prefix.traffic_class;
  envelope.hop_limit = prefix.hop_limit;
  return envelope;
}

void copy_without_icrc(const io::TxPacket& packet, uint8_t* out) {
  out = std::copy_n(packet.header.data(), packet.header_size, out);
  for (size_t i = 0; i < packet.fragment_count; ++i) {
    out = std::copy_n(packet.fragments[i].data, packet.fragments[i].size, out);
  }
  std::fill_n(out, packet.pad + wire::kIcrcSize, uint8_t{0});
}

}  // namespace

// --- peers that come and go -----------------------------------------------------------------------------------------

SameHost::SameHost(std::unique_ptr<PacketIo> network, Config config)
    : network_(std::move(network)),
      config_(std::move(config)),
      rings_(config_.now),
      near_(config_.now),
      turns_of_network_(config_.now),
      bytes_(std::make_unique_for_overwrite<uint8_t[]>(kReceiveRoom)) {
  peers_.reserve(PeerExchange::kMostPeers);
}

void SameHost::set_local_addresses(std::span<const wire::IpAddress> addresses) {
  local_addresses_.emplace(addresses.begin(), addresses.end());
  last_source_.reset();
}

bool SameHost::is_local(const wire::IpAddress& address) {
  if (!local_addresses_ || address == last_source_) return true;
  const auto found = std::find(local_addresses_->begin(), local_addresses_->end(), address);
  if (found == local_addresses_->end()) return false;
  last_source_ = address;
  return true;
}

// A range that has a new process has no other one. What was sent to it by the network leaves first.
void SameHost::take_new_peers() {
  if (!network_->flush()) return;
  config_.peers->take([this](uint32_t range, std::unique_ptr<Peer> peer) {
    if (!peer && range == PeerExchange::kStrangers) {
      for (const auto& each : peers_) {
        if (each->is_of_stranger()) each->part();
      }
    }
    if (range < kMostRanges) {
      // Who never became a peer is not asked for anew.
      if (peer || by_range_[range] != nullptr) without_peer_[range] = 0;
      if (by_range_[range] != nullptr) by_range_[range]->part();
      by_range_[range] = peer.get();
    }
    if (!peer) return;
    peer->in.take_long(!shown_);
    peers_.push_back(std::move(peer));
  });
  all_taken_up_ = false;
  end_peers();
}

void SameHost::show_packets(bool shown) {
  shown_ = shown;
  for (const auto& peer : peers_) {
    peer->late_long = shown ? kMostLate : 0;
    peer->in.take_long(!shown);
  }
}

// Who polls calls this: it takes no rings, as those are for the thread that sleeps.
void SameHost::look_after_peers() {
  bool ended = false;
  const Time now = config_.now();
  for (const auto& peer : peers_) {
    peer->look();
    watch(*peer, now);
    ended |= peer->ended();
  }
  if (config_.peers->any_arrived()) return take_new_peers();
  if (ended) end_peers();
}

// A peer that leaves unread what there is has been stopped, or sleeps on: the latter would be a defect, of it or of us.
void SameHost::watch(Peer& peer, Time now) {
  const uint64_t read = peer.out.read();
  if (!peer.stands_since || peer.out.all_read() || read != peer.stands_at) {
    peer.stands_since = now;
    peer.stands_at = read;
  } else if (now - *peer.stands_since >= kStall) {
    peer.stands_since = now;
    ++counters_.tx_stalls;
    wake(peer);
  }
}

// Takes the rings of all peers. Only who then says that this side is to be woken again calls this: else another thread
// would sleep on, and as the peer's ring says that its reader is awake, nobody would wake it again
// (tests/models/wake_up.pml). The looks are bounded: who rings on keeps this side from nothing but its sleep.
void SameHost::answer_bells() {
  std::array<epoll_event, 64> events;
  bool rung = false;
  for (size_t i = 0; i < PeerExchange::kMostPeers / events.size(); ++i) {
    const int count = epoll_wait(config_.peers->events(), events.data(), events.size(), 0);
    rung |= count > 0;
    if (count < static_cast<int>(events.size())) break;
  }
  if (rung || config_.peers->any_arrived()) return look_after_peers();
  const Time now = config_.now();
  for (const auto& peer : peers_) watch(*peer, now);
}

// What a peer has sent before its end is still received, and nothing that it writes afterwards.
void SameHost::end_peers() {
  end_due_ = lent_;
  if (end_due_) return;
  const auto stays = [this](const std::unique_ptr<Peer>& peer) {
    const bool sends_here = peer->range < kMostRanges && by_range_[peer->range] == peer.get();
    if (peer->in.broken()) ++counters_.ring_errors;
    if (!peer->ended() && !peer->in.broken() && sends_here) return true;
    if (sends_here) {
      by_range_[peer->range] = nullptr;
      without_peer_[peer->range] = peer->was_left() ? kCostlyPause : 0;
    }
    peer->in.close();
    return !peer->in.empty();
  };
  size_t kept = 0;
  for (size_t i = 0; i < peers_.size(); ++i) {
    std::unique_ptr<Peer> peer = std::move(peers_[i]);
    if (stays(peer)) {
      peers_[kept++] = std::move(peer);
    } else {
      config_.peers->give_back(std::move(peer));
    }
  }
  if (kept == peers_.size()) return;
  peers_.resize(kept);
  config_.bury();
}

// --- sending --------------------------------------------------------------------------------------------------------

uint32_t SameHost::range_of(wire::Qpn qpn) const {
  return std::min<uint32_t>(qpn.value() >> config_.range_bits, kMostRanges - 1);
}

uint32_t SameHost::range_of(const io::TxPacket& packet) const {
  return range_of(wire::BthView::at(packet.header.data()).dest_qp());
}

uint32_t SameHost::long_payload(wire::Qpn to) const {
  const Peer* const peer = by_range_[range_of(to)];
  return peer != nullptr && peer->out.may_be_long() ? kLongPayload : 0;
}

Peer* SameHost::peer_for(const io::TxPacket& packet) const {
  return packet.to_this_host ? by_range_[range_of(packet)] : nullptr;
}

size_t SameHost::send(std::span<io::TxPacket> burst) {
  take_back();  // before acknowledgements leave: the peer takes them for room in the ring
  if (config_.peers->any_arrived()) take_new_peers();
  size_t taken = 0;
  while (taken < burst.size()) {
    const std::span<io::TxPacket> rest = burst.subspan(taken);
    Peer* const peer = peer_for(rest.front());
    const std::span<io::TxPacket> same = rest.first(peer == nullptr ? without_peer(rest) : with_peer(rest, *peer));
    if (same.empty()) {  // stranded
      ++counters_.tx_unread;
      ++taken;
      continue;
    }
    const size_t sent = peer != nullptr         ? send_to(*peer, same)
                        : is_near(rest.front()) ? send_near(same)
                                                : network_->send(same);
    taken += sent;
    if (sent < same.size()) break;
  }
  return taken;
}

// How many at the front go to this peer.
size_t SameHost::with_peer(std::span<const io::TxPacket> packets, const Peer& peer) const {
  const auto end =
      std::find_if(packets.begin(), packets.end(), [&](const auto& packet) { return peer_for(packet) != &peer; });
  return static_cast<size_t>(end - packets.begin());
}

// Who waits for it on this host is woken in the middle of sending.
bool SameHost::is_near(const io::TxPacket& packet) {
  return packet.to_this_host || packet.local_delivery;
}

// Whose wake-ups count together: a range, or the groups with one hash value.
size_t SameHost::account_of(const io::TxPacket& packet) const {
  const wire::IpAddress& to = packet.envelope->destination;
  if (!to.is_multicast()) return range_of(packet);
  const auto mix = [](size_t sum, uint8_t byte) { return sum * 31 + byte; };
  return kMostRanges + std::accumulate(to.bytes.begin(), to.bytes.end(), size_t{0}, mix) % kGroupAccounts;
}

// How many at the front go by the network, all to other hosts or all to one range or group of this one, whose process
// is asked for as a peer then, the less often the more have gone without. A long packet does not go, whose peer has
// ended since it was made. One pass: bulk to other hosts comes by here.
size_t SameHost::without_peer(std::span<const io::TxPacket> packets) {
  const io::TxPacket& front = packets.front();
  const bool near = is_near(front);
  const size_t account = near ? account_of(front) : 0;
  const auto stays = [&](const io::TxPacket& packet) {
    if (packet.psns > 1 || packet.to_this_host != front.to_this_host || is_near(packet) != near) return true;
    if (!near) return false;
    if (account_of(packet) != account) return true;
    if (packet.to_this_host && std::has_single_bit(++without_peer_[range_of(packet)])) config_.meet(range_of(packet));
    return false;
  };
  return static_cast<size_t>(std::find_if(packets.begin(), packets.end(), stays) - packets.begin());
}

// All to one range or group of this host. Packets whose sending costs too much are lost but for a part of the time.
size_t SameHost::send_near(std::span<io::TxPacket> packets) {
  Cost::OfOne& one = near_of_[account_of(packets.front())];
  if (near_.is_too_much(one)) {
    counters_.tx_unread += packets.size();
    return packets.size();
  }
  const bool to_group = packets.front().envelope->destination.is_multicast();
  const size_t count = packets.size() * (to_group ? kPacketsOfGroup : 1);
  size_t sent = 0;
  near_.account_for(one, count, [&] { sent = network_->send(packets); });
  return sent;
}

// A stranger whose rings cost too much is left; so is the next one with the same range, before it is woken.
void SameHost::wake(Peer& peer) {
  if (!peer.is_of_stranger()) return peer.wake();
  Cost::OfOne& one = rings_of_[std::min<size_t>(peer.range, kMostRanges - 1)];
  if (!peer.was_left() && !rings_.is_too_much(one)) rings_.account_for(one, 1, [&peer] { peer.wake(); });
  if (rings_.is_too_much(one)) peer.leave();
}

size_t SameHost::send_to(Peer& peer, std::span<io::TxPacket> packets) {
  size_t taken = 0, unpublished = 0;
  for (; taken < packets.size(); ++taken) {
    io::TxPacket& packet = packets[taken];
    const size_t size = sizeof(Prefix) + ib_size(packet);
    uint8_t* const record = peer.out.reserve(size);
    if (record == nullptr && is_patient(peer)) {
      ++counters_.tx_backpressure;
      break;
    }
    if (record == nullptr) {
      ++counters_.tx_unread;
      continue;
    }
    packet.ip_id = 0;
    packet.unreadable = !write(packet, record);
    if (packet.unreadable) continue;
    peer.out.add(size);
    ++counters_.tx_packets;
    ++counters_.tx_by_memory;
    counters_.tx_bytes += packet.udp_length();
    unpublished += size;
    if (unpublished >= kPublish) {
      unpublished = 0;
      if (peer.out.publish()) wake(peer);
    }
  }
  if (peer.out.publish()) wake(peer);
  return taken;
}

// False: the payload cannot be read.
bool SameHost::write(const io::TxPacket& packet, uint8_t* record) const {
  const wire::Envelope& envelope = *packet.envelope;
  const bool damaged = packet.icrc_damage != 0;
  const Prefix prefix{.source = envelope.source,
                      .destination = envelope.destination,
                      .source_port = kernel_routes() ? wire::kRoceUdpPort : envelope.source_port,
                      .traffic_class = envelope.traffic_class,
                      .hop_limit = envelope.hop_limit,
                      .has_icrc = damaged,
                      .reserved = 0,
                      .more_psns = static_cast<uint16_t>(packet.psns - 1)};
  std::memcpy(record, &prefix, sizeof(prefix));
  uint8_t* const ib = record + sizeof(prefix);
  if (damaged) return build_ib_guarded(packet, envelope_of(prefix), ib);
  return guard_payload(packet, [&] { copy_without_icrc(packet, ib); });
}

// Whether a peer with a full ring may still be waited for: while it reads half a ring in each kPatience. All other
// packets wait for it, too; so one that reads a record now and then is not waited for, either.
bool SameHost::is_patient(Peer& peer) const {
  peer.look();
  const Time now = config_.now();
  const uint64_t read = peer.out.known_read();
  if (!peer.waited_since || static_cast<int64_t>(read - peer.read_then) >= static_cast<int64_t>(kRingSize / 2)) {
    peer.waited_since = now;
    peer.read_then = read;
  }
  return !peer.ended() && now - *peer.waited_since < kPatience;
}

// --- receiving ------------------------------------------------------------------------------------------------------

size_t SameHost::receive(std::span<RxPacket> out) {
  take_back();
  if (config_.peers->any_arrived()) take_new_peers();
  if (peers_.empty()) return network_->receive(out);
  const uint32_t look = looks_++;
  if (look % kLooksPerPeerLook == 0) look_after_peers();
  if (!all_taken_up_) {
    if (const size_t before = receive_before_peers(out)) return before;
  }
  size_t count = turns_of_network_.comes() ? receive_at_turn(out) : 0;
  if (count == 0) {
    count = receive_from_peers(out);
    if (count > 0) {
      network_busy_ = false;
      return count;
    }
    if (network_busy_) count = network_->receive(out);
  }
  if (count > 0) turns_of_network_.found();
  network_busy_ |= count > 0;
  return count;
}

// What was quiet gets one look in a long while, which is not to miss what there is.
size_t SameHost::receive_at_turn(std::span<RxPacket> out) {
  if (turns_of_network_.quiet()) network_->look_everywhere();
  return network_->receive(out);
}

void SameHost::look_everywhere() {
  looks_ = 0;
  turns_of_network_.reset();
  network_->look_everywhere();
}

// What receive() has handed out is not needed any more.
void SameHost::take_back() {
  if (!lent_) return;
  lent_ = false;
  for (const auto& peer : peers_) peer->in.release();
  if (end_due_) end_peers();
}

// When a peer has written its first record, all that it sent by the network has left and is on this host: it is with
// the network now, wherever. That is looked for, for as many calls as it takes.
size_t SameHost::receive_before_peers(std::span<RxPacket> out) {
  std::array<Peer*, 16> begin{};
  size_t count = 0;
  all_taken_up_ = true;
  for (const auto& peer : peers_) {
    if (peer->taken_up) continue;
    all_taken_up_ = false;
    if (count < begin.size() && !peer->in.empty()) begin[count++] = peer.get();
  }
  if (count == 0) return 0;
  if (before_ < kMostBefore) {
    network_->look_everywhere();
    const size_t received = network_->receive(out);
    before_ += std::max(received, kLeastOfALook);
    if (received > 0 || !network_->looked_everywhere()) return received;
  }
  before_ = 0;
  for (Peer* const peer : std::span(begin).first(count)) peer->taken_up = true;
  return 0;
}

// Each time another peer is the first.
size_t SameHost::receive_from_peers(std::span<RxPacket> out) {
  used_ = handed_out_ = 0;
  size_t count = 0;
  bool broken = false;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = *peers_[(first_ + i) % peers_.size()];
    count += receive_from(peer, out.subspan(count));
    broken |= peer.in.broken();
  }
  if (count > 0) ++first_;
  if (broken) end_peers();
  return count;
}

// Of a peer no more records are looked at than packets are asked for.
size_t SameHost::receive_from(Peer& peer, std::span<RxPacket> out) {
  size_t count = 0;
  for (size_t i = 0; i < out.size() && peer.taken_up; ++i) {
    const std::span<const uint8_t> record = peer.in.front();
    if (record.empty() || (record.size() > kReceiveRoom - handed_out_ && handed_out_ > 0)) break;
    if (read(peer, record, out[count])) {
      ++count;
    } else {
      ++counters_.rx_malformed;
    }
    peer.in.pop();
  }
  if (!lent_) peer.in.release();
  return count;
}

// False: it is no packet. Only `psns` may be wrong then: whoever knows the path MTU compares it with the length.
bool SameHost::read(Peer& peer, std::span<const uint8_t> record, RxPacket& packet) {
  constexpr size_t kLeast = sizeof(Prefix) + wire::kBthSize + wire::kIcrcSize;
  if (record.size() < kLeast) return false;
  Prefix prefix;
  std::memcpy(&prefix, record.data(), sizeof(prefix));
  const std::span<const uint8_t> ib = record.subspan(sizeof(prefix));
  const bool is_long = prefix.more_psns > 0;
  if (ib.size() > (is_long ? kLongest : max_udp_length() - wire::kUdpSize)) return false;
  if (!is_local(prefix.source)) return false;
  if (is_long && shown_) {
    if (peer.late_long == 0) return false;
    --peer.late_long;
  }
  // The headers first: by them it is decided what is copied besides.
  uint8_t* const bytes = &bytes_[used_];
  const size_t begun = std::min(ib.size(), io::TxPacket::kMaxHeaderSize);
  std::memcpy(bytes, ib.data(), begun);
  size_t copied = prefix.has_icrc == 0 ? headers_apart({bytes, ib.size()}) : 0;
  packet.renew();
  if (copied != 0) {
    packet.apart = ib.subspan(copied);
    lent_ = true;
  } else {
    copied = ib.size();
    std::memcpy(bytes + begun, ib.data() + begun, copied - begun);
  }
  packet.envelope = envelope_of(prefix);
  packet.ib = {bytes, copied};
  packet.psns = prefix.more_psns + 1u;
  packet.without_icrc = prefix.has_icrc == 0;
  used_ += copied;
  handed_out_ += record.size();
  ++counters_.rx_packets;
  ++counters_.rx_by_memory;
  counters_.rx_bytes += ib.size() + wire::kUdpSize;
  return true;
}

// The length of the headers, if the payload stays in the ring: where it is long, and nobody will do anything with it
// but copy it. 0: it does not. Of `ib` the headers are there.
size_t SameHost::headers_apart(std::span<const uint8_t> ib) const {
  if (shown_ || ib.size() < kApart) return 0;
  const wire::OpcodeInfo& info = wire::opcode_info(wire::Opcode{ib[0]});
  const bool reliable = info.transport == wire::Transport::kRc || info.transport == wire::Transport::kXrc;
  return info.known && info.has_payload && reliable ? info.header_size : 0;
}

// --- waiting --------------------------------------------------------------------------------------------------------

// After the sleep it is not known where something is.
bool SameHost::prepare_to_wait() {
  look_everywhere();
  take_back();
  answer_bells();
  // Those that could not be taken yet have been rung for: nobody would wake this side for them.
  bool nothing = !config_.peers->any_arrived();
  for (const auto& peer : peers_) nothing &= peer->in.sleep();
  return nothing && network_->prepare_to_wait();
}

std::span<const pollfd> SameHost::wait_descriptors() const {
  const std::span<const pollfd> network = network_->wait_descriptors();
  wait_descriptors_.assign(network.begin(), network.end());
  wait_descriptors_.push_back({config_.peers->events(), POLLIN, 0});
  return wait_descriptors_;
}

IoCounters SameHost::counters() const {
  IoCounters counters = network_->counters();
  counters += counters_;
  return counters;
}

}  // namespace uroce::io
