// SPDX-License-Identifier: BSD-2-Clause
// One path that a program names, on its way to the kernel: the path of the view's file when it is one of the view's,
// else unchanged. Made and dropped within a hook.
#pragma once

#include <cstring>
#include <fcntl.h>
#include <string>

#include "abi/preload/sysfs_view/view.h"

namespace uroce::files {

class Redirect {
 public:
  // `directory` as for openat(). Any other path costs a look at its text: all of the view's have one of these words.
  Redirect(int directory, const char* path, DeviceNodes nodes = DeviceNodes::kThemselves) : path_(path) {
    if (path == nullptr) return;
    if (std::strstr(path, "infiniband") != nullptr || std::strstr(path, "rdma_cm") != nullptr) {
      consider(directory, nodes);
    }
  }
  explicit Redirect(const char* path, DeviceNodes nodes = DeviceNodes::kThemselves) : Redirect(AT_FDCWD, path, nodes) {}
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

  // Absolute when changed, so that it is the same with any directory in front.
  const char* path() const { return path_; }
  bool is_in_view() const { return kind_ != Kind::kElsewhere; }
  bool is_device() const { return kind_ == Kind::kDevice; }
  // What programs call it: "/sys/class/infiniband/...". Of a path in the view.
  const std::string& name() const { return name_; }

  // Attributes cannot be written, nor files made. True, with errno set, when the program wants that.
  bool refuses(bool to_write, bool to_make) const;

 private:
  enum class Kind { kElsewhere, kFile, kDevice };

  void consider(int directory, DeviceNodes nodes);

  const char* path_;
  Kind kind_ = Kind::kElsewhere;
  std::string changed_;
  std::string name_;
};

}  // namespace uroce::files
