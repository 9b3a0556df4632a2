// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/dpdk/library.h"

#include <cerrno>
#include <dlfcn.h>
#include <string_view>

#include "engine/io/module_path.h"

namespace uroce::io {

std::variant<const DpdkCalls*, IoError> load_dpdk(const std::string& path) {
  const std::string file = path.empty() ? module_path(kDpdkModule) : path;
  void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const void* const table = module == nullptr ? nullptr : dlsym(module, "uroce_dpdk_calls");
  if (table == nullptr) {
    return IoError{
        ENOENT, std::string("DPDK cannot be loaded: ") + dlerror(),
        "build uroce where libdpdk-dev is installed, and install its component dpdk (cmake --install), or use "
        "another packet I/O (UROCE_IO=auto)"};
  }
  const auto* const calls = static_cast<const DpdkCalls*>(table);
  if (std::string_view(calls->interface) == UROCE_DPDK_INTERFACE) return calls;
  return IoError{ENOEXEC, file + " is of another build of uroce", "install uroce as a whole"};
}

}  // namespace uroce::io
