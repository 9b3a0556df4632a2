#include "cli/io_forecast.h"

#include <fmt/format.h>

namespace uroce::cli {

XdpMode forecast_xdp(const NetdevProbe& netdev, const Privileges& privileges, bool af_xdp_in_kernel) {
  if (!af_xdp_in_kernel || !privileges.af_xdp() || netdev.attached) return XdpMode::kNone;
  if (netdev.features.xdp.zero_copy) return XdpMode::kZeroCopy;
  return netdev.features.xdp.native ? XdpMode::kNative : XdpMode::kGeneric;
}

const char* xdp_mode_name(XdpMode mode) {
  switch (mode) {
    case XdpMode::kGeneric:
      return "generic";
    case XdpMode::kNative:
      return "native";
    case XdpMode::kZeroCopy:
      return "zero-copy";
    case XdpMode::kNone:
      break;
  }
  return "none";
}

std::string why_no_xdp(const std::string& netdev_name, const NetdevProbe& netdev, const Privileges& privileges,
                       bool af_xdp_in_kernel) {
  if (!af_xdp_in_kernel) return "this kernel has no AF_XDP: use one with CONFIG_XDP_SOCKETS, or UDP sockets (--io udp)";
  if (!privileges.af_xdp()) return privilege_problem(privileges);
  if (!netdev.attached) return "";
  if (netdev.attached->is_ours()) return "another uroce process uses AF_XDP on it now";
  return fmt::format("XDP program {}{} is attached; if nothing needs it: ip link set dev {} xdp off",
                     netdev.attached->id, netdev.attached->name.empty() ? "" : " (" + netdev.attached->name + ")",
                     netdev_name);
}

}  // namespace uroce::cli
