// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/dpdk/devargs.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace uroce::io {
namespace {

constexpr uint32_t kBlockSize = 1 << 16;  // of net_af_packet's rings; its frames must not straddle blocks
constexpr uint32_t kRingSize = 2 << 20;   // bytes, each way; both are locked in memory

std::vector<std::string_view> split_options(std::string_view options) {
  std::vector<std::string_view> all;
  while (!options.empty()) {
    const size_t comma = std::min(options.find(','), options.size());
    all.push_back(options.substr(0, comma));
    options.remove_prefix(std::min(comma + 1, options.size()));
  }
  return all;
}

std::optional<uint32_t> queue_number(const std::string& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 1 && number <= kMaxDpdkQueues ? std::optional(number) : std::nullopt;
}

void add_option(DpdkDevargs& devargs, const std::string& key, const std::string& value) {
  if (!devargs.value(key).empty()) return;
  devargs.options += (devargs.options.empty() ? "" : ",") + key + "=" + value;
}

}  // namespace

std::string DpdkDevargs::value(const std::string& key) const {
  for (const std::string_view option : split_options(options)) {
    if (option.size() > key.size() && option.substr(0, key.size()) == key && option[key.size()] == '=') {
      return std::string(option.substr(key.size() + 1));
    }
  }
  return "";
}

// net_af_packet opens packet sockets, and when it starts sets the netdev's address and flags, though to what they are.
std::string DpdkDevargs::lacks(bool net_raw, bool net_admin) const {
  const bool on_netdev = device.empty() || is_af_packet();
  std::string missing;
  if (on_netdev && !net_raw) missing = "CAP_NET_RAW";
  if ((on_netdev || is_tap()) && !net_admin) missing += missing.empty() ? "CAP_NET_ADMIN" : ", CAP_NET_ADMIN";
  return missing;
}

std::string DpdkDevargs::exclusive_name() const {
  constexpr size_t kLongest = 160;  // the end of a path tells more than its beginning
  const auto is = [this](const char* driver) { return device.rfind(driver, 0) == 0; };
  const auto option = [this](const char* key, const char* otherwise) {
    const std::string given = value(key);
    return given.empty() ? std::string(otherwise) : given;
  };
  std::string name;
  if (is_af_packet() || is("net_null") || is("net_pcap") || is("net_ring")) return "";
  if (is("net_memif")) {  // both ends may be on this host
    const std::string role = option("role", "client");
    name = "net_memif " +
           (role == "slave"    ? "client"
            : role == "master" ? "server"
                               : role) +
           " " + option("id", "0") + " of " + option("socket", "/run/memif.sock");
  } else if (is_tap()) {
    name = "net_tap " + option("iface", "dtap0");
  } else if (is("net_virtio_user")) {
    name = "net_virtio_user " + option("path", "");
  } else {  // a PCI address, maybe without its domain
    name = std::count(device.begin(), device.end(), ':') == 1 ? "0000:" + device : device;
  }
  return name.size() <= kLongest ? name : name.substr(name.size() - kLongest);
}

std::optional<DpdkDevargs> parse_dpdk_devargs(const std::string& text) {
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  if (text.empty() || text.size() > 255 || !std::all_of(text.begin(), text.end(), printable)) return std::nullopt;
  DpdkDevargs devargs;
  const size_t comma = std::min(text.find(','), text.size());
  devargs.device = text.substr(0, comma);
  devargs.options = text.substr(std::min(comma + 1, text.size()));
  // DPDK would take it for an option of its own.
  if (devargs.device.empty() || devargs.device.front() == '-') return std::nullopt;
  for (const char* key : {"queues", "qpairs"}) {
    const std::string value = devargs.value(key);
    if (value.empty()) continue;
    const std::optional<uint32_t> number = queue_number(value);
    if (!number) return std::nullopt;
    devargs.queues = *number;
  }
  return devargs;
}

DpdkDevargs complete_dpdk_devargs(const DpdkDevargs& devargs, const std::string& netdev, uint32_t buffer_size,
                                  uint32_t number) {
  DpdkDevargs whole = devargs;
  if (whole.device.empty()) whole.device = "net_af_packet_uroce" + std::to_string(number);
  if (!whole.is_af_packet()) return whole;
  add_option(whole, "iface", netdev);
  if (!whole.value("framesz").empty() || !whole.value("blocksz").empty()) return whole;
  add_option(whole, "blocksz", std::to_string(kBlockSize));
  add_option(whole, "framesz", std::to_string(buffer_size));
  add_option(whole, "framecnt", std::to_string(kRingSize / buffer_size));
  return whole;
}

}  // namespace uroce::io
