// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/ip_ids.h"

#include <algorithm>

namespace uroce::dissector {

void IpIds::note(const Datagram& datagram, const wire::Bth& bth, int32_t relative_psn) {
  if (!datagram.has_ip_id) return;
  const uint32_t id = extend(datagram);
  const int32_t step = started_ ? static_cast<int32_t>(id - newest_) : 0;
  ++noted_;
  up_ += step > 0;
  far_ += step > kFar || step < -kFar;
  if (step > 0 || !started_) newest_ = id;
  if (!started_) first_time_ = datagram.time;
  last_time_ = datagram.time;
  started_ = true;
  if (count_up() || noted_ <= kFew) {
    keep({id, what(bth), relative_psn, datagram.frame});
  } else {
    packets_.clear();
  }
}

// Nearly always at the end; a late one where it was sent.
void IpIds::keep(const Packet& packet) {
  const auto behind = std::upper_bound(packets_.begin(), packets_.end(), packet.id,
                                       [](uint32_t id, const Packet& other) { return before(id, other.id); });
  if (behind != packets_.begin() && std::prev(behind)->id == packet.id && std::prev(behind)->what == packet.what)
    return;
  const int32_t most = std::max(packet.most, behind == packets_.begin() ? most_before_ : std::prev(behind)->most);
  auto kept = packets_.insert(behind, packet);
  kept->most = most;
  while (++kept != packets_.end() && kept->most < most) kept->most = most;
  if (packets_.size() <= kKept) return;
  most_before_ = packets_.front().most;
  packets_.pop_front();
}

int32_t IpIds::step_to(const Datagram& datagram) const {
  const auto ahead = static_cast<uint16_t>(datagram.ip_id - static_cast<uint16_t>(newest_));
  const bool pause = datagram.time - last_time_ > kPause;
  return pause ? int32_t{ahead} : int32_t{static_cast<int16_t>(ahead)};
}

// At the beginning two IDs that are close to each other have to do.
bool IpIds::tell_order(const Datagram& datagram) const {
  if (!datagram.has_ip_id) return false;
  if (count_up()) return far_ * 4 <= noted_ + 3;
  if (!started_ || up_ != 0 || noted_ >= kFew) return false;
  const int32_t step = step_to(datagram);
  return step != 0 && -kNear <= step && step <= kNear;
}

std::deque<IpIds::Packet>::const_iterator IpIds::first_not_before(uint32_t id) const {
  return std::lower_bound(packets_.begin(), packets_.end(), id,
                          [](const Packet& other, uint32_t wanted) { return before(other.id, wanted); });
}

// Random IDs go around about every eighth packet: the same one may be some turns back.
const IpIds::Packet* IpIds::same(const Datagram& datagram, const wire::Bth& bth) const {
  if (!datagram.has_ip_id || packets_.empty()) return nullptr;
  uint32_t id = extend(datagram);
  const uint32_t turns = tell_order(datagram) ? 1 : kRandomTurns;
  for (uint32_t turn = 0; turn < turns && !before(id, packets_.front().id); ++turn, id -= 0x10000) {
    for (auto at = first_not_before(id); at != packets_.end() && at->id == id; ++at) {
      if (at->what == what(bth)) return &*at;
    }
  }
  return nullptr;
}

bool IpIds::sent_behind(const Datagram& datagram, int64_t relative_psn) const {
  const auto at = first_not_before(extend(datagram));
  return (at == packets_.begin() ? most_before_ : std::prev(at)->most) >= relative_psn;
}

}  // namespace uroce::dissector
