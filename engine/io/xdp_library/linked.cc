// SPDX-License-Identifier: BSD-2-Clause
// For programs that are linked with libbpf and libxdp: tests, `uroce` itself. The only function in this file:
// liburoce.so has another one, and the linker does not take this from the archive then.
#include "engine/io/xdp_library/xdp_library.h"

namespace uroce::io {

std::optional<IoError> load_xdp_library() {
  return std::nullopt;
}

}  // namespace uroce::io
