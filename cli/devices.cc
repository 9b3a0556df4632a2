// SPDX-License-Identifier: BSD-2-Clause
#include "cli/devices.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "cli/json.h"

namespace uroce::cli {
namespace {

const char* state_name(const Device& device) {
  if (device.active) return "active";
  return device.up ? "no link" : "down";
}

const char* mode_name(engine::XdpMode mode) {
  switch (mode) {
    case engine::XdpMode::kGeneric:
      return "generic";
    case engine::XdpMode::kNative:
      return "native";
    default:
      return "zero-copy";
  }
}

const char* kind_name(engine::IoKind kind) {
  switch (kind) {
    case engine::IoKind::kAfXdp:
      return "af_xdp";
    case engine::IoKind::kUdp:
      return "udp";
    case engine::IoKind::kDpdk:
      return "dpdk";
    default:
      return "none";
  }
}

template <size_t columns>
using Row = std::array<std::string, columns>;

// A line for each row, columns as wide as what is in them. The first row is the head.
template <size_t columns>
std::vector<std::string> aligned(const std::vector<Row<columns>>& rows) {
  std::array<size_t, columns> widths{};
  for (const Row<columns>& row : rows) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const Row<columns>& row : rows) {
    std::string& line = lines.emplace_back();
    for (size_t i = 0; i + 1 < columns; ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line += row.back() + "\n";
  }
  return lines;
}

// All 128 bits of it, as sysfs and show_gids have it.
std::string long_gid(const wire::IpAddress& gid) {
  std::string text;
  for (size_t i = 0; i < gid.bytes.size(); i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.bytes[i], gid.bytes[i + 1]);
  }
  return text;
}

std::string gid_json(const Device& device) {
  std::string out;
  for (const wire::IpAddress& gid : device.gids) {
    out += (out.empty() ? "" : ", ") + (gid.is_unspecified() ? "null" : json_string(gid.text()));
  }
  return out;
}

}  // namespace

std::string io_name(const Device& device) {
  std::string name = kind_name(device.io.kind);
  if (device.io.kind == engine::IoKind::kAfXdp) name += fmt::format(", {}", mode_name(device.io_facts.xdp_mode));
  return name;
}

std::string devices_text(const std::vector<Device>& devices) {
  std::vector<Row<7>> rows = {{"DEVICE", "NETDEV", "STATE", "MTU", "PATH MTU", "DRIVER", "PACKET I/O"}};
  for (const Device& device : devices) {
    const std::string& driver = device.io_facts.features.driver;
    rows.push_back({device.name, device.netdev, state_name(device), std::to_string(device.mtu),
                    device.path_mtu == 0 ? "-" : std::to_string(device.path_mtu), driver.empty() ? "-" : driver,
                    io_name(device)});
  }
  const std::vector<std::string> lines = aligned(rows);
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out += lines[i];
    if (i == 0) continue;
    const Device& device = devices[i - 1];
    for (size_t gid = 0; gid < device.gids.size(); ++gid) {
      if (!device.gids[gid].is_unspecified()) out += fmt::format("  gid {}  {}\n", gid, device.gids[gid].text());
    }
    out += fmt::format("  {}: {}\n", kind_name(device.io.kind), device.io.why);
  }
  return out;
}

std::string gids_text(const std::vector<Device>& devices) {
  std::vector<Row<7>> rows = {{"DEVICE", "PORT", "INDEX", "GID", "ADDRESS", "VER", "NETDEV"}};
  for (const Device& device : devices) {
    for (size_t i = 0; i < device.gids.size(); ++i) {
      const wire::IpAddress& gid = device.gids[i];
      if (gid.is_unspecified()) continue;
      rows.push_back({device.name, "1", std::to_string(i), long_gid(gid), gid.text(), "v2", device.netdev});
    }
  }
  std::string out;
  for (const std::string& line : aligned(rows)) out += line;
  return out;
}

std::string devices_json(const std::vector<Device>& devices) {
  std::string out;
  for (const Device& device : devices) {
    const engine::IoFacts& facts = device.io_facts;
    out += fmt::format(
        R"({}
  {{"device": {}, "netdev": {}, "state": "{}", "mtu": {}, "path_mtu": {}, "driver": {}, "queues": {}, "io": "{}", )"
        R"("why": {}, "af_xdp": "{}", "why_not": {}, "gids": [{}]}})",
        out.empty() ? "" : ",", json_string(device.name), json_string(device.netdev), state_name(device), device.mtu,
        device.path_mtu, json_string(facts.features.driver), device.probe.queues, kind_name(device.io.kind),
        json_string(device.io.why), facts.no_af_xdp ? "none" : mode_name(facts.xdp_mode),
        json_string(facts.no_af_xdp ? facts.no_af_xdp->text() : ""), gid_json(device));
  }
  return "[" + out + "\n]\n";
}

}  // namespace uroce::cli
