// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/redirect.h"

#include <cerrno>
#include <new>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/preload/sysfs_view/path_map.h"

namespace uroce::files {
namespace {

// Which of the directories that lead to the view `directory` is, if any.
std::optional<Base> base_of(int directory) {
  struct stat here {};
  if ((directory == AT_FDCWD ? stat(".", &here) : fstat(directory, &here)) != 0) return std::nullopt;
  for (const Base base : kBases) {
    struct stat there {};
    if (stat(base_path(base), &there) == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino) return base;
  }
  return std::nullopt;
}

std::optional<Place> place_of(int directory, const char* path) {
  if (*path == '/') return find_place(path, Base::kRoot);
  if (!may_lead_inside(path)) return std::nullopt;
  const auto base = base_of(directory);
  return base ? find_place(path, *base) : std::nullopt;
}

}  // namespace

void Redirect::consider(int directory, DeviceNodes nodes) {
  const int error = errno;
  try {
    auto place = place_of(directory, path_);
    if (place && !place->inside) {
      changed_ = std::move(place->path);
      path_ = changed_.c_str();
    } else if (place) {
      if (auto real = real_path(place->path, nodes)) {
        const bool device = nodes == DeviceNodes::kThemselves && real->compare(0, 5, "/dev/") == 0 &&
                            real->compare(0, 9, "/dev/null") == 0;
        changed_ = std::move(*real);
        name_ = "/" + place->path;
        path_ = changed_.c_str();
        kind_ = device ? Kind::kDevice : Kind::kFile;
      }
    }
  } catch (const std::bad_alloc&) {
    // The program finds what the kernel has.
  }
  errno = error;
}

// As sysfs does, whatever the rights of the process.
bool Redirect::refuses(bool to_write, bool to_make) const {
  if (kind_ != Kind::kFile) return false;
  const int error = errno;
  const bool refused = to_make || (to_write && access(path_, F_OK) == 0);
  errno = refused ? EACCES : error;
  return refused;
}

}  // namespace uroce::files
