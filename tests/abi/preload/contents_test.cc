// SPDX-License-Identifier: BSD-2-Clause
// The files of given netdevs, as the kernel's RoCE drivers would have them.
#include "abi/preload/sysfs_view/contents.h"

#include <gmock/gmock.h>

namespace uroce::files {
namespace {

constexpr uint8_t kV4[4] = {192, 0, 2, 1};
const Cpus kCpus{"0-1", "00000003"};

Device eth0() {
  Device device;
  device.name = "uroce_eth0";
  device.netdev = {.index = 7,
                   .name = "eth0",
                   .mac = {0x52, 0x54, 0, 0x12, 0x34, 0x56},
                   .mtu = 1500,
                   .up = true,
                   .running = true,
                   .speed_mbps = 100'000,
                   .vlan_id = std::nullopt,
                   .kind = {},
                   .vlans = {},
                   .addresses = {wire::IpAddress::v4(kV4)},
                   .gids = {wire::IpAddress::v4(kV4)}};
  return device;
}

class Files : public testing::Test {
 protected:
  std::string file(const std::string& path) {
    const auto found = contents_.find(path);
    if (found == contents_.end() || found->second.kind != Node::Kind::kFile) return "no file " + path;
    return found->second.text;
  }
  std::string port(const std::string& name) { return file("sys/class/infiniband/uroce_eth0/ports/1/" + name); }
  std::string link(const std::string& path) {
    const auto found = contents_.find(path);
    return found != contents_.end() && found->second.kind == Node::Kind::kLink ? found->second.text : "no link " + path;
  }
  Contents contents_ = describe({eth0()}, kCpus);
};

TEST_F(Files, Device) {
  const std::string device = "sys/class/infiniband/uroce_eth0/";
  EXPECT_EQ(file(device + "node_guid"), "5054:00ff:fe12:3456\n");
  EXPECT_EQ(file(device + "sys_image_guid"), "5054:00ff:fe12:3456\n");
  EXPECT_EQ(file(device + "node_type"), "1: CA\n");
  EXPECT_EQ(file(device + "device/local_cpus"), "00000003\n");
  EXPECT_EQ(file(device + "device/local_cpulist"), "0-1\n");
  EXPECT_EQ(file(device + "device/numa_node"), "-1\n");
  EXPECT_EQ(file("sys/class/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(file("sys/class/infiniband_verbs/uverbs7/ibdev"), "uroce_eth0\n");
  EXPECT_EQ(link("dev/infiniband/uverbs7"), "/dev/null");
}

TEST_F(Files, NetdevOfTheDevice) {
  const std::string netdev = "sys/class/infiniband/uroce_eth0/device/net/eth0/";
  EXPECT_EQ(file(netdev + "address"), "52:54:00:12:34:56\n");
  EXPECT_EQ(file(netdev + "dev_port"), "0\n");
  EXPECT_EQ(file(netdev + "dev_id"), "0x0\n");
  EXPECT_EQ(file(netdev + "ifindex"), "7\n");
  EXPECT_EQ(file(netdev + "mtu"), "1500\n");
  EXPECT_EQ(file(netdev + "operstate"), "up\n");
  EXPECT_EQ(link("sys/class/infiniband_verbs/uverbs7/device"), "../../infiniband/uroce_eth0/device");
}

TEST_F(Files, Port) {
  EXPECT_EQ(port("state"), "4: ACTIVE\n");
  EXPECT_EQ(port("phys_state"), "5: LinkUp\n");
  EXPECT_EQ(port("rate"), "100 Gb/sec (4X EDR)\n");
  EXPECT_EQ(port("link_layer"), "Ethernet\n");
  EXPECT_EQ(port("lid"), "0x0\n");
  EXPECT_EQ(port("cap_mask"), "0x04000000\n");
  EXPECT_EQ(port("pkeys/0"), "0xffff\n");
  Device down = eth0();
  down.netdev.running = false;
  contents_ = describe({down}, kCpus);
  EXPECT_EQ(port("state"), "1: DOWN\n");
  EXPECT_EQ(port("phys_state"), "2: Polling\n");
  down.netdev.up = false;
  contents_ = describe({down}, kCpus);
  EXPECT_EQ(port("phys_state"), "3: Disabled\n");
}

TEST_F(Files, Gids) {
  EXPECT_EQ(port("gids/0"), "0000:0000:0000:0000:0000:ffff:c000:0201\n");
  EXPECT_EQ(port("gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(port("gid_attrs/ndevs/0"), "eth0\n");
  EXPECT_EQ(port("gids/15"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(contents_.count("sys/class/infiniband/uroce_eth0/ports/1/gid_attrs/types/1"), 0u) << "an empty entry";
}

TEST_F(Files, Rates) {
  for (const auto& [mbps, text] : {std::pair<uint32_t, const char*>{1'000, "2.5 Gb/sec (1X SDR)\n"},
                                   {10'000, "10 Gb/sec (1X QDR)\n"},
                                   {25'000, "25 Gb/sec (1X EDR)\n"},
                                   {40'000, "40 Gb/sec (4X QDR)\n"},
                                   {50'000, "50 Gb/sec (1X HDR)\n"},
                                   {200'000, "200 Gb/sec (4X HDR)\n"},
                                   {400'000, "400 Gb/sec (4X NDR)\n"}}) {
    Device device = eth0();
    device.netdev.speed_mbps = mbps;
    contents_ = describe({device}, kCpus);
    EXPECT_EQ(port("rate"), text);
  }
}

TEST_F(Files, HardwareIsLinkedTo) {
  Device device = eth0();
  device.hardware = "/sys/devices/pci0000:00/0000:00:03.0";
  contents_ = describe({device}, kCpus);
  EXPECT_EQ(link("sys/class/infiniband/uroce_eth0/device"), device.hardware);
  EXPECT_EQ(link("sys/class/infiniband_verbs/uverbs7/device"), device.hardware);
}

TEST_F(Files, EveryDirectoryIsNamedBeforeWhatIsInIt) {
  for (const auto& [path, node] : contents_) {
    for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
      const auto parent = contents_.find(path.substr(0, end));
      ASSERT_NE(parent, contents_.end()) << path;
      EXPECT_EQ(parent->second.kind, Node::Kind::kDirectory) << path;
    }
  }
  contents_ = describe({}, kCpus);
  EXPECT_EQ(contents_.count("sys/class/infiniband"), 1u) << "without a device the directories are empty";
  EXPECT_EQ(contents_.count("dev/infiniband"), 1u);
}

TEST(CpuMask, OfLists) {
  EXPECT_EQ(cpu_mask("0"), "00000001");
  EXPECT_EQ(cpu_mask("0-2,33"), "00000002,00000007");
  EXPECT_EQ(cpu_mask("31-32"), "00000001,80000000");
  EXPECT_EQ(cpu_mask(""), "00000000");
  for (const char* nonsense : {"x", "1-", "3-1", "1:2", "0-99999", "1,,2"})
    EXPECT_EQ(cpu_mask(nonsense), "") << nonsense;
}

}  // namespace
}  // namespace uroce::files
