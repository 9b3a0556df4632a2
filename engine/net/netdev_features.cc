// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/netdev_features.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <vector>

#include "base/unique_fd.h"
#include "engine/net/netdev_genl.h"

namespace uroce::net {
namespace {

// The questions of ethtool, to one netdev.
class Ethtool {
 public:
  explicit Ethtool(const std::string& netdev) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    netdev.copy(request_.ifr_name, IFNAMSIZ - 1);
  }

  // `question` begins with a command, and has room for the answer to it.
  bool ask(void* question) {
    request_.ifr_data = static_cast<char*>(question);
    return ioctl(fd_.get(), SIOCETHTOOL, &request_) == 0;
  }

 private:
  const UniqueFd fd_;
  ifreq request_{};
};

std::string driver_of(Ethtool& ethtool) {
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  return ethtool.ask(&info) ? info.driver : "";
}

// A question whose answer is longer than its head: an array of Head's last member.
template <class Head>
class LongQuestion {
 public:
  LongQuestion(uint32_t command, size_t answer_bytes)
      : words_((sizeof(Head) + answer_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t)) {
    head().cmd = command;
  }
  Head& head() { return *reinterpret_cast<Head*>(words_.data()); }

 private:
  std::vector<uint64_t> words_;
};

// How many features the kernel has names for, a constant of the kernel; 0: it does not say.
uint32_t feature_count(Ethtool& ethtool) {
  LongQuestion<ethtool_sset_info> count(ETHTOOL_GSSET_INFO, sizeof(uint32_t));
  count.head().sset_mask = 1 << ETH_SS_FEATURES;
  return ethtool.ask(&count.head()) && count.head().sset_mask != 0 ? count.head().data[0] : 0;
}

// Number of a feature among `count`; nullopt: this kernel has none of that name. The kernel answers with all names that
// it has, whatever room there is: `count` must be what feature_count() says, and not 0.
std::optional<uint32_t> feature_number(Ethtool& ethtool, uint32_t count, std::string_view wanted) {
  LongQuestion<ethtool_gstrings> names(ETHTOOL_GSTRINGS, size_t{count} * ETH_GSTRING_LEN);
  names.head().string_set = ETH_SS_FEATURES;
  names.head().len = count;
  if (!ethtool.ask(&names.head())) return std::nullopt;
  for (uint32_t i = 0; i < std::min(count, names.head().len); ++i) {
    const auto* name = reinterpret_cast<const char*>(names.head().data) + size_t{i} * ETH_GSTRING_LEN;
    if (std::string_view(name, strnlen(name, ETH_GSTRING_LEN)) == wanted) return i;
  }
  return std::nullopt;
}

Segmentation segmentation_of(Ethtool& ethtool) {
  const uint32_t count = feature_count(ethtool);
  if (count == 0) return Segmentation::kNone;
  const auto number = feature_number(ethtool, count, "tx-udp-segmentation");
  if (!number) return Segmentation::kNone;
  const uint32_t blocks = (count + 31) / 32;
  LongQuestion<ethtool_gfeatures> features(ETHTOOL_GFEATURES, blocks * sizeof(ethtool_get_features_block));
  features.head().size = blocks;
  if (!ethtool.ask(&features.head()) || features.head().size <= *number / 32) return Segmentation::kNone;
  const ethtool_get_features_block& block = features.head().features[*number / 32];
  const uint32_t bit = uint32_t{1} << (*number % 32);
  if ((block.active & bit) != 0) return Segmentation::kOn;
  if ((block.requested & bit) != 0) return Segmentation::kWithdrawn;
  return (block.available & ~block.never_changed & bit) != 0 ? Segmentation::kOff : Segmentation::kNone;
}

}  // namespace

XdpSupport xdp_support_of_driver(const std::string& driver) {
  // Drivers with AF_XDP zero-copy, and those with native XDP only, as of Linux 6.1.
  static constexpr std::array kZeroCopy = {"i40e", "ice", "ixgbe", "igc", "mlx5_core", "st_gmac", "tsnep"};
  static constexpr std::array kNative = {"veth",      "virtio_net", "tun", "ena",       "bnxt_en", "mlx4_en",
                                         "nfp",       "qede",       "sfc", "igb",       "mvneta",  "mvpp2",
                                         "hv_netvsc", "vif",        "gve", "fsl_enetc", "cpsw",    "atlantic"};
  const auto lists = [&driver](const auto& names) {
    return std::find(names.begin(), names.end(), driver) != names.end();
  };
  XdpSupport support;
  support.zero_copy = lists(kZeroCopy);
  support.native = support.zero_copy || lists(kNative);
  return support;
}

std::optional<XdpSupport> query_xdp_support(int ifindex) {
  const std::optional<uint64_t> features = query_xdp_features(ifindex);
  if (!features) return std::nullopt;
  const auto all = [&features](uint64_t bits) { return (*features & bits) == bits; };
  return XdpSupport{.native = all(kXdpFeatureBasic | kXdpFeatureRedirect),
                    .zero_copy = all(kXdpFeatureZeroCopy),
                    .multi_buffer = all(kXdpFeatureRxScatter)};
}

NetdevFeatures netdev_features(int ifindex, const std::string& name) {
  Ethtool ethtool(name);
  NetdevFeatures features;
  features.driver = driver_of(ethtool);
  features.udp_segmentation = segmentation_of(ethtool);
  const std::optional<XdpSupport> support = query_xdp_support(ifindex);
  features.xdp = support ? *support : xdp_support_of_driver(features.driver);
  return features;
}

}  // namespace uroce::net
