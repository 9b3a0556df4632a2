// SPDX-License-Identifier: BSD-2-Clause
#include "devices.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <unistd.h>

namespace uroce::nccl_style {
namespace {

// What active_speed and active_width say, by the lowest bit that is set.
constexpr std::array kSpeeds{2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
constexpr std::array kLanes{1, 4, 8, 12, 2};

template <size_t kCount>
int by_lowest_bit(const std::array<int, kCount>& values, unsigned bits, const char* what) {
  if (bits == 0) throw Failure(std::string(what) + " is 0");
  const auto bit = static_cast<size_t>(__builtin_ctz(bits));
  if (bit >= kCount) throw Failure(std::string(what) + " is unknown: " + std::to_string(bits));
  return values[bit];
}

std::string directory_of(const std::string& device) {
  return "/sys/class/infiniband/" + device;
}

std::string pci_path_of(const std::string& device) {
  const std::unique_ptr<char, void (*)(void*)> path(realpath((directory_of(device) + "/device").c_str(), nullptr),
                                                    std::free);
  return path ? path.get() : "";
}

// Asked for nothing, a library without it says that it is not supported, and others that the descriptor is bad.
bool takes_dmabufs(const Symbols& verbs, ibv_context* context) {
  if (verbs.reg_dmabuf_mr == nullptr) return false;
  ibv_pd* pd = expect_made(verbs.alloc_pd(context), "ibv_alloc_pd");
  errno = 0;
  ibv_mr* none = verbs.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
  const int error = errno;
  if (none != nullptr) throw Failure("ibv_reg_dmabuf_mr takes descriptor -1");
  expect_ok(verbs.dealloc_pd(pd), "ibv_dealloc_pd");
  return error != EOPNOTSUPP && error != EPROTONOSUPPORT;
}

void add_ports(const Symbols& verbs, ibv_context* context, const std::string& name, std::vector<Device>& found) {
  ibv_device_attr attributes{};
  expect_ok(verbs.query_device(context, &attributes), "ibv_query_device");
  for (uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
    Device device{.name = name, .context = context, .port = port};
    expect_ok(verbs.query_port(context, port, &device.attributes), "ibv_query_port");
    if (device.attributes.state != IBV_PORT_ACTIVE) continue;
    if (device.attributes.link_layer != IBV_LINK_LAYER_INFINIBAND &&
        device.attributes.link_layer != IBV_LINK_LAYER_ETHERNET) {
      continue;
    }
    device.speed = by_lowest_bit(kSpeeds, device.attributes.active_speed, "active_speed") *
                   by_lowest_bit(kLanes, device.attributes.active_width, "active_width");
    device.pci_path = pci_path_of(name);
    device.dmabuf = takes_dmabufs(verbs, context);
    found.push_back(device);
  }
}

// "" if there is no such line: entries of the table that hold no GID have none.
std::string first_line(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[64];
  const ssize_t length = read(fd, text, sizeof(text));
  close(fd);
  if (length <= 0) return "";
  return {text, strnlen(text, static_cast<size_t>(length)) - (text[length - 1] == '\n')};
}

bool is_roce_v2(const Device& device, int index) {
  return first_line(directory_of(device.name) + "/ports/" + std::to_string(device.port) + "/gid_attrs/types/" +
                    std::to_string(index)) == "RoCE v2";
}

bool is_of_family(const ibv_gid& gid, bool ipv6) {
  in6_addr address{};
  static_assert(sizeof(address) == sizeof(gid));
  std::memcpy(&address, &gid, sizeof(address));
  if (IN6_IS_ADDR_UNSPECIFIED(&address) || IN6_IS_ADDR_LINKLOCAL(&address)) return false;
  return (IN6_IS_ADDR_V4MAPPED(&address) == 0) == ipv6;
}

}  // namespace

std::vector<Device> find_devices(const Symbols& verbs) {
  expect_ok(verbs.fork_init(), "ibv_fork_init");
  const char* const wanted = std::getenv("NCCL_IB_HCA");
  int count = 0;
  ibv_device** devices = expect_made(verbs.get_device_list(&count), "ibv_get_device_list");
  std::vector<Device> found;
  for (int i = 0; i < count; ++i) {
    const std::string name = verbs.get_device_name(devices[i]);
    if (wanted != nullptr && !name.starts_with(wanted)) continue;
    ibv_context* context = expect_made(verbs.open_device(devices[i]), "ibv_open_device " + name);
    const size_t before = found.size();
    add_ports(verbs, context, name, found);
    if (found.size() == before) expect_ok(verbs.close_device(context), "ibv_close_device");
  }
  verbs.free_device_list(devices);
  if (found.empty()) throw Failure("no device has an active port");
  return found;
}

int choose_gid(const Symbols& verbs, const Device& device) {
  if (const char* index = std::getenv("NCCL_IB_GID_INDEX")) return std::atoi(index);
  const char* const family = std::getenv("NCCL_IB_ADDR_FAMILY");
  const bool ipv6 = family != nullptr && std::strcmp(family, "AF_INET6") == 0;
  for (int index = 0; index < device.attributes.gid_tbl_len; ++index) {
    ibv_gid gid{};
    expect_ok(verbs.query_gid(device.context, device.port, index, &gid), "ibv_query_gid");
    if (is_of_family(gid, ipv6) && is_roce_v2(device, index)) return index;
  }
  throw Failure("no GID with RoCE v2 of this address family");
}

}  // namespace uroce::nccl_style
