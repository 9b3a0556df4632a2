// SPDX-License-Identifier: BSD-2-Clause
// For liburoce.so: libbpf, libxdp and what these need are loaded when AF_XDP is opened, not into every process that has
// liburoce.so. The functions below have the names of theirs and stand in front of them when liburoce.so is linked.
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <string>

#include "engine/io/af_xdp/xdp_library/calls.h"
#include "engine/io/af_xdp/xdp_library/xdp_library.h"

namespace uroce::io {
namespace {

constexpr const char* kModule = "uroce_af_xdp.so";

std::atomic<const XdpCalls*> calls{nullptr};

// Beside liburoce.so, wherever a link leads to it from. The loader is asked to find it ($ORIGIN) only where it knows
// liburoce.so by a relative path, because that is none of a process with more rights than its caller.
std::string module_path() {
  Dl_info info{};
  if (dladdr(&calls, &info) != 0 && info.dli_fname[0] == '/') {
    const std::unique_ptr<char, void (*)(void*)> path(realpath(info.dli_fname, nullptr), std::free);
    if (path) return std::string(path.get()).substr(0, std::string(path.get()).rfind('/') + 1) + kModule;
  }
  return std::string("$ORIGIN/") + kModule;
}

}  // namespace

std::optional<IoError> load_xdp_library() {
  if (calls.load(std::memory_order_acquire) != nullptr) return std::nullopt;
  void* module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
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
