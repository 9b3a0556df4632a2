// SPDX-License-Identifier: BSD-2-Clause
// Where liburoce.so and liburoce_files.so lie, and how they get into a program. Used by run and doctor.
//
// They lie in a directory of their own, lib/uroce beside bin. There liburoce.so is called libibverbs.so.1 and
// libibverbs.so as well: preloaded, it is found by whoever asks for its SONAME; with the directory in LD_LIBRARY_PATH
// also by dlopen("libibverbs.so"), for which the loader looks for a file of that name and then sees that it has that
// file.
#pragma once

#include <optional>
#include <string>

namespace uroce::cli {

// Where they have to be.
std::string library_directory();

// What to do when they are not there.
inline constexpr const char* kHowToGetLibraries =
    "build all of it (tools/build), or install it anew (cmake --install); bin and lib/uroce belong together";

// liburoce.so beside this executable: of a build tree, or of an installation.
std::optional<std::string> find_library();

// liburoce_files.so, which shows programs /sys/class/infiniband and /dev/infiniband (abi/preload/); in the same place.
std::optional<std::string> find_files_library();

// uroce_af_xdp.so, which liburoce.so loads when it opens AF_XDP; in the same place.
std::optional<std::string> find_af_xdp_library();
// uroce_dpdk.so, which it loads for --io dpdk. Not there where uroce was built without DPDK.
std::optional<std::string> find_dpdk_library();
// uroced.
std::optional<std::string> find_broker_program();

// The LD_PRELOAD value: what the caller preloads stays, and stays first (a sanitizer's run-time library insists on it).
std::string preload_value(const std::string& library, const std::string& callers_preload);

// The LD_LIBRARY_PATH value: the library's directory, and behind it what the caller has.
std::string search_path_value(const std::string& library, const std::string& callers_search_path);

}  // namespace uroce::cli
