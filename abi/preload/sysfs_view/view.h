// SPDX-License-Identifier: BSD-2-Clause
// The view of this process: made when it first names one of the paths, brought up to date with every further one,
// removed when it ends. Nothing is kept open in between, because a program may close descriptors that it does not know.
// Used by redirect.cc. Thread-safe; a forked child makes a view of its own.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "abi/functions.h"

namespace uroce::files {

enum class DeviceNodes {
  kThemselves,  // "/dev/infiniband/uverbs3" is a character device
  kAsListed,    // a link to one, for those who look for names
};

// The real path behind one of the view ("sys/class/infiniband"). nullopt: there is no view: netlink cannot be read, no
// place takes the files (one line has gone to stderr), the process is about to end, or the view itself is asking.
std::optional<std::string> real_path(const std::string& path, DeviceNodes nodes);

// The rdma_cm file of this process. Null without liburoce.so.
const rdma_cm::Functions* rdma_cm_functions();
// The same, if somebody has asked before; else null.
extern std::atomic<const rdma_cm::Functions*> known_rdma_cm;

}  // namespace uroce::files
