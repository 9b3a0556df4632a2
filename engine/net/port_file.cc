// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/port_file.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/concat.h"

namespace uroce::net {
namespace {

constexpr int kPortIndex = 1 << 20;  // beyond the numbers that a kernel gives its netdevs
constexpr size_t kLargestFile = 1 << 16;
constexpr uint32_t kLeastMtu = 576, kMostMtu = 9000, kMostVlan = 4094;

std::optional<uint32_t> number(std::string_view text, uint32_t least, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
  return good ? std::optional(value) : std::nullopt;
}

std::optional<wire::IpAddress> ip_address(std::string_view text) {
  uint8_t bytes[16];
  const std::string copy(text);
  if (inet_pton(AF_INET, copy.c_str(), bytes) == 1) return wire::IpAddress::v4(bytes);
  if (inet_pton(AF_INET6, copy.c_str(), bytes) == 1) return wire::IpAddress::v6(bytes);
  return std::nullopt;
}

bool is_of_a_host(const wire::IpAddress& address) {
  static constexpr uint8_t kNone[4] = {}, kAll[4] = {255, 255, 255, 255};
  return !address.is_unspecified() && !address.is_multicast() && address != wire::IpAddress::v4(kNone) &&
         address != wire::IpAddress::v4(kAll);
}

std::optional<wire::MacAddress> mac_address(std::string_view text) {
  wire::MacAddress mac;
  if (text.size() != 17) return std::nullopt;
  for (size_t i = 0; i < mac.size(); ++i) {
    const char* const two = text.data() + 3 * i;
    const auto [end, error] = std::from_chars(two, two + 2, mac[i], 16);
    if (error != std::errc() || end != two + 2 || (i < 5 && *end != ':')) return std::nullopt;
  }
  return (mac[0] & 1) == 0 && mac != wire::MacAddress{} ? std::optional(mac) : std::nullopt;
}

bool is_name(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && text.size() < 16 && std::all_of(text.begin(), text.end(), good);
}

// Nothing: it is wrong.
std::optional<Prefix> prefix(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const auto address = ip_address(text.substr(0, slash));
  if (!address || !is_of_a_host(*address) || slash == text.size()) return std::nullopt;
  const auto length = number(text.substr(slash + 1), 1, address->is_v4() ? 32 : 128);
  if (!length) return std::nullopt;
  return Prefix{*address, static_cast<uint8_t>(*length + (address->is_v4() ? Prefix::kV4Bits : 0))};
}

// What is wrong with the value; null: nothing.
const char* take_word(PortFile& file, std::string_view word, std::string_view value) {
  if (word == "name") {
    if (!is_name(value)) return "a name has up to 15 letters, digits, - and _";
    file.name = value;
  } else if (word == "mac") {
    const auto mac = mac_address(value);
    if (!mac) return "a MAC address of one station, as 02:00:00:00:00:01";
    file.mac = *mac;
  } else if (word == "mtu") {
    const auto mtu = number(value, kLeastMtu, kMostMtu);
    if (!mtu) return "an MTU from 576 to 9000";
    file.mtu = *mtu;
  } else if (word == "vlan") {
    const auto vlan = number(value, 1, kMostVlan);
    if (!vlan) return "the ID of a VLAN, from 1 to 4094";
    file.vlan = static_cast<uint16_t>(*vlan);
  } else if (word == "address") {
    const auto address = prefix(value);
    if (!address) return "an address with the length of its network, as 192.0.2.1/24";
    if (file.addresses.size() == PortFile::kMostAddresses) return "16 addresses at most";
    file.addresses.push_back(*address);
  } else if (word == "gateway") {
    const auto gateway = ip_address(value);
    if (!gateway || !is_of_a_host(*gateway)) return "the address of a gateway";
    file.gateways.push_back(*gateway);
  } else {
    return "words are name, mac, mtu, vlan, address and gateway";
  }
  return nullptr;
}

std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  constexpr const char* kBlank = " \t\r";
  for (size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlank, end);
  }
  return words;
}

}  // namespace

std::variant<PortFile, std::string> parse_port_file(std::string_view text) {
  PortFile file;
  for (size_t number_of_line = 1; !text.empty(); ++number_of_line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    const char* const problem =
        words.size() == 2 ? take_word(file, words[0], words[1]) : "a line is a word and its value";
    if (problem != nullptr) return concat("line ", number_of_line, ": ", problem);
  }
  if (file.name.empty()) return "there is no name";
  if (file.mac == wire::MacAddress{}) return "there is no mac";
  if (file.addresses.empty()) return "there is no address";
  return file;
}

std::variant<PortFile, std::string> read_port_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(kLargestFile, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  const bool whole = stream.eof();
  text.resize(static_cast<size_t>(stream.gcount()));
  if (!whole) return concat(path, stream.gcount() > 0 ? ": too long" : ": cannot be read");
  auto result = parse_port_file(text);
  if (const auto* const problem = std::get_if<std::string>(&result)) return concat(path, ": ", *problem);
  return result;
}

Netdev netdev_of(const PortFile& file) {
  Netdev netdev;
  netdev.index = kPortIndex;
  netdev.name = file.name;
  netdev.mac = file.mac;
  netdev.mtu = file.mtu;
  if (file.vlan != 0) netdev.vlan_id = file.vlan;
  netdev.up = netdev.running = true;
  const auto group = [](const wire::IpAddress& address) {
    return address.is_v4() ? 0 : address.is_link_local() ? 2 : 1;
  };
  for (const Prefix& address : file.addresses) netdev.addresses.push_back(address.address);
  std::stable_sort(netdev.addresses.begin(), netdev.addresses.end(),
                   [&](const auto& a, const auto& b) { return group(a) < group(b); });
  netdev.gids = gid_table({}, netdev.addresses);
  return netdev;
}

}  // namespace uroce::net
