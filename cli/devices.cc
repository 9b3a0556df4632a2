#include "cli/devices.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "cli/io_forecast.h"
#include "cli/report.h"

namespace uroce::cli {
namespace {

const char* state_name(const Device& device) {
  if (device.active) return "active";
  return device.up ? "no link" : "down";
}

std::string gid_json(const Device& device) {
  std::string out;
  for (const wire::IpAddress& gid : device.gids) {
    out += (out.empty() ? "" : ", ") + (gid.is_unspecified() ? "null" : json_string(gid.text()));
  }
  return out;
}

}  // namespace

std::string devices_text(const std::vector<Device>& devices, const Privileges& privileges, bool af_xdp_in_kernel) {
  if (devices.empty())
    return "no devices: there is no Ethernet netdev with an address here, or UROCE_NETDEV names none\n";
  using Row = std::array<std::string, 7>;
  std::vector<Row> rows = {{"DEVICE", "NETDEV", "STATE", "MTU", "PATH MTU", "DRIVER", "AF_XDP"}};
  for (const Device& device : devices) {
    const XdpMode mode = forecast_xdp(device.probe, privileges, af_xdp_in_kernel);
    rows.push_back({device.name, device.netdev, state_name(device), std::to_string(device.mtu),
                    device.path_mtu == 0 ? "-" : std::to_string(device.path_mtu),
                    device.probe.features.driver.empty() ? "-" : device.probe.features.driver, xdp_mode_name(mode)});
  }
  Row::size_type column = 0;
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (size_t& width : widths) {
    for (const Row& row : rows) width = std::max(width, row[column].size());
    ++column;
  }
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t c = 0; c + 1 < widths.size(); ++c) out += fmt::format("{:<{}}  ", rows[i][c], widths[c]);
    out += rows[i].back() + "\n";
    if (i == 0) continue;
    const Device& device = devices[i - 1];
    for (size_t gid = 0; gid < device.gids.size(); ++gid) {
      if (!device.gids[gid].is_unspecified()) out += fmt::format("  gid {}  {}\n", gid, device.gids[gid].text());
    }
    const std::string why = why_no_xdp(device.netdev, device.probe, privileges, af_xdp_in_kernel);
    if (!why.empty()) out += "  no AF_XDP: " + why + "\n";
  }
  return out;
}

std::string devices_json(const std::vector<Device>& devices, const Privileges& privileges, bool af_xdp_in_kernel) {
  std::string out;
  for (const Device& device : devices) {
    const XdpMode mode = forecast_xdp(device.probe, privileges, af_xdp_in_kernel);
    out += fmt::format(
        R"({}
  {{"device": {}, "netdev": {}, "state": "{}", "mtu": {}, "path_mtu": {}, "driver": {}, "queues": {}, "af_xdp": "{}", )"
        R"("why_not": {}, "gids": [{}]}})",
        out.empty() ? "" : ",", json_string(device.name), json_string(device.netdev), state_name(device), device.mtu,
        device.path_mtu, json_string(device.probe.features.driver), device.probe.queues, xdp_mode_name(mode),
        json_string(why_no_xdp(device.netdev, device.probe, privileges, af_xdp_in_kernel)), gid_json(device));
  }
  return "[" + out + "\n]\n";
}

}  // namespace uroce::cli
