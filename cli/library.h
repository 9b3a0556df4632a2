// Where liburoce.so and liburoce_files.so lie, and how they get into a program. Used by run and doctor.
#pragma once

#include <optional>
#include <string>

namespace uroce::cli {

// liburoce.so beside this executable: ../lib of a build tree, or the library directory of an installation.
std::optional<std::string> find_library();

// liburoce_files.so, which shows programs /sys/class/infiniband and /dev/infiniband (files/); in the same place.
std::optional<std::string> find_files_library();

// The LD_PRELOAD value: what the caller preloads stays, and stays first (a sanitizer's run-time library insists on it).
std::string preload_value(const std::string& library, const std::string& callers_preload);

}  // namespace uroce::cli
