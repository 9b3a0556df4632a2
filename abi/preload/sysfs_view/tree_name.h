// SPDX-License-Identifier: BSD-2-Clause
// Names of the directories in which processes keep their view: they say whose it is, so that those that a killed
// process left behind can be told from those in use. Used by tree.cc; hidden_length() by the hooks that hand paths
// back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace uroce::files {

// Where trees are made, the first that works. Both are writable for everybody and sticky.
inline constexpr const char* kTreePlaces[] = {"/dev/shm", "/tmp"};

struct TreeOwner {
  uid_t user = 0;                       // effective
  unsigned long namespace_of_pids = 0;  // inode; 0: unknown
  pid_t process = 0;
  unsigned long long started = 0;  // in clock ticks after boot, as /proc/PID/stat has it; 0: unknown

  friend bool operator==(const TreeOwner&, const TreeOwner&) = default;
};

TreeOwner current_owner();
// For mkdtemp().
std::string tree_name_template(const TreeOwner& owner);
// nullopt: not the name of a tree.
std::optional<TreeOwner> parse_tree_name(std::string_view name);
// True when nobody can still use the tree: `self`, of the same user and PID namespace, can see that its process is
// gone, or that it is of the program that this process was before exec().
bool is_abandoned(const TreeOwner& owner, const TreeOwner& self);

// How much of a path is the directory of a tree: "/dev/shm/uroce-files-.../sys/class" -> up to "/sys". 0: none of it.
// Of a tree of this user only, for everybody can make a directory of such a name. Not of this process only: a program
// that was started in a directory of the view of its parent still sees it as one of /sys.
size_t hidden_length(std::string_view path);

}  // namespace uroce::files
