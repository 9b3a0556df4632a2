#include "cli/library.h"

#include <filesystem>

namespace uroce::cli {

namespace fs = std::filesystem;

std::optional<std::string> find_library() {
  std::error_code error;
  const fs::path directory = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* relative : {"../lib", UROCE_RELATIVE_LIBDIR}) {
    const fs::path candidate = fs::weakly_canonical(directory / relative / "liburoce.so", error);
    if (!error && fs::exists(candidate, error)) return candidate.string();
  }
  return std::nullopt;
}

std::string preload_value(const std::string& library, const std::string& callers_preload) {
  return callers_preload.empty() ? library : callers_preload + ":" + library;
}

}  // namespace uroce::cli
