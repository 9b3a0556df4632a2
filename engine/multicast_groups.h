// Which UD QPs of this process are in which multicast groups. Under the progress lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "wire/envelope.h"

namespace uroce::engine {

class Qp;

// DestQP of multicast packets (IBTA 9.2.1).
inline constexpr uint32_t kMulticastQpn = 0xffffff;

inline bool is_multicast(const wire::IpAddress& address) {
  return address.is_v4() ? (address.v4_bytes()[0] & 0xf0) == 0xe0 : address.bytes[0] == 0xff;
}

class MulticastGroups {
 public:
  bool has(const wire::IpAddress& group, const Qp& qp) const {
    const std::span<Qp* const> in = members(group);
    return std::find(in.begin(), in.end(), &qp) != in.end();
  }

  // False: it is in the group already.
  bool attach(const wire::IpAddress& group, Qp& qp) {
    std::vector<Qp*>& members = groups_[group.bytes];
    if (std::find(members.begin(), members.end(), &qp) != members.end()) return false;
    members.push_back(&qp);
    return true;
  }

  // False: it was not in the group.
  bool detach(const wire::IpAddress& group, Qp& qp) {
    const auto entry = groups_.find(group.bytes);
    if (entry == groups_.end() || std::erase(entry->second, &qp) == 0) return false;
    if (entry->second.empty()) groups_.erase(entry);
    return true;
  }

  std::span<Qp* const> members(const wire::IpAddress& group) const {
    const auto entry = groups_.find(group.bytes);
    return entry == groups_.end() ? std::span<Qp* const>{} : std::span<Qp* const>(entry->second);
  }

  size_t size() const { return groups_.size(); }

  // Those that `qp` is in.
  std::vector<wire::IpAddress> of(const Qp& qp) const {
    std::vector<wire::IpAddress> groups;
    for (const auto& [bytes, members] : groups_) {
      if (std::find(members.begin(), members.end(), &qp) != members.end()) groups.push_back({bytes});
    }
    return groups;
  }
  std::vector<wire::IpAddress> all() const {
    std::vector<wire::IpAddress> groups;
    for (const auto& [bytes, members] : groups_) groups.push_back({bytes});
    return groups;
  }

 private:
  std::map<std::array<uint8_t, 16>, std::vector<Qp*>> groups_;
};

}  // namespace uroce::engine
