// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/notices.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <system_error>
#include <utility>

#include "base/concat.h"

namespace uroce::io {
namespace {

bool is_of(const ifaddrs& entry, const wire::IpAddress& address) {
  if (entry.ifa_addr == nullptr) return false;
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr);
    return address == wire::IpAddress::v4(reinterpret_cast<const uint8_t*>(&v4->sin_addr));
  }
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  return address == wire::IpAddress::v6(reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr.s6_addr);
}

// A packet to an address of the netdev that it came in on is another device's, or nobody's.
std::string came_elsewhere(const Notice& notice) {
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(static_cast<unsigned>(notice.netdev), name.data()) == nullptr) return {};
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (is_of(*entry, notice.to) && std::strcmp(entry->ifa_name, name.data()) == 0) return {};
  }
  return concat("packets to ", notice.to.text(), " come in on ", name.data(),
                ", and are dropped: with two netdevs in one subnet each answers for the other's addresses; sysctl -w "
                "net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, or a subnet for each");
}

}  // namespace

std::string text(const Notice& notice) {
  const std::string to = notice.to.is_unspecified() ? "" : " to " + notice.to.text();
  const std::string reason = std::generic_category().message(notice.error);
  switch (notice.what) {
    case Notice::What::kRunsRefused:
      return concat(
          "the kernel takes no runs of packets", to, " (", reason,
          "): they leave one by one, which is slower; runs are tried again after a second, then ever less often");
    case Notice::What::kCameElsewhere:
      return came_elsewhere(notice);
    case Notice::What::kTooLong:
      return concat("packets of ", notice.length, " bytes", to, " are longer than the path takes now (", reason,
                    "): they are lost; make its MTU larger again, or use a smaller path MTU");
  }
  return {};
}

Notices::Entry* Notices::find(Notice::What what, const wire::IpAddress& to) {
  Entry* const end = entries_.data() + count_.load(std::memory_order_relaxed);
  Entry* const found = std::find_if(
      entries_.data(), end, [&](const Entry& entry) { return entry.notice.what == what && entry.notice.to == to; });
  return found == end ? nullptr : found;
}

// What is looked at without the lock, nobody else changes.
void Notices::note(const Notice& notice) {
  Entry* const known = find(notice.what, notice.to);
  if (known != nullptr ? known->notice.length <= notice.length : count_ == kMost) return;
  std::lock_guard guard(lock_);
  if (known != nullptr) {
    known->notice.length = notice.length;
    return;
  }
  entries_[count_++] = {notice, false};
  fresh_ = true;
}

void Notices::end(Notice::What what, const wire::IpAddress& to, uint32_t length) {
  Entry* const known = find(what, to);
  if (known == nullptr || length < known->notice.length) return;
  std::lock_guard guard(lock_);
  *known = entries_[--count_];
}

std::vector<std::string> Notices::take() {
  std::vector<std::string> texts;
  if (!fresh_) return texts;
  std::array<Notice, kMost> fresh;
  size_t count = 0;
  {
    std::lock_guard guard(lock_);
    for (size_t i = 0; i < count_; ++i) {
      if (!std::exchange(entries_[i].taken, true)) fresh[count++] = entries_[i].notice;
    }
    fresh_ = false;
  }
  for (size_t i = 0; i < count; ++i) {
    if (std::string said = text(fresh[i]); !said.empty()) texts.push_back(std::move(said));
  }
  return texts;
}

}  // namespace uroce::io
