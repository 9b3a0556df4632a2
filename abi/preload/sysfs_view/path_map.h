// SPDX-License-Identifier: BSD-2-Clause
// Which paths belong to the view: pure text, no look at any file. Used by redirect.cc for every path that a program
// names, and by the hooks that hand paths back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace uroce::files {

// A directory from which a relative path may lead into the view.
enum class Base { kRoot, kSys, kSysClass, kDev };
inline constexpr Base kBases[] = {Base::kRoot, Base::kSys, Base::kSysClass, Base::kDev};
const char* base_path(Base base);

struct Place {
  bool inside = false;  // of the view; false: the path went in and out again ("/sys/class/infiniband/../net")
  std::string path;     // inside: from the view's root, "sys/class/infiniband/uroce_eth0"; else the absolute path
};

// Where `path` leads; nullopt: it has nothing to do with the view. Absolute paths start at the root whatever `base`.
// What comes behind the view's own directories is left as it is: the kernel resolves it there.
std::optional<Place> find_place(std::string_view path, Base base);

// May a relative path lead into the view at all? If not, nobody needs to find out from where it starts.
bool may_lead_inside(std::string_view relative_path);

}  // namespace uroce::files
