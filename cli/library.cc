#include "cli/library.h"

#include <filesystem>

namespace uroce::cli {

namespace fs = std::filesystem;

namespace {

std::optional<std::string> find(const char* name) {
  std::error_code error;
  const fs::path directory = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* relative : {"../lib", UROCE_RELATIVE_LIBDIR}) {
    const fs::path candidate = fs::weakly_canonical(directory / relative / name, error);
    if (!error && fs::exists(candidate, error)) return candidate.string();
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_library() {
  return find("liburoce.so");
}

std::optional<std::string> find_files_library() {
  return find("liburoce_files.so");
}

std::string preload_value(const std::string& library, const std::string& callers_preload) {
  return callers_preload.empty() ? library : callers_preload + ":" + library;
}

}  // namespace uroce::cli
