// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/tree_name.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace uroce::files {
namespace {

constexpr std::string_view kPrefix = "uroce-files-";

// 22nd field of /proc/PID/stat; the second, the program's name, may hold anything. 0: cannot be read.
unsigned long long start_of(pid_t process) {
  char path[64], text[1024];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(process));
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

unsigned long own_pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// As mkdtemp() makes them. Both places are sticky: nobody else can put a directory of this user there.
bool is_of_this_user(const std::string& directory) {
  const int error = errno;
  struct stat status {};
  const bool found = lstat(directory.c_str(), &status) == 0;
  errno = error;
  return found && S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 0077) == 0;
}

}  // namespace

TreeOwner current_owner() {
  const pid_t process = getpid();
  return {geteuid(), own_pid_namespace(), process, start_of(process)};
}

std::string tree_name_template(const TreeOwner& owner) {
  char name[128];
  std::snprintf(name, sizeof(name), "%s%u-%lu-%d-%llu-XXXXXX", kPrefix.data(), owner.user, owner.namespace_of_pids,
                static_cast<int>(owner.process), owner.started);
  return name;
}

std::optional<TreeOwner> parse_tree_name(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const std::string numbers(name.substr(kPrefix.size()));
  TreeOwner owner;
  int process = 0, length = 0;
  if (std::sscanf(numbers.c_str(), "%u-%lu-%d-%llu-%n", &owner.user, &owner.namespace_of_pids, &process, &owner.started,
                  &length) != 4 ||
      length == 0 || process <= 0) {
    return std::nullopt;
  }
  owner.process = process;
  return owner;
}

bool is_abandoned(const TreeOwner& owner, const TreeOwner& self) {
  if (owner.user != self.user || owner.namespace_of_pids != self.namespace_of_pids) return false;
  if (owner.process == self.process) return true;
  if (kill(owner.process, 0) != 0 && errno == ESRCH) return true;
  // The number may have gone to another process.
  const unsigned long long started = start_of(owner.process);
  return owner.started != 0 && started != 0 && started != owner.started;
}

size_t hidden_length(std::string_view path) {
  for (const std::string_view place : kTreePlaces) {
    if (path.substr(0, place.size()) != place || path.substr(place.size(), 1) != "/") continue;
    const size_t begin = place.size() + 1;
    const size_t end = path.find('/', begin);
    if (end == std::string_view::npos || !parse_tree_name(path.substr(begin, end - begin))) continue;
    if (is_of_this_user(std::string(path.substr(0, end)))) return end;
  }
  return 0;
}

}  // namespace uroce::files
