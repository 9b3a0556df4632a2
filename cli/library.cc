// SPDX-License-Identifier: BSD-2-Clause
#include "cli/library.h"

#include <filesystem>

namespace uroce::cli {

namespace fs = std::filesystem;

namespace {

fs::path beside_this_program(const char* relative) {
  std::error_code error;
  return fs::weakly_canonical(fs::read_symlink("/proc/self/exe", error).parent_path() / relative, error);
}

std::optional<std::string> find(const char* name) {
  for (const char* relative : {"../lib/uroce", UROCE_RELATIVE_LIBDIR}) {
    std::error_code error;
    const fs::path candidate = beside_this_program(relative) / name;
    if (fs::exists(candidate, error)) return candidate.string();
  }
  return std::nullopt;
}

}  // namespace

std::string library_directory() {
  return beside_this_program(UROCE_RELATIVE_LIBDIR).string();
}

std::optional<std::string> find_library() {
  return find("liburoce.so");
}

std::optional<std::string> find_files_library() {
  return find("liburoce_files.so");
}

std::optional<std::string> find_af_xdp_library() {
  return find("uroce_af_xdp.so");
}

std::optional<std::string> find_dpdk_library() {
  return find("uroce_dpdk.so");
}

std::optional<std::string> find_broker_program() {
  std::error_code error;
  const fs::path candidate = beside_this_program("uroced");
  return fs::exists(candidate, error) ? std::optional(candidate.string()) : std::nullopt;
}

std::string preload_value(const std::string& library, const std::string& callers_preload) {
  return callers_preload.empty() ? library : callers_preload + ":" + library;
}

std::string search_path_value(const std::string& library, const std::string& callers_search_path) {
  const std::string directory = fs::path(library).parent_path().string();
  // An empty word at the end would be the current directory.
  return callers_search_path.empty() ? directory : directory + ":" + callers_search_path;
}

}  // namespace uroce::cli
