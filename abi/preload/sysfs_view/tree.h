// SPDX-License-Identifier: BSD-2-Clause
// The view as real files: a directory of this process in shared memory, private to its user. Used by view.cc, which
// serialises the calls.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "abi/preload/sysfs_view/contents.h"
#include "abi/preload/sysfs_view/tree_name.h"

namespace uroce::files {

class Tree {
 public:
  // Makes an empty one, mode 0700, of a name that nobody can guess, and removes those that dead processes of this user
  // left behind. Null when no place takes it; errno says why the last did not.
  static std::unique_ptr<Tree> create();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() = default;  // leaves the directory where it is: it may be that of a parent

  // True as long as this process, with the rights it has now, finds its own directory there: not in a forked child,
  // after a change of user, in a chroot, or when somebody tidied up.
  bool usable() const;
  // Brings the files to `wanted`. What stays the same stays untouched, and a changed file is replaced in one step, so
  // that open directories stay good and readers see the old text or the new. False: not all of it worked.
  bool update(Contents wanted);
  bool has(std::string_view path) const { return contents_.find(std::string(path)) != contents_.end(); }
  const std::string& path() const { return path_; }
  // At the end of the process.
  void remove();

 private:
  Tree(std::string path, const TreeOwner& owner) : path_(std::move(path)), owner_(owner) {}
  bool put(int directory, const std::string& path, const Node& node) const;
  bool take_away(int directory, const std::string& path, const Node& node) const;

  std::string path_;
  TreeOwner owner_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  Contents contents_;
};

}  // namespace uroce::files
