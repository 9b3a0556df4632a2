// SPDX-License-Identifier: BSD-2-Clause
// What a connection manager knows of the host, the broker's or that of a process alone: which netdev has which address
// and GUID, and where routes lead. Kept from one change of the network to the next, as it is asked for with each
// request.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/net/net_view.h"
#include "wire/cm_message.h"

namespace uroce::net {

class HostNet {
 public:
  explicit HostNet(NetView& view) : view_(view) {}

  // As cm::Surroundings has them. Each may read the kernel's news.
  bool has_address(uint32_t netdev, const wire::IpAddress& address);
  bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote);
  wire::Guid guid(uint32_t netdev);

  // The netdev of this host that gets what `from` sends to the address: itself, if it has it. None: it is not of this
  // host. A link-local address may be another host's on another link; what `lo` has is there for `lo` alone.
  std::optional<uint32_t> netdev_with(const wire::IpAddress& address, uint32_t from);

  int descriptor() const { return view_.descriptor(); }
  Time due() const { return view_.due(); }
  void follow() { view_.process_changes(); }

 private:
  using Address = std::array<uint8_t, 16>;

  void read_again();
  bool has(uint32_t netdev, const wire::IpAddress& address) const;

  NetView& view_;
  std::optional<uint64_t> generation_;  // of what follows
  std::set<std::pair<Address, uint32_t>> addresses_;
  std::map<uint32_t, wire::Guid> guids_;
  std::optional<uint32_t> loopback_;  // `lo`
};

}  // namespace uroce::net
