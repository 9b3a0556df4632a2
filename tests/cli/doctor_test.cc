// SPDX-License-Identifier: BSD-2-Clause
// The judgement of `uroce doctor` and `uroce devices` on given facts.
#include "cli/doctor.h"

#include <array>
#include <cerrno>
#include <gmock/gmock.h>

#include "cli/devices.h"

namespace uroce::cli {
namespace {

using testing::HasSubstr;

constexpr uint8_t kAddress[4] = {192, 0, 2, 1};

HostFacts good_host() {
  return {.kernel = {6, 8},
          .af_xdp_socket_error = 0,
          .privileges = {},
          .lockable_memory = SIZE_MAX,
          .udp_receive_buffer = 2 * io::kUdpBufferSize,
          .port_holders = {},
          .broker = {},
          .btf = true,
          .bpffs = true,
          .library = "/usr/lib/uroce/liburoce.so",
          .files_library = "/usr/lib/uroce/liburoce_files.so",
          .af_xdp_library = "/usr/lib/uroce/uroce_af_xdp.so",
          .dpdk = {.library = "/usr/lib/uroce/uroce_dpdk.so", .devargs = {}}};
}

HostFacts ordinary_user() {
  HostFacts host = good_host();
  host.af_xdp_socket_error = EPERM;
  host.privileges = {.missing = "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"};
  host.lockable_memory = 8 << 20;
  return host;
}

// With the packet I/O that a program would get.
Device chosen(Device device) {
  device.io = engine::choose_io(device.io_facts, engine::Options::Io::kAuto);
  return device;
}

Device good_device() {
  Device device{.name = "uroce_eth0", .netdev = "eth0", .up = true, .active = true, .mtu = 1500, .path_mtu = 1024};
  device.gids = {wire::IpAddress::v4(kAddress)};
  device.io_facts.features = {.driver = "veth",
                              .xdp = {.native = true, .zero_copy = false, .multi_buffer = true},
                              .udp_segmentation = net::Segmentation::kOn};
  device.io_facts.xdp_mode = engine::XdpMode::kNative;
  device.io_facts.to_software = true;
  return chosen(device);
}

// As a program of a user without rights has it.
Device without_rights(Device device) {
  device.io_facts.no_af_xdp = io::IoError{.code = EPERM, .what = "AF_XDP lacks CAP_BPF", .remedy = "run as root"};
  return chosen(device);
}

Device with_segmentation(net::Segmentation segmentation) {
  Device device = good_device();
  device.io_facts.features.udp_segmentation = segmentation;
  return chosen(device);
}

Device nic(net::Segmentation segmentation) {
  Device device = with_segmentation(segmentation);
  device.io_facts.to_software = false;
  return chosen(device);
}

const Finding& finding(const Report& report, const std::string& name) {
  for (const Section& section : report.sections) {
    for (const Finding& candidate : section.findings) {
      if (candidate.name == name) return candidate;
    }
  }
  static const Finding kAbsent{Status::kFail, "", "no such finding", ""};
  ADD_FAILURE() << "no finding " << name;
  return kAbsent;
}

void expect(const Report& report, const std::string& name, Status status, const std::string& text) {
  EXPECT_EQ(finding(report, name).status, status) << name;
  EXPECT_THAT(finding(report, name).text, HasSubstr(text));
}

TEST(Doctor, EverythingFine) {
  const Report report = diagnose(good_host(), {good_device()});
  EXPECT_TRUE(report.usable);
  EXPECT_THAT(report.verdict, HasSubstr("uroce_eth0"));
  for (const Section& section : report.sections) {
    for (const Finding& f : section.findings) EXPECT_EQ(f.status, Status::kOk) << f.name << ": " << f.text;
  }
}

TEST(Doctor, OrdinaryUserHasUdp) {
  const Report report = diagnose(ordinary_user(), {without_rights(good_device())});
  EXPECT_TRUE(report.usable);
  expect(report, "capabilities", Status::kWarn, "CAP_NET_RAW");
  expect(report, "memlock", Status::kWarn, "8192 KiB");
  expect(report, "io", Status::kOk, "udp (tx-udp-segmentation is on)");
  const Device slow = without_rights(nic(net::Segmentation::kNone));
  expect(diagnose(ordinary_user(), {slow}), "io", Status::kWarn, "udp (not AF_XDP: AF_XDP lacks CAP_BPF; run as root)");
  expect(diagnose(ordinary_user(), {slow}), "io", Status::kWarn, "each packet is a datagram of its own");
}

Device without_port(Device device) {
  device.no_udp = io::IoError{.code = EADDRINUSE, .what = "port 4791 on eth0: in use", .remedy = "see who it is"};
  return device;
}

// AF_XDP is no way out: it would take the packets away from who has the port.
TEST(Doctor, UdpWithoutThePortIsNothing) {
  HostFacts host = good_host();
  host.port_holders = {{.inode = 7, .process = "12 (other)"}};
  const Report report = diagnose(host, {without_port(good_device())});
  EXPECT_FALSE(report.usable);
  expect(report, "udp port 4791", Status::kWarn, "12 (other)");
  expect(report, "io", Status::kFail, "udp (tx-udp-segmentation is on), but port 4791 on eth0: in use");
  EXPECT_EQ(finding(report, "io").remedy, "see who it is");
}

TEST(Doctor, PortHoldersThatWereNotLookedAt) {
  HostFacts host = good_host();
  host.port_holders = {{.inode = 7, .process = "12 (other)"}, {.inode = 8, .process = "", .unknown = 99'000}};
  expect(diagnose(host, {good_device()}), "udp port 4791", Status::kWarn,
         "12 (other), others that were not looked at (99000 sockets or more)");
}

TEST(Doctor, ABrokerSharesThePort) {
  HostFacts host = good_host();
  host.port_holders = {{.inode = 7, .process = "12 (uroced)"}};
  host.broker.serves = "uroced 1.2, process 12";
  const Report report = diagnose(host, {good_device()});
  EXPECT_TRUE(report.usable);
  expect(report, "udp port 4791", Status::kOk, "shared by uroced 1.2, process 12");
}

TEST(Doctor, ABrokerThatRefusesIsInTheWay) {
  HostFacts host = good_host();
  host.broker.refuses = io::IoError{.code = EACCES, .what = "the broker refuses", .remedy = "join the group"};
  const Report report = diagnose(host, {good_device()});
  EXPECT_FALSE(report.usable);
  expect(report, "udp port 4791", Status::kFail, "the broker refuses");
}

TEST(Doctor, ThePortOnAnotherNetdevDoesNotMatter) {
  HostFacts host = good_host();
  host.port_holders = {{.inode = 7, .process = "12 (other)"}};
  const Report report = diagnose(host, {good_device()});
  EXPECT_TRUE(report.usable);
  expect(report, "udp port 4791", Status::kWarn, "12 (other)");
  expect(report, "io", Status::kOk, "udp");
}

TEST(Doctor, AfXdpDoesWithoutThePort) {
  HostFacts host = good_host();
  host.port_holders = {{.inode = 0, .process = ""}};
  const Report report = diagnose(host, {without_port(nic(net::Segmentation::kNone))});
  EXPECT_TRUE(report.usable);
  expect(report, "udp port 4791", Status::kWarn, "Soft-RoCE");
  expect(report, "io", Status::kOk, "af_xdp, native");
}

TEST(Doctor, NothingWhereAnotherProcessHasTheNetdev) {
  Device device = good_device();
  device.io_facts.taken = io::IoError{.code = EBUSY, .what = "another uroce process", .remedy = "one per netdev"};
  const Report report = diagnose(good_host(), {chosen(device)});
  EXPECT_FALSE(report.usable);
  expect(report, "io", Status::kFail, "none (another uroce process; one per netdev)");
}

TEST(Doctor, SegmentationThatIsMissing) {
  using net::Segmentation;
  const Report off = diagnose(good_host(), {with_segmentation(Segmentation::kOff)});
  expect(off, "segmentation", Status::kWarn, "is off, and the driver has it");
  EXPECT_EQ(finding(off, "segmentation").remedy, "ethtool -K eth0 tx-udp-segmentation on");
  Device device = with_segmentation(Segmentation::kWithdrawn);
  expect(diagnose(good_host(), {device}), "segmentation", Status::kWarn, "other end of the veth pair has native XDP");
  device.io_facts.features.driver = "tun";
  expect(diagnose(good_host(), {device}), "segmentation", Status::kWarn, "behind the tap device");
  device.io_facts.features.driver = "somenic";
  expect(diagnose(good_host(), {device}), "segmentation", Status::kWarn, "not to be had now");
  expect(diagnose(good_host(), {with_segmentation(Segmentation::kNone)}), "segmentation", Status::kOk, "has no");
}

TEST(Doctor, SegmentationDoesNotMatterWithZeroCopy) {
  Device device = nic(net::Segmentation::kOff);
  device.io_facts.xdp_mode = engine::XdpMode::kZeroCopy;
  const Report report = diagnose(good_host(), {chosen(device)});
  expect(report, "segmentation", Status::kOk, "is off");
  expect(report, "io", Status::kOk, "af_xdp, zero-copy (zero-copy)");
}

TEST(Doctor, ForeignXdpProgram) {
  Device device = good_device();
  device.io_facts.attached = io::AttachedProgram{.id = 42, .name = "dispatcher"};
  const Report report = diagnose(good_host(), {chosen(device)});
  expect(report, "xdp", Status::kWarn, "XDP program 42 (dispatcher)");
  EXPECT_THAT(finding(report, "xdp").remedy, HasSubstr("ip link set dev eth0 xdp off"));
}

TEST(Doctor, SmallReceiveBuffer) {
  HostFacts host = good_host();
  host.udp_receive_buffer = 2 * 212992;
  const Report report = diagnose(host, {good_device()});
  expect(report, "udp buffer", Status::kWarn, "room for 184 packets of 1 KiB");
  EXPECT_THAT(finding(report, "udp buffer").remedy, HasSubstr("net.core.rmem_max=8388608"));
}

TEST(Doctor, NeedsLinkAndAddress) {
  Device down = good_device();
  down.up = down.active = false;
  expect(diagnose(good_host(), {down}), "link", Status::kWarn, "down");
  EXPECT_FALSE(diagnose(good_host(), {down}).usable);
  Device bare = good_device();
  bare.gids.clear();
  expect(diagnose(good_host(), {bare}), "addresses", Status::kWarn, "no IP address");
  EXPECT_FALSE(diagnose(good_host(), {bare}).usable);
  EXPECT_TRUE(diagnose(good_host(), {down, bare, good_device()}).usable);
  EXPECT_FALSE(diagnose(good_host(), {}).usable);
}

TEST(Doctor, OldKernels) {
  HostFacts host = good_host();
  host.kernel = {5, 8};
  expect(diagnose(host, {good_device()}), "kernel", Status::kWarn, "too old");
  host.kernel = {6, 5};
  expect(diagnose(host, {good_device()}), "kernel", Status::kWarn, "multi-buffer");
  host.kernel = {6, 6};
  expect(diagnose(host, {good_device()}), "kernel", Status::kOk, "6.6");
}

TEST(Doctor, MemlockAgainstWhatAfXdpMayNeed) {
  HostFacts host = good_host();
  host.lockable_memory = 65536;
  expect(diagnose(host, {good_device()}), "memlock", Status::kWarn, "64 KiB");
  host.lockable_memory = 64 << 20;
  expect(diagnose(host, {good_device()}), "memlock", Status::kOk, "65536 KiB");
}

TEST(Doctor, MtuTooSmallFails) {
  Device device = good_device();
  device.mtu = 200;
  device.path_mtu = 0;
  const Report report = diagnose(good_host(), {device});
  expect(report, "mtu", Status::kFail, "too small");
  EXPECT_FALSE(report.usable);
}

TEST(Doctor, SoftRoceOnTheNetdev) {
  Device device = good_device();
  device.probe.rxe_device = "rxe0";
  expect(diagnose(good_host(), {device}), "soft-roce", Status::kWarn, "rxe0");
}

TEST(Doctor, MissingLibraryFails) {
  HostFacts host = good_host();
  host.library.clear();
  EXPECT_FALSE(diagnose(host, {good_device()}).usable);
}

TEST(Doctor, MissingFilesLibraryIsAWarning) {
  HostFacts host = good_host();
  host.files_library.clear();
  const Report report = diagnose(host, {good_device()});
  EXPECT_TRUE(report.usable);
  expect(report, "files", Status::kWarn, "liburoce_files.so is missing");
}

TEST(Doctor, WithoutItsModuleThereIsNoAfXdp) {
  HostFacts host = good_host();
  host.af_xdp_library.clear();
  const Report report = diagnose(host, {good_device()});
  EXPECT_TRUE(report.usable);
  expect(report, "af_xdp", Status::kWarn, "uroce_af_xdp.so is missing");
  expect(report, "io", Status::kOk, "udp");
}

TEST(Doctor, WhatDpdkNeedsIsNamedAndMissedOnlyWhereItIsAskedFor) {
  HostFacts host = good_host();
  host.dpdk.library.clear();
  expect(diagnose(host, {good_device()}), "dpdk", Status::kOk, "not needed");
  Device device = good_device();
  device.io = engine::choose_io(device.io_facts, engine::Options::Io::kDpdk);
  expect(diagnose(host, {device}), "io", Status::kFail, "uroce_dpdk.so is missing");
  host = good_host();
  expect(diagnose(host, {device}), "io", Status::kOk, "dpdk (as UROCE_IO says)");
  host.dpdk.hugepages = 7;
  host.dpdk.net_raw = false;
  expect(diagnose(host, {device}), "dpdk", Status::kOk,
         "CAP_NET_RAW is missing (for ports on netdevs), CAP_NET_ADMIN is there");
  expect(diagnose(host, {device}), "dpdk", Status::kOk, "7 free hugepages");
  expect(diagnose(host, {device}), "io", Status::kFail, "but CAP_NET_RAW is missing");
  EXPECT_FALSE(diagnose(host, {device}).usable);
  host.dpdk.net_admin = false;
  expect(diagnose(host, {device}), "io", Status::kFail, "but CAP_NET_RAW, CAP_NET_ADMIN are missing");
  host.dpdk.net_raw = true;
  expect(diagnose(host, {device}), "io", Status::kFail, "but CAP_NET_ADMIN is missing");
  host.dpdk.devargs.device = "net_tap0";
  expect(diagnose(host, {device}), "io", Status::kFail, "but CAP_NET_ADMIN is missing");
  host.dpdk.net_raw = false;
  host.dpdk.devargs.device = "net_memif0";
  expect(diagnose(host, {device}), "io", Status::kOk, "looked at 1000 to 20000 times a second");
}

TEST(Doctor, NetdevsInOneSubnet) {
  Device device = good_device();
  device.probe.same_subnet = {"eth1", "eth2"};
  expect(diagnose(good_host(), {device}), "subnet", Status::kWarn, "shared with eth1, eth2: each answers");
  device.probe.arp_ignore = 1;
  expect(diagnose(good_host(), {device}), "subnet", Status::kOk, "arp_ignore keeps them apart");
  device.probe.rp_filter = 1;
  expect(diagnose(good_host(), {device}), "subnet", Status::kWarn, "rp_filter");
  device.probe.rp_filter = 2;
  expect(diagnose(good_host(), {device}), "subnet", Status::kOk, "");
}

// A NIC, for which AF_XDP is chosen.
TEST(Doctor, UdpWhereAfXdpIsBestAndCannotBeOpened) {
  const Device device = nic(net::Segmentation::kNone);
  HostFacts host = good_host();
  expect(diagnose(host, {device}), "io", Status::kOk, "af_xdp, native");
  host.kernel = {5, 8};
  expect(diagnose(host, {device}), "io", Status::kWarn, "but the kernel is too old: UDP sockets");
  host.af_xdp_library.clear();
  expect(diagnose(host, {device}), "io", Status::kWarn, "but uroce_af_xdp.so is missing: UDP sockets");
  EXPECT_TRUE(diagnose(host, {device}).usable);
  expect(diagnose(host, {without_port(device)}), "io", Status::kFail, "but port 4791 on eth0: in use");
}

TEST(Devices, TextShowsGidsStateAndMode) {
  Device down = good_device();
  down.name = "uroce_eth10";
  down.up = down.active = false;
  const std::string text = devices_text({good_device(), down});
  EXPECT_THAT(text, HasSubstr("uroce_eth0   eth0    active  1500  1024      veth    udp\n  gid 0  192.0.2.1\n"
                              "  udp: tx-udp-segmentation is on\n"));
  EXPECT_THAT(text, HasSubstr("uroce_eth10  eth0    down "));
}

TEST(Devices, GidsAsShowGidsPrintsThem) {
  Device device = good_device();
  device.gids.resize(2);  // a place that is free
  device.gids.push_back(wire::IpAddress::v4(std::array<uint8_t, 4>{10, 0, 0, 10}.data()));
  const std::string text = gids_text({device});
  EXPECT_THAT(text,
              HasSubstr("DEVICE      PORT  INDEX  GID                                      ADDRESS    VER  NETDEV\n"
                        "uroce_eth0  1     0      0000:0000:0000:0000:0000:ffff:c000:0201  192.0.2.1  v2   eth0\n"
                        "uroce_eth0  1     2      0000:0000:0000:0000:0000:ffff:0a00:000a  10.0.0.10  v2   eth0\n"));
}

TEST(Devices, JsonSaysWhatAfXdpWouldBe) {
  EXPECT_THAT(devices_json({good_device()}),
              HasSubstr(R"("io": "udp", "why": "tx-udp-segmentation is on", "af_xdp": "native", "why_not": "")"));
  EXPECT_THAT(devices_json({without_rights(good_device())}),
              HasSubstr(R"("af_xdp": "none", "why_not": "AF_XDP lacks CAP_BPF; run as root")"));
}

TEST(Devices, JsonOfNothingIsAnEmptyArray) {
  EXPECT_EQ(devices_json({}), "[\n]\n");
}

}  // namespace
}  // namespace uroce::cli
