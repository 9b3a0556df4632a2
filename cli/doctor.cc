// SPDX-License-Identifier: BSD-2-Clause
#include "cli/doctor.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include "broker/client/link.h"
#include "cli/devices.h"
#include "cli/library.h"
#include "engine/io/af_xdp/privileges.h"

namespace uroce::cli {
namespace {

using engine::IoKind;
using engine::XdpMode;
using net::Segmentation;

constexpr KernelVersion kKernelWithXdpLink{5, 9};      // XDP bpf_link: detaches when its process ends
constexpr KernelVersion kKernelWithMultiBuffer{6, 6};  // multi-buffer AF_XDP
constexpr unsigned kDpdkHugepages = 128;               // engine/io/dpdk/module/eal.cc
constexpr const char* kHowToGetDpdk =
    "build uroce where libdpdk-dev is installed (cmake says: with --io dpdk), and install its component dpdk";
constexpr size_t kPacketMemory = size_t{64} << 20;  // what AF_XDP locks at most (engine/io/af_xdp/open.cc)

Finding check_kernel(const HostFacts& host) {
  const std::string version = fmt::format("Linux {}.{}", host.kernel.major, host.kernel.minor);
  if (host.kernel < kKernelWithXdpLink) {
    return {Status::kWarn, "kernel", version + " is too old for AF_XDP with uroce (no XDP bpf_link)",
            "use Linux 5.9 or later, or UDP sockets (--io udp)"};
  }
  if (host.kernel < kKernelWithMultiBuffer) {
    return {Status::kWarn, "kernel", version + " has no multi-buffer AF_XDP: path MTU 4096 is not possible with AF_XDP",
            "Linux 6.6 or later if you need path MTU 4096"};
  }
  return {Status::kOk, "kernel", version, ""};
}

Finding check_af_xdp(const HostFacts& host) {
  if (host.af_xdp_library.empty()) {
    return {Status::kWarn, "af_xdp", "uroce_af_xdp.so is missing, so there are only UDP sockets", kHowToGetLibraries};
  }
  switch (host.af_xdp_socket_error) {
    case 0:
      return {Status::kOk, "af_xdp", "an AF_XDP socket can be created", ""};
    case EAFNOSUPPORT:
      return {Status::kWarn, "af_xdp", "the kernel has no AF_XDP", "a kernel with CONFIG_XDP_SOCKETS, or --io udp"};
    default:
      return {Status::kWarn, "af_xdp",
              fmt::format("an AF_XDP socket cannot be created: {}", std::strerror(host.af_xdp_socket_error)),
              "run with sudo, or use UDP sockets (--io udp)"};
  }
}

Finding check_dpdk(const HostFacts& host) {
  const DpdkFacts& dpdk = host.dpdk;
  if (dpdk.library.empty()) {
    return {Status::kOk, "dpdk", "uroce_dpdk.so is not there (built without libdpdk-dev), so no --io dpdk; not needed",
            ""};
  }
  return {
      Status::kOk, "dpdk",
      fmt::format("for --io dpdk: {}; CAP_NET_RAW {} (for ports on netdevs), CAP_NET_ADMIN {} (for these and net_tap); "
                  "{} free hugepages of 2 MiB, used from {} on",
                  dpdk.library, dpdk.net_raw ? "is there" : "is missing", dpdk.net_admin ? "is there" : "is missing",
                  dpdk.hugepages, kDpdkHugepages),
      ""};
}

Finding check_privileges(const HostFacts& host) {
  if (host.privileges.af_xdp()) {
    return {Status::kOk, "capabilities", "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF are there", ""};
  }
  return {Status::kWarn, "capabilities", privilege_problem(host.privileges), ""};
}

Finding check_memlock(const HostFacts& host) {
  if (host.lockable_memory == SIZE_MAX) return {Status::kOk, "memlock", "no limit", ""};
  const std::string limit = fmt::format("RLIMIT_MEMLOCK is {} KiB", host.lockable_memory / 1024);
  if (host.lockable_memory >= kPacketMemory) return {Status::kOk, "memlock", limit, ""};
  return {Status::kWarn, "memlock", fmt::format("{}; AF_XDP locks up to {} KiB", limit, kPacketMemory / 1024),
          "ulimit -l unlimited (for good: memlock in /etc/security/limits.conf), or CAP_IPC_LOCK"};
}

std::string name_of(const PortHolder& holder) {
  if (holder.inode == 0) return "the kernel (Soft-RoCE, rdma_rxe)";
  if (holder.unknown == 1) return "others that were not looked at";
  if (holder.unknown > 1) return fmt::format("others that were not looked at ({} sockets or more)", holder.unknown);
  return holder.process.empty() ? "a process of another user" : "process " + holder.process;
}

Finding check_port(const HostFacts& host) {
  const BrokerFacts& broker = host.broker;
  if (broker.refuses) return {Status::kFail, "udp port 4791", broker.refuses->what, broker.refuses->remedy};
  if (!broker.serves.empty()) return {Status::kOk, "udp port 4791", "shared by " + broker.serves, ""};
  if (host.port_holders.empty()) return {Status::kOk, "udp port 4791", "free", ""};
  std::string holders;
  bool kernel = false;
  for (const PortHolder& holder : host.port_holders) {
    kernel |= holder.inode == 0;
    holders += (holders.empty() ? "" : ", ") + name_of(holder);
  }
  return {Status::kWarn, "udp port 4791", "in use by " + holders,
          kernel ? "rdma link delete the Soft-RoCE devices: they and uroce cannot share a netdev"
                 : "UDP sockets on the same netdev cannot have it: end that process first (ss -lunp sport = :4791)"};
}

Finding check_udp_buffer(const HostFacts& host) {
  constexpr size_t kPacketCost = 2304;  // of one with 1 KiB (docs/reference/udp-sockets.md "Receive buffers")
  const std::string text = fmt::format("room for {} packets of 1 KiB", host.udp_receive_buffer / kPacketCost);
  if (host.udp_receive_buffer >= 2 * io::kUdpBufferSize) return {Status::kOk, "udp buffer", text, ""};
  return {
      Status::kWarn, "udp buffer", text + " in the receive buffer of a UDP socket; longer bursts are lost",
      fmt::format("sysctl -w net.core.rmem_max={} (for good: in /etc/sysctl.d), or CAP_NET_ADMIN", io::kUdpBufferSize)};
}

Finding check_library(const HostFacts& host) {
  if (!host.library.empty()) return {Status::kOk, "library", host.library, ""};
  return {Status::kFail, "library", fmt::format("there is no liburoce.so in {}", library_directory()),
          kHowToGetLibraries};
}

Finding check_files(const HostFacts& host) {
  if (!host.files_library.empty()) return {Status::kOk, "files", host.files_library, ""};
  return {
      Status::kWarn, "files",
      "liburoce_files.so is missing: no /sys/class/infiniband and /dev/infiniband for programs that look there (UCX)",
      kHowToGetLibraries};
}

Section host_section(const HostFacts& host) {
  return {"host",
          {check_library(host),
           check_files(host),
           check_kernel(host),
           check_af_xdp(host),
           check_dpdk(host),
           check_privileges(host),
           check_memlock(host),
           {Status::kOk, "bpffs", fmt::format("{}mounted; not needed", host.bpffs ? "" : "not "), ""},
           {Status::kOk, "btf", fmt::format("kernel BTF is {}; not needed", host.btf ? "there" : "missing"), ""},
           check_udp_buffer(host),
           check_port(host)}};
}

Finding check_link(const Device& device) {
  if (device.active) return {Status::kOk, "link", "up", ""};
  if (!device.up) return {Status::kWarn, "link", "down", fmt::format("ip link set dev {} up", device.netdev)};
  return {Status::kWarn, "link", "up, but no carrier", "check the cable, or the peer's end"};
}

Finding check_gids(const Device& device) {
  std::vector<wire::IpAddress> gids = device.gids;
  std::erase(gids, wire::IpAddress{});  // empty entries
  if (!gids.empty()) {
    return {Status::kOk, "addresses", fmt::format("{} GIDs, the first is {}", gids.size(), gids.front().text()), ""};
  }
  return {Status::kWarn, "addresses", "no IP address, so no GID",
          fmt::format("ip address add ADDRESS/PREFIX dev {}", device.netdev)};
}

Finding check_mtu(const Device& device, KernelVersion kernel) {
  if (device.path_mtu == 0) {
    return {Status::kFail, "mtu", fmt::format("{} is too small for RoCE", device.mtu),
            fmt::format("ip link set dev {} mtu 1500", device.netdev)};
  }
  const std::string text = fmt::format("{}, so path MTU {}", device.mtu, device.path_mtu);
  const bool multi_buffer = device.io_facts.features.xdp.multi_buffer && kernel >= kKernelWithMultiBuffer;
  if (device.path_mtu == 4096 && !multi_buffer && device.io.kind == IoKind::kAfXdp) {
    return {Status::kWarn, "mtu", text + "; with AF_XDP less, since multi-buffer is missing in the kernel or driver",
            ""};
  }
  return {Status::kOk, "mtu", text, ""};
}

Finding check_driver(const Device& device) {
  const net::NetdevFeatures& features = device.io_facts.features;
  const std::string text = fmt::format("{}, {} receive queue{}", features.driver.empty() ? "unknown" : features.driver,
                                       device.probe.queues, device.probe.queues == 1 ? "" : "s");
  if (features.xdp.zero_copy) return {Status::kOk, "driver", text + ", XDP zero-copy", ""};
  if (features.xdp.native) return {Status::kOk, "driver", text + ", native XDP", ""};
  if (device.io.kind != IoKind::kAfXdp) return {Status::kOk, "driver", text + ", no native XDP", ""};
  return {Status::kWarn, "driver", text + ", no native XDP: AF_XDP in generic mode, slower", ""};
}

Finding segmentation_withdrawn(const Device& device) {
  const std::string text = "tx-udp-segmentation is turned on, but not to be had now";
  if (device.io_facts.features.driver == "veth") {
    return {Status::kWarn, "segmentation", text + ": the other end of the veth pair has native XDP",
            "run uroce there with --io udp, or end what uses XDP there"};
  }
  if (device.io_facts.features.driver == "tun") {
    return {Status::kWarn, "segmentation", text + ": who is behind the tap device does not take it",
            "a virtual machine whose virtio-net has USO"};
  }
  return {Status::kWarn, "segmentation", text, ""};
}

Finding check_segmentation(const Device& device) {
  switch (device.io_facts.features.udp_segmentation) {
    case Segmentation::kOn:
      return {Status::kOk, "segmentation", "tx-udp-segmentation is on", ""};
    case Segmentation::kWithdrawn:
      return segmentation_withdrawn(device);
    case Segmentation::kOff:
      return {device.io.kind == IoKind::kAfXdp && device.io_facts.xdp_mode == XdpMode::kZeroCopy ? Status::kOk
                                                                                                 : Status::kWarn,
              "segmentation", "tx-udp-segmentation is off, and the driver has it",
              fmt::format("ethtool -K {} tx-udp-segmentation on", device.netdev)};
    default:
      return {Status::kOk, "segmentation", "the driver has no tx-udp-segmentation", ""};
  }
}

Finding foreign_program(const Device& device) {
  const io::AttachedProgram& program = *device.io_facts.attached;
  return {
      Status::kWarn, "xdp",
      fmt::format("XDP program {}{} is attached: no AF_XDP, and where it runs in the driver of a veth or virtio-net, "
                  "who sends to it has lost segmentation offload",
                  program.id, program.name.empty() ? "" : " (" + program.name + ")"),
      fmt::format("if nothing needs it: ip link set dev {} xdp off", device.netdev)};
}

// What shows only when AF_XDP is opened: the choice does not foresee it.
std::string af_xdp_lacks(const HostFacts& host) {
  if (host.af_xdp_library.empty()) return "uroce_af_xdp.so is missing";
  if (host.kernel < kKernelWithXdpLink) return "the kernel is too old";
  return "";
}

Finding check_dpdk_port(const std::string& choice, const DpdkFacts& dpdk) {
  if (dpdk.library.empty()) return {Status::kFail, "io", choice + ", but uroce_dpdk.so is missing", kHowToGetDpdk};
  if (const std::string missing = dpdk.devargs.lacks(dpdk.net_raw, dpdk.net_admin); !missing.empty()) {
    return {
        Status::kFail, "io",
        fmt::format("{}, but {} {} missing", choice, missing, missing.find(',') == std::string::npos ? "is" : "are"),
        "run with sudo, or use UDP sockets (--io udp)"};
  }
  const std::string sleep =
      dpdk.devargs.can_sleep() ? "" : "; looked at 1000 to 20000 times a second while nobody polls";
  return {Status::kOk, "io", choice + sleep, ""};
}

// UDP without runs is slow.
Finding check_io(const Device& device, const HostFacts& host) {
  std::string text = fmt::format("{} ({})", io_name(device), device.io.why);
  if (device.io.kind == IoKind::kNone) return {Status::kFail, "io", text, ""};
  if (device.io.kind == IoKind::kDpdk) return check_dpdk_port(text, host.dpdk);
  const std::string lacks = device.io.kind == IoKind::kAfXdp ? af_xdp_lacks(host) : "";
  if (device.io.kind == IoKind::kAfXdp && lacks.empty()) return {Status::kOk, "io", text, ""};
  if (!lacks.empty()) text += ", but " + lacks + ": UDP sockets, or with --io af_xdp none";
  if (device.no_udp) return {Status::kFail, "io", text + ", but " + device.no_udp->what, device.no_udp->remedy};
  const bool runs = device.io_facts.features.udp_segmentation == Segmentation::kOn;
  if (!runs) text += "; without segmentation offload each packet is a datagram of its own, which is slow";
  return {runs && lacks.empty() ? Status::kOk : Status::kWarn, "io", text, ""};
}

// Two netdevs in one subnet: ARP tells peers the MAC address of either for the address of each.
Finding check_subnet(const Device& device) {
  std::string others;
  for (const std::string& name : device.probe.same_subnet) others += (others.empty() ? "" : ", ") + name;
  const std::string text = fmt::format("shared with {}", others);
  if (device.probe.arp_ignore == 0) {
    return {Status::kWarn, "subnet",
            text + ": each answers for the other's addresses, and what comes in there is dropped",
            "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, or a subnet for each"};
  }
  if (device.probe.rp_filter == 1) {
    return {Status::kWarn, "subnet", text + ": the kernel drops what comes in where it would not send to (rp_filter)",
            fmt::format("sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{}.rp_filter=2", device.netdev)};
  }
  return {Status::kOk, "subnet", text + "; arp_ignore keeps them apart", ""};
}

Section device_section(const Device& device, const HostFacts& host) {
  Section section{fmt::format("netdev {} (device {})", device.netdev, device.name),
                  {check_link(device), check_gids(device), check_mtu(device, host.kernel), check_driver(device),
                   check_segmentation(device)}};
  if (!device.probe.same_subnet.empty()) section.findings.push_back(check_subnet(device));
  if (device.io_facts.attached && !device.io_facts.attached->is_ours()) {
    section.findings.push_back(foreign_program(device));
  }
  if (!device.probe.rxe_device.empty()) {
    section.findings.push_back(
        {Status::kWarn, "soft-roce",
         fmt::format("the kernel's {} is on this netdev and takes its packets", device.probe.rxe_device),
         fmt::format("rdma link delete {}", device.probe.rxe_device)});
  }
  section.findings.push_back(check_io(device, host));
  return section;
}

bool has_failure(const Section& section) {
  for (const Finding& finding : section.findings) {
    if (finding.status == Status::kFail) return true;
  }
  return false;
}

DpdkFacts collect_dpdk_facts() {
  const char* const variable = secure_getenv("UROCE_IO");
  const std::string_view wanted = variable == nullptr ? "" : variable;
  constexpr std::string_view kPort = "dpdk:";
  std::optional<io::DpdkDevargs> devargs;
  if (wanted.substr(0, kPort.size()) == kPort)
    devargs = io::parse_dpdk_devargs(std::string(wanted.substr(kPort.size())));
  unsigned hugepages = 0;
  const std::string text = read_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  std::from_chars(text.data(), text.data() + text.size(), hugepages);
  return {.library = find_dpdk_library().value_or(""),
          .net_raw = io::has_net_raw(),
          .net_admin = io::has_net_admin(),
          .hugepages = hugepages,
          .devargs = devargs.value_or(io::DpdkDevargs())};
}

BrokerFacts find_broker() {
  const char* const address = secure_getenv("UROCE_BROKER");
  auto link = broker::Link::open(address != nullptr ? address : "", nullptr);
  if (auto* const error = std::get_if<io::IoError>(&link)) return {.serves = "", .refuses = std::move(*error)};
  const auto& found = std::get<std::shared_ptr<broker::Link>>(link);
  return {.serves = found ? found->description() : "", .refuses = {}};
}

}  // namespace

HostFacts collect_host_facts() {
  struct statfs bpffs {};
  const BrokerFacts broker = find_broker();
  return {.kernel = kernel_version(),
          .af_xdp_socket_error = af_xdp_socket_error(),
          .privileges = current_privileges(),
          .lockable_memory = io::lockable_memory(),
          .udp_receive_buffer = io::udp_receive_buffer(),
          .port_holders = broker.found() ? std::vector<PortHolder>() : roce_port_holders(),
          .broker = broker,
          .btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0,
          .bpffs = statfs("/sys/fs/bpf", &bpffs) == 0 && bpffs.f_type == BPF_FS_MAGIC,
          .library = find_library().value_or(""),
          .files_library = find_files_library().value_or(""),
          .af_xdp_library = find_af_xdp_library().value_or(""),
          .dpdk = collect_dpdk_facts()};
}

Report diagnose(const HostFacts& host, const std::vector<Device>& devices) {
  Report report;
  report.sections.push_back(host_section(host));
  std::string usable;
  for (const Device& device : devices) {
    report.sections.push_back(device_section(device, host));
    const bool works = device.active && !device.gids.empty() && !has_failure(report.sections.back());
    if (works) usable += (usable.empty() ? "" : ", ") + device.name;
  }
  report.usable = !usable.empty() && !has_failure(report.sections.front());
  if (report.usable) {
    report.verdict = "usable: " + usable + (host.no_devices.empty() ? "" : "; " + host.no_devices);
  } else if (devices.empty()) {
    report.verdict = "not usable: " + host.no_devices;
  } else {
    report.verdict = "not usable: no device with link, address and packet I/O; see above";
  }
  return report;
}

}  // namespace uroce::cli
