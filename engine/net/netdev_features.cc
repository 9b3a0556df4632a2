#include "engine/net/netdev_features.h"

#include <algorithm>
#include <array>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/net/netdev_genl.h"

namespace uroce::net {
namespace {

std::string driver_of(const std::string& name) {
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&info);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  const bool ok = ioctl(fd, SIOCETHTOOL, &request) == 0;
  close(fd);
  return ok ? info.driver : "";
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
  NetdevFeatures features;
  features.driver = driver_of(name);
  const std::optional<XdpSupport> support = query_xdp_support(ifindex);
  features.xdp = support ? *support : xdp_support_of_driver(features.driver);
  return features;
}

}  // namespace uroce::net
