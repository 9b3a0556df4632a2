// SPDX-License-Identifier: BSD-2-Clause
// For liburoce.so: libbpf, libxdp and what these need are loaded when they are needed, not into every process that has
// liburoce.so. The functions below have the names of theirs and stand in front of them when liburoce.so is linked.
#include <atomic>
#include <cassert>
#include <cerrno>
#include <dlfcn.h>
#include <string>

#include "engine/io/module_path.h"
#include "engine/io/xdp_library/calls.h"
#include "engine/io/xdp_library/xdp_library.h"

namespace uroce::io {
namespace {

constexpr const char* kModule = "uroce_af_xdp.so";

std::atomic<const XdpCalls*> calls{nullptr};

}  // namespace

std::optional<IoError> load_xdp_library() {
  if (calls.load(std::memory_order_acquire) != nullptr) return std::nullopt;
  void* module = dlopen(module_path(kModule).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const void* table = module == nullptr ? nullptr : dlsym(module, "uroce_xdp_calls");
  if (table == nullptr) {
    return IoError{
        ENOENT, std::string("libbpf and libxdp cannot be loaded: ") + dlerror(),
        "install uroce as a whole and both libraries (Debian: libxdp1), or use UDP sockets, which need neither "
        "(UROCE_IO=udp)"};
  }
  calls.store(static_cast<const XdpCalls*>(table), std::memory_order_release);
  return std::nullopt;
}

}  // namespace uroce::io

#define UROCE_FORWARD(result, name, parameters, arguments)                                \
  extern "C" result name parameters {                                                     \
    const uroce::io::XdpCalls* loaded = uroce::io::calls.load(std::memory_order_acquire); \
    assert(loaded != nullptr);                                                            \
    return loaded->name arguments;                                                        \
  }
UROCE_XDP_CALLS(UROCE_FORWARD)
#undef UROCE_FORWARD
