// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/cgroup.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/unique_fd.h"

namespace uroce::broker {
namespace {

constexpr const char* kPrefix = "uroce-sockets-";  // and the process that made it
constexpr std::array kGuarded = {"", "/cgroup.procs"};

struct Mount {
  std::string root;  // what of the hierarchy is seen
  std::string point;
};

// proc(5): the fields are ID, parent, device, root, mount point, options and optional fields up to " - ", then the
// type.
Mount find_mount() {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.find(" - cgroup2 ") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string unused;
    Mount mount;
    fields >> unused >> unused >> unused >> mount.root >> mount.point;
    return mount;
  }
  return {};
}

// As "0::/system.slice/uroced.service".
std::string path_of_this_process() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return {};
}

// A mount that is in no directory: `ip netns exec` and containers often hide the system's. Empty: not permitted. It is
// there for as long as this process and its children.
std::string mount_for_itself() {
  static const UniqueFd mount = [] {
    const UniqueFd system(fsopen("cgroup2", FSOPEN_CLOEXEC));
    if (!system || fsconfig(system.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return UniqueFd();
    return UniqueFd(fsmount(system.get(), FSMOUNT_CLOEXEC, 0));
  }();
  return mount ? "/proc/self/fd/" + std::to_string(mount.get()) : "";
}

int move_to(const std::string& directory) {
  const UniqueFd file(open((directory + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return errno;
  return write(file.get(), "0", 1) == 1 ? 0 : errno;
}

// Nobody else may make cgroups in it, nor move processes to and from it.
bool is_roots_only(const std::string& directory) {
  return std::all_of(kGuarded.begin(), kGuarded.end(), [&](const char* name) {
    struct stat status {};
    return stat((directory + name).c_str(), &status) == 0 && status.st_uid == 0 && (status.st_mode & S_IWOTH) == 0 &&
           (status.st_gid == 0 || (status.st_mode & S_IWGRP) == 0);
  });
}

// On the way from `point` down to `own`, the last of those that are root's only. Empty: not even `point` is.
std::string innermost_of_root(const std::string& point, const std::string& own) {
  std::string found;
  for (size_t end = point.size(); is_roots_only(own.substr(0, end));
       end = std::min(own.find('/', end + 1), own.size())) {
    found = own.substr(0, end);
    if (end == own.size()) break;
  }
  return found;
}

}  // namespace

std::string own_cgroup(std::string* why) {
  const auto none = [why](std::string text) {
    if (why != nullptr) *why = std::move(text);
    return std::string();
  };
  Mount mount = find_mount();
  if (mount.point.empty()) mount = {"/", mount_for_itself()};
  if (mount.point.empty()) return none("cgroup v2 is not mounted, and mounting it is not permitted");
  std::string path = path_of_this_process();
  if (mount.root != "/" && path.rfind(mount.root, 0) == 0) path.erase(0, mount.root.size());
  std::string own = mount.point + (path == "/" ? "" : path);
  if (access((own + "/cgroup.procs").c_str(), F_OK) != 0) own = mount.point;
  if (geteuid() != 0) return own;
  std::string of_root = innermost_of_root(mount.point, own);
  return of_root.empty() ? none("others than root may change the cgroups in " + mount.point) : of_root;
}

// Not those of processes that are about to move in.
void remove_left_cgroups(const std::string& parent) {
  const std::string prefix = kPrefix;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) != 0) continue;
    if (access(("/proc/" + name.substr(prefix.size())).c_str(), F_OK) != 0) rmdir(entry.path().c_str());
  }
}

SocketCgroup::SocketCgroup(std::string parent)
    : parent_(std::move(parent)), path_(parent_ + "/" + kPrefix + std::to_string(getpid())) {
  if (mkdir(path_.c_str(), 0755) != 0) {
    error_ = errno;
    path_.clear();
    return;
  }
  error_ = move_to(path_);
}

void SocketCgroup::leave() {
  if (path_.empty()) return;
  move_to(parent_);
  rmdir(path_.c_str());
  path_.clear();
}

}  // namespace uroce::broker
