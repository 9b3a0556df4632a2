// What devices and doctor say of a netdev besides what decides on its packet I/O (engine/device/io_choice.h). Reads
// only, needs no privilege.
#pragma once

#include <cstdint>
#include <string>

namespace uroce::cli {

struct NetdevProbe {
  uint32_t queues = 1;     // receive queues
  std::string rxe_device;  // "rxe0": a Soft-RoCE device of the kernel on this netdev; empty: none
};

NetdevProbe probe_netdev(const std::string& name);

}  // namespace uroce::cli
