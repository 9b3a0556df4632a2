// The judgement of `uroce doctor` and `uroce devices` on given facts.
#include "cli/doctor.h"

#include <cerrno>
#include <gmock/gmock.h>

#include "cli/devices.h"
#include "cli/io_forecast.h"

namespace uroce::cli {
namespace {

using testing::HasSubstr;

constexpr uint8_t kAddress[4] = {192, 0, 2, 1};

HostFacts good_host() {
  return {.kernel = {6, 8},
          .af_xdp_socket_error = 0,
          .privileges = {},
          .lockable_memory = SIZE_MAX,
          .port_holders = {},
          .btf = true,
          .bpffs = true,
          .library = "/usr/lib/uroce/liburoce.so",
          .files_library = "/usr/lib/uroce/liburoce_files.so",
          .af_xdp_library = "/usr/lib/uroce/uroce_af_xdp.so"};
}

HostFacts ordinary_user() {
  HostFacts host = good_host();
  host.af_xdp_socket_error = EPERM;
  host.privileges = {.missing = "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"};
  host.lockable_memory = 8 << 20;
  return host;
}

Device good_device() {
  Device device{.name = "uroce_eth0", .netdev = "eth0", .up = true, .active = true, .mtu = 1500, .path_mtu = 1024};
  device.gids = {wire::IpAddress::v4(kAddress)};
  device.probe.features.driver = "veth";
  device.probe.features.xdp = {.native = true, .zero_copy = false, .multi_buffer = true};
  return device;
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
  const Report report = diagnose(ordinary_user(), {good_device()});
  EXPECT_TRUE(report.usable);
  expect(report, "capabilities", Status::kWarn, "CAP_NET_RAW");
  expect(report, "memlock", Status::kWarn, "8192 KiB");
  expect(report, "io", Status::kWarn, "UDP sockets");
}

TEST(Doctor, OrdinaryUserWithoutThePortHasNothing) {
  HostFacts host = ordinary_user();
  host.port_holders = {{.inode = 7, .process = "12 (other)"}};
  const Report report = diagnose(host, {good_device()});
  EXPECT_FALSE(report.usable);
  expect(report, "udp port 4791", Status::kWarn, "12 (other)");
  expect(report, "io", Status::kFail, "none");
}

TEST(Doctor, RootWithoutThePortHasAfXdp) {
  HostFacts host = good_host();
  host.port_holders = {{.inode = 0, .process = ""}};
  const Report report = diagnose(host, {good_device()});
  EXPECT_TRUE(report.usable);
  expect(report, "udp port 4791", Status::kWarn, "Soft-RoCE");
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
}

TEST(Forecast, BestModeThatTheDriverHas) {
  NetdevProbe probe;
  EXPECT_EQ(forecast_xdp(probe, {}, true), XdpMode::kGeneric);
  probe.features.xdp.native = true;
  EXPECT_EQ(forecast_xdp(probe, {}, true), XdpMode::kNative);
  probe.features.xdp.zero_copy = true;
  EXPECT_EQ(forecast_xdp(probe, {}, true), XdpMode::kZeroCopy);
}

TEST(Forecast, NoneAndWhy) {
  NetdevProbe probe;
  EXPECT_EQ(forecast_xdp(probe, {}, false), XdpMode::kNone);
  EXPECT_THAT(why_no_xdp("eth0", probe, {}, false), HasSubstr("no AF_XDP"));
  const Privileges user{.missing = "CAP_BPF"};
  EXPECT_EQ(forecast_xdp(probe, user, true), XdpMode::kNone);
  EXPECT_THAT(why_no_xdp("eth0", probe, user, true), HasSubstr("CAP_BPF"));
  EXPECT_EQ(forecast_xdp(probe, {.user_namespace = true}, true), XdpMode::kNone);
  probe.attached = io::AttachedProgram{.id = 42, .name = "dispatcher"};
  EXPECT_EQ(forecast_xdp(probe, {}, true), XdpMode::kNone);
  EXPECT_THAT(why_no_xdp("eth0", probe, {}, true), HasSubstr("ip link set dev eth0 xdp off"));
  probe.attached.reset();
  EXPECT_EQ(why_no_xdp("eth0", probe, {}, true), "");
}

TEST(Devices, TextShowsGidsStateAndMode) {
  Device down = good_device();
  down.name = "uroce_eth10";
  down.up = down.active = false;
  const std::string text = devices_text({good_device(), down}, {}, true);
  EXPECT_THAT(text, HasSubstr("uroce_eth0   eth0    active  1500  1024      veth    native\n  gid 0  192.0.2.1\n"));
  EXPECT_THAT(text, HasSubstr("uroce_eth10  eth0    down "));
}

TEST(Devices, JsonOfNothingIsAnEmptyArray) {
  EXPECT_EQ(devices_json({}, {}, true), "[\n]\n");
}

}  // namespace
}  // namespace uroce::cli
