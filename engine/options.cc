// UROCE_* environment variables (docs/environment.md).
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "engine/engine.h"
#include "engine/io/fault_spec.h"

namespace uroce::engine {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

bool is_on(const char* name) {
  const std::string_view value = variable(name);
  return !value.empty() && value != "0";
}

}  // namespace

std::optional<std::string> Options::from_environment(Options& out) {
  const std::string_view io = variable("UROCE_IO");
  if (io.empty() || io == "auto") {
    out.io = Io::kAuto;
  } else if (io == "af_xdp") {
    out.io = Io::kAfXdp;
  } else if (io == "udp") {
    out.io = Io::kUdp;
  } else {
    return fmt::format("UROCE_IO={} is not known; use auto, af_xdp or udp", io);
  }

  const std::string_view mode = variable("UROCE_XDP_MODE");
  if (!mode.empty() && mode != "auto" && mode != "native" && mode != "generic") {
    return fmt::format("UROCE_XDP_MODE={} is not known; use auto, native or generic", mode);
  }
  out.force_generic_xdp = mode == "generic";

  out.faults = variable("UROCE_FAULTS");
  if (!out.faults.empty()) {
    const auto spec = io::parse_fault_spec(out.faults);
    if (const auto* error = std::get_if<std::string>(&spec)) return fmt::format("UROCE_FAULTS: {}", *error);
  }
  out.netdev = variable("UROCE_NETDEV");
  out.quiet = is_on("UROCE_QUIET");
  out.print_counters = is_on("UROCE_COUNTERS");
  return std::nullopt;
}

}  // namespace uroce::engine
