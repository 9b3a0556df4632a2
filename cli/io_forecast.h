// Which packet I/O a program on a netdev would get, told without attaching anything: the order that the engine tries,
// applied to what the driver offers and the process may do. Used by devices and doctor.
#pragma once

#include <string>

#include "cli/host_probe.h"
#include "cli/netdev_probe.h"

namespace uroce::cli {

enum class XdpMode { kNone, kGeneric, kNative, kZeroCopy };

// Zero-copy if the driver can, else native, else generic; none without the privileges or the socket family, or when
// somebody else's XDP program is attached.
XdpMode forecast_xdp(const NetdevProbe& netdev, const Privileges& privileges, bool af_xdp_in_kernel);

const char* xdp_mode_name(XdpMode mode);  // "none", "generic", "native", "zero-copy"

// Why forecast_xdp() said kNone, with the remedy; empty otherwise.
std::string why_no_xdp(const std::string& netdev_name, const NetdevProbe& netdev, const Privileges& privileges,
                       bool af_xdp_in_kernel);

}  // namespace uroce::cli
