// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/contents.h"

#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "abi/functions.h"
#include "engine/net/device_identity.h"

namespace uroce::files {
namespace {

constexpr std::string_view kDeviceDirectory = "dev/infiniband/";
constexpr const char* kDeviceNode = "/dev/null";  // readable and writable by all, and does nothing
constexpr const char* kMadAbi = "5";              // IB_USER_MAD_ABI_VERSION
constexpr const char* kRdmaCmAbi = "4";           // RDMA_USER_CM_ABI_VERSION
constexpr const char* kVerbsAbi = "6";            // IB_USER_VERBS_ABI_VERSION

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  char text[128];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

// Puts nodes into one directory, and makes the directories that lead there.
class Directory {
 public:
  Directory(Contents& contents, std::string path) : contents_(contents), path_(std::move(path)) {
    for (size_t end = path_.find('/'); end != std::string::npos; end = path_.find('/', end + 1)) {
      contents_.try_emplace(path_.substr(0, end));
    }
    contents_.try_emplace(path_);
  }
  Directory directory(const std::string& name) { return {contents_, path_ + "/" + name}; }
  // A line of text, as attributes are.
  void file(const std::string& name, const std::string& line) {
    contents_[path_ + "/" + name] = {Node::Kind::kFile, line + "\n"};
  }
  void link(const std::string& name, const std::string& target) {
    contents_[path_ + "/" + name] = {Node::Kind::kLink, target};
  }

