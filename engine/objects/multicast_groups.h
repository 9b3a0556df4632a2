// SPDX-License-Identifier: BSD-2-Clause
// Which UD QPs of this process are in which multicast groups. Under the progress lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "wire/envelope.h"

namespace uroce::engine {

class Qp;

class MulticastGroups {
 public:
  bool has(const wire::IpAddress& group, const Qp& qp) const {
    const std::span<Qp* const> in = members(group);
    return std::find(in.begin(), in.end(), &qp) != in.end();
  }

  // False: it is in the group already. Throws std::bad_alloc.
  bool attach(const wire::IpAddress& group, Qp& qp) {
    if (has(group, qp)) return false;
    try {
      groups_of_[&qp].push_back(group);
      groups_[group.bytes].push_back(&qp);
    } catch (...) {  // out of memory
      forget(group, qp);
      throw;
    }
    return true;
  }

  // False: it was not in the group.
  bool detach(const wire::IpAddress& group, Qp& qp) {
    const auto entry = groups_.find(group.bytes);
    if (entry == groups_.end() || std::erase(entry->second, &qp) == 0) return false;
    forget(group, qp);
    return true;
  }

  std::span<Qp* const> members(const wire::IpAddress& group) const {
    const auto entry = groups_.find(group.bytes);
    return entry == groups_.end() ? std::span<Qp* const>{} : std::span<Qp* const>(entry->second);
  }

  size_t size() const { return groups_.size(); }

  // Those that `qp` is in.
  std::vector<wire::IpAddress> of(const Qp& qp) const {
    const auto its = groups_of_.find(&qp);
    return its == groups_of_.end() ? std::vector<wire::IpAddress>{} : its->second;
  }
  std::vector<wire::IpAddress> all() const {
    std::vector<wire::IpAddress> groups;
    for (const auto& [bytes, members] : groups_) groups.push_back({bytes});
    return groups;
  }

 private:
  void forget(const wire::IpAddress& group, const Qp& qp) {
    if (const auto entry = groups_.find(group.bytes); entry != groups_.end() && entry->second.empty()) {
      groups_.erase(entry);
    }
    const auto its = groups_of_.find(&qp);
    if (its == groups_of_.end()) return;
    std::erase(its->second, group);
    if (its->second.empty()) groups_of_.erase(its);
  }

  std::map<std::array<uint8_t, 16>, std::vector<Qp*>> groups_;
  std::unordered_map<const Qp*, std::vector<wire::IpAddress>> groups_of_;  // the same the other way round
};

}  // namespace uroce::engine
