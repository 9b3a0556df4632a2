// SPDX-License-Identifier: BSD-2-Clause
// What stands under /sys/class/infiniband, /sys/class/infiniband_verbs, /sys/class/infiniband_mad and /dev/infiniband,
// as a value: made from netdevs, compared and written by tree.cc. Formats are those of Linux's drivers/infiniband/core
// (sysfs.c, uverbs_main.c) as its users read them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/net/net_view.h"

namespace uroce::files {

struct Node {
  enum class Kind { kDirectory, kFile, kLink };
  Kind kind = Kind::kDirectory;
  std::string text{};  // of a file, or the target of a link

  friend bool operator==(const Node&, const Node&) = default;
};

// By path without a slash in front, "sys/class/infiniband"; a directory comes before what is in it.
using Contents = std::map<std::string, Node>;

struct Device {
  net::Netdev netdev;
  std::string name;                          // engine::device_name()
  std::map<std::string, uint64_t> counters;  // by file, "hw_counters/out_of_sequence"
  std::string hardware;  // directory in sysfs of the bus device below the netdev (PCI, virtio); empty: there is none
};

// The CPUs as sysfs prints them, for devices without hardware: all are as near as any other.
struct Cpus {
  std::string list;  // "0-1"
  std::string mask;  // "00000003"
};

// With the names of the rdma_cm file, where there is one to open.
enum class RdmaCm : bool { kAbsent, kPresent };
Contents describe(const std::vector<Device>& devices, const Cpus& cpus, RdmaCm rdma_cm = RdmaCm::kAbsent);

// The mask of a list of CPUs: "0-2,33" -> "00000002,00000007". Empty when it is no list.
std::string cpu_mask(std::string_view list);

// As sysfs prints it: "52:54:00:12:34:56".
std::string mac_text(const wire::MacAddress& mac);

// A path of the view that stands for a character device: "dev/infiniband/uverbs3".
bool is_device_node(std::string_view path);

}  // namespace uroce::files
