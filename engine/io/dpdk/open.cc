// SPDX-License-Identifier: BSD-2-Clause
// Set-up of DpdkIo: the module and the port. The data path is in dpdk.cc.
#include <atomic>
#include <cerrno>
#include <exception>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "base/concat.h"
#include "base/thread.h"
#include "engine/io/af_xdp/privileges.h"
#include "engine/io/dpdk/dpdk.h"
#include "engine/io/dpdk/library.h"

namespace uroce::io {
namespace {

// Bytes of a frame in one buffer: those of MTU 1500 fit, or those of the largest path MTU.
constexpr uint32_t kSmallBuffer = 2048, kLargeBuffer = 8192;
constexpr uint32_t kSmallMtu = 1500;

IoError port_error(const DpdkDevargs& devargs, const std::string& what) {
  if (what.find("mmap failed") != std::string::npos) {
    return {ENOMEM, concat("DPDK port ", devargs.text(), ": its rings cannot be locked in memory (RLIMIT_MEMLOCK)"),
            "ulimit -l unlimited, CAP_IPC_LOCK, or smaller rings (framecnt=256)"};
  }
  return {ENODEV, concat("DPDK port ", devargs.text(), ": ", what),
          "uroce(1), --io, tells which ports there are and what they need"};
}

// What DPDK does not say.
std::optional<IoError> missing_rights(const DpdkDevargs& devargs) {
  const std::string missing = devargs.lacks(has_net_raw(), has_net_admin());
  if (missing.empty()) return std::nullopt;
  return IoError{EPERM, concat("DPDK port ", devargs.device, " lacks ", missing),
                 "run as root, or as another user with capabilities: sudo uroce run --user NAME, or use UDP sockets, "
                 "which need no privilege (UROCE_IO=udp)"};
}

// A memif's server that was killed leaves its socket in the file system, and the driver would not make it anew. Whoever
// listens is not disturbed.
void remove_stale_socket(const DpdkDevargs& devargs) {
  const std::string path = devargs.value("socket"), role = devargs.value("role");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool server = devargs.device.rfind("net_memif", 0) == 0 && (role == "server" || role == "master");
  if (!server || devargs.value("socket-abstract") != "no" || path.size() >= sizeof(address.sun_path)) return;
  path.copy(address.sun_path, path.size());
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (connect(socket.get(), to, sizeof(address)) != 0 && errno == ECONNREFUSED) unlink(path.c_str());
}

struct OpenedPort {
  DpdkPort* port = nullptr;
  DpdkPortInfo info{};
  DpdkText error{};
};

// In a thread of its own, because DPDK makes the one in which it starts its own: binds it to CPUs and gives it a
// number. The threads that DPDK starts take no signals, as this one.
std::variant<OpenedPort, IoError> open_port_in_thread(const DpdkCalls& calls, const DpdkDevargs& devargs,
                                                      const DpdkPortConfig& config) {
  OpenedPort opened;
  try {
    start_thread_with_rights("uroce dpdk", [&] {
      opened.port = calls.open(&config, &opened.info, &opened.error);
    }).join();
  } catch (const std::exception&) {  // no memory, or no more threads allowed
    return IoError{EAGAIN, "DPDK needs a thread and cannot have one", "see ulimit -u"};
  }
  if (opened.port == nullptr) return port_error(devargs, opened.error.text);
  return opened;
}

}  // namespace

IoResult<DpdkIo> DpdkIo::open(const DpdkConfig& config) {
  auto loaded = load_dpdk(config.module);
  if (auto* const error = std::get_if<IoError>(&loaded)) return std::move(*error);
  const DpdkCalls& calls = *std::get<const DpdkCalls*>(loaded);

  static std::atomic<uint32_t> opened_before{0};
  const uint32_t buffer_size = config.mtu <= kSmallMtu ? kSmallBuffer : kLargeBuffer;
  const DpdkDevargs devargs = complete_dpdk_devargs(config.devargs, config.netdev, buffer_size, opened_before++);
  if (std::optional<IoError> error = missing_rights(devargs)) return *error;
  remove_stale_socket(devargs);
  const std::string text = devargs.text();
  const DpdkPortConfig wanted{.devargs = text.c_str(),
                              .buffer_size = buffer_size,
                              .mtu = config.mtu,
                              .queues = devargs.queues,
                              .vlan = config.vlan,
                              .mac = config.netdev.empty() ? config.mac.data() : nullptr,
                              .first_qpn = config.qpns ? config.qpns->first : 0,
                              .qpn_count = config.qpns ? config.qpns->count : 0};
  auto result = open_port_in_thread(calls, devargs, wanted);
  if (auto* const error = std::get_if<IoError>(&result)) return std::move(*error);
  const OpenedPort& port = std::get<OpenedPort>(result);
  if (!config.netdev.empty() && port.info.ifindex != config.ifindex) {
    calls.close(port.port);
    char name[IF_NAMESIZE] = {};
    const bool has_netdev = port.info.ifindex != 0 && if_indextoname(port.info.ifindex, name) != nullptr;
    return port_error(devargs, has_netdev ? concat("it is netdev ", name, ", and the device is on ", config.netdev)
                                          : concat("it has no netdev of the kernel, as ", config.netdev, " is"));
  }
  return std::make_unique<DpdkIo>(calls, port.port, port.info, config);
}

}  // namespace uroce::io