 private:
  Contents& contents_;
  std::string path_;
};

std::string guid_text(uint64_t guid) {
  return print("%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48), static_cast<unsigned>(guid >> 32 & 0xffff),
               static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
}

std::string gid_text(const wire::IpAddress& gid) {
  std::string text;
  for (size_t i = 0; i < gid.bytes.size(); i += 2) {
    text += print("%s%02x%02x", i == 0 ? "" : ":", gid.bytes[i], gid.bytes[i + 1]);
  }
  return text;
}

// rate_show() of the kernel's sysfs.c.
std::string rate_text(uint32_t mbps) {
  const engine::LinkRate& rate = engine::link_rate(mbps);
  const int lanes = rate.width == 2 ? 4 : rate.width == 16 ? 2 : 1;
  int lane = 25;  // 100 Mb/s
  const char* name = "SDR";
  switch (rate.speed) {
    case 4:
      lane = 100, name = "QDR";
      break;
    case 32:
      lane = 250, name = "EDR";
      break;
    case 64:
      lane = 500, name = "HDR";
      break;
    case 128:
      lane = 1000, name = "NDR";
      break;
  }
  const int total = lanes * lane;
  return print("%d%s Gb/sec (%dX %s)", total / 10, total % 10 == 0 ? "" : ".5", lanes, name);
}

// An empty entry has a GID of zeroes and no attributes; the kernel has the files, and an error for who reads them.
void add_gids(Directory& port, const net::Netdev& netdev) {
  Directory gids = port.directory("gids");
  Directory attributes = port.directory("gid_attrs");
  Directory types = attributes.directory("types"), netdevs = attributes.directory("ndevs");
  const size_t count = netdev.gids.size();
  for (size_t i = 0; i < engine::gid_table_length(count); ++i) {
    const std::string index = std::to_string(i);
    const wire::IpAddress gid = i < count ? netdev.gids[i] : wire::IpAddress{};
    gids.file(index, gid_text(gid));
    if (gid.is_unspecified()) continue;
    types.file(index, "RoCE v2");
    netdevs.file(index, netdev.name);
  }
}

void add_counters(Directory& port, const std::map<std::string, uint64_t>& counters) {
  for (const auto& [file, value] : counters) {
    const size_t slash = file.find('/');
    port.directory(file.substr(0, slash)).file(file.substr(slash + 1), std::to_string(value));
  }
}

const char* physical_state_text(uint8_t state) {
  switch (state) {
    case engine::kPhysicalLinkUp:
      return "5: LinkUp";
    case engine::kPhysicalPolling:
      return "2: Polling";
    default:
      return "3: Disabled";
  }
}

void add_port(Directory port, const Device& about) {
  const net::Netdev& netdev = about.netdev;
  const bool active = engine::port_is_active(netdev);
  port.file("state", active ? "4: ACTIVE" : "1: DOWN");
  port.file("phys_state", physical_state_text(engine::physical_state(netdev.up, active)));
  port.file("rate", rate_text(netdev.speed_mbps));
  port.file("link_layer", "Ethernet");
  port.file("cap_mask", print("0x%08x", engine::kPortCapabilities));
  for (const char* name : {"lid", "sm_lid"}) port.file(name, "0x0");
  for (const char* name : {"lid_mask_count", "sm_sl"}) port.file(name, "0");
  port.directory("pkeys").file("0", "0xffff");
  add_gids(port, netdev);
  add_counters(port, about.counters);
}

// device/net/eth0: by this name NCCL, ibdev2netdev and many scripts find the netdev of a device. The files are those of
// net-sysfs.c that tell one netdev from another.
void add_netdev(Directory net, const net::Netdev& netdev) {
  net.file("address", mac_text(netdev.mac));
  net.file("dev_id", "0x0");
  net.file("dev_port", "0");
  net.file("ifindex", std::to_string(netdev.index));
  net.file("mtu", std::to_string(netdev.mtu));
  net.file("operstate", engine::port_is_active(netdev) ? "up" : "down");
}

// What bus devices have and programs look for: the netdev, which CPUs are near, and who made it. Nobody did. Where
// there is one below the netdev, all of this is in its directory.
void add_hardware(Directory& device, const Device& about, const Cpus& cpus) {
  if (!about.hardware.empty()) return device.link("device", about.hardware);
  Directory hardware = device.directory("device");
  add_netdev(hardware.directory("net").directory(about.netdev.name), about.netdev);
  hardware.file("local_cpus", cpus.mask);
  hardware.file("local_cpulist", cpus.list);
  hardware.file("numa_node", "-1");
  for (const char* name : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) hardware.file(name, "0x0000");
}

void add_device(Contents& contents, const Device& about, const Cpus& cpus) {
  const net::Netdev& netdev = about.netdev;
  const std::string& name = about.name;
  Directory device(contents, "sys/class/infiniband/" + name);
  device.file("node_type", "1: CA");
  device.file("node_desc", name);
  const std::string guid = guid_text(engine::device_guid(netdev));
  device.file("node_guid", guid);
  device.file("sys_image_guid", guid);
  device.file("fw_ver", UROCE_VERSION);
  device.file("hw_rev", "0");
  for (const char* identity : {"hca_type", "board_id"}) device.file(identity, "uroce");
  device.file("uevent", "NAME=" + name);
  add_hardware(device, about, cpus);
  add_port(device.directory("ports").directory("1"), about);
}

void add_uverbs(Contents& contents, const Device& about) {
  const std::string name = engine::uverbs_name(about.netdev);
  const std::string& device = about.name;
  Directory uverbs(contents, "sys/class/infiniband_verbs/" + name);
  uverbs.file("ibdev", device);
  uverbs.file("abi_version", "1");
  uverbs.file("dev", "1:3");  // of kDeviceNode, as stat() of the node says as well
  uverbs.file("uevent", "MAJOR=1\nMINOR=3\nDEVNAME=infiniband/" + name);
  uverbs.link("device", about.hardware.empty() ? "../../infiniband/" + device + "/device" : about.hardware);
  Directory(contents, "dev/infiniband").link(name, kDeviceNode);
}

// A misc device. The node stands for who looks for it; opening it is another thing (hooks/rdma_cm.cc).
void add_rdma_cm(Contents& contents) {
  Directory misc(contents, "sys/class/misc/rdma_cm");
  misc.file("abi_version", kRdmaCmAbi);
  misc.file("dev", std::to_string(rdma_cm::kDeviceMajor) + ":" + std::to_string(rdma_cm::kDeviceMinor));
  Directory(contents, "dev/infiniband").link("rdma_cm", kDeviceNode);
}

}  // namespace

std::string mac_text(const wire::MacAddress& mac) {
  return print("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

Contents describe(const std::vector<Device>& devices, const Cpus& cpus, RdmaCm rdma_cm) {
  Contents contents;
  for (const char* path : {"sys", "sys/class", "sys/class/infiniband", "dev", "dev/infiniband"}) contents[path] = {};
  Directory(contents, "sys/class/infiniband_verbs").file("abi_version", kVerbsAbi);
  Directory(contents, "sys/class/infiniband_mad").file("abi_version", kMadAbi);
  for (const Device& device : devices) {
    add_device(contents, device, cpus);
    add_uverbs(contents, device);
  }
  if (rdma_cm == RdmaCm::kPresent) add_rdma_cm(contents);
  return contents;
}

std::string cpu_mask(std::string_view list) {
  constexpr unsigned kMaxCpu = 8192;  // as many as Linux can have
  std::vector<uint32_t> words(1);
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    unsigned first = 0;
    const auto [behind, error] = std::from_chars(range.data(), range.data() + range.size(), first);
    if (error != std::errc()) return {};
    unsigned last = first;
    if (behind != range.data() + range.size()) {
      const auto end = std::from_chars(behind + 1, range.data() + range.size(), last);
      if (*behind != '-' || end.ec != std::errc() || end.ptr != range.data() + range.size()) return {};
    }
    if (last < first || last >= kMaxCpu) return {};
    if (words.size() <= last / 32) words.resize(last / 32 + 1);
    for (unsigned cpu = first; cpu <= last; ++cpu) words[cpu / 32] |= 1u << cpu % 32;
  }
  std::string mask;
  for (auto word = words.rbegin(); word != words.rend(); ++word)
    mask += print("%s%08x", mask.empty() ? "" : ",", *word);
  return mask;
}

bool is_device_node(std::string_view path) {
  return path.substr(0, kDeviceDirectory.size()) == kDeviceDirectory && path.size() > kDeviceDirectory.size();
}

}  // namespace uroce::files
