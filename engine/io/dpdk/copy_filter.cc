// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/dpdk/copy_filter.h"

#include "engine/io/xdp_library/xdp_library.h"

namespace uroce::io {
namespace {

constexpr uint32_t kTcxIngress = 46;  // BPF_TCX_INGRESS, Linux 6.6

}  // namespace

std::unique_ptr<CopyFilter> CopyFilter::open(int ifindex, const wire::MacAddress& mac,
                                             std::span<const wire::IpAddress> addresses,
                                             const std::optional<wire::QpnRange>& qpns) {
  if (load_xdp_library()) return nullptr;
  // Groups are other processes' too.
  const wire::QpnRange all_but_groups{.first = 0, .count = wire::kMulticastQpn.value()};
  auto filter = std::make_unique<CopyFilter>();
  const bool works = filter->load(Kind::kDropCopies, 1, qpns.value_or(all_but_groups)) == 0 &&
                     filter->set_mac(mac) == 0 && filter->set_local_addresses(addresses) == 0 &&
                     filter->link(ifindex, kTcxIngress, 0) == 0;
  return works ? std::move(filter) : nullptr;
}

}  // namespace uroce::io
