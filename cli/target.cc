// SPDX-License-Identifier: BSD-2-Clause
#include "cli/target.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

namespace uroce::cli {
namespace {

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The kernel starts it in secure-execution mode (AT_SECURE, ld.so(8)): it would gain rights that the caller lacks.
bool gains_privilege(const std::string& path) {
  struct stat status {};
  struct statvfs mount {};
  if (stat(path.c_str(), &status) != 0 || statvfs(path.c_str(), &mount) != 0) return false;
  if ((mount.f_flag & ST_NOSUID) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return false;
  if ((status.st_mode & S_ISUID) && status.st_uid != getuid()) return true;
  if ((status.st_mode & S_ISGID) && status.st_gid != getgid()) return true;
  return getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

// Programs that start others with another user's rights and a clean environment, whoever calls them. su keeps
// LD_PRELOAD where it is not set-user-ID for its caller.
bool changes_user(const std::string& path) {
  static constexpr std::string_view kNames[] = {"sudo", "sudo-rs", "doas", "pkexec", "run0"};
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         (name == "su" && gains_privilege(path));
}

template <class Header>
bool read_at(std::ifstream& file, uint64_t offset, Header& out) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&out), sizeof(out)));
}

Elf64_Ehdr own_header() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  Elf64_Ehdr header{};
  read_at(self, 0, header);
  return header;
}

TargetKind examine(const std::string& path) {
  if (changes_user(path)) return TargetKind::kChangesUser;
  std::ifstream file(path, std::ios::binary);
  char mark[2] = {};
  if (read_at(file, 0, mark) && std::memcmp(mark, "#!", 2) == 0)
    return TargetKind::kUsable;  // its mode gives it no rights
  if (gains_privilege(path)) return TargetKind::kPrivileged;
  file.clear();
  Elf64_Ehdr header{};
  // Not readable, or anything else that is not ELF: execve() will judge it.
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return TargetKind::kUsable;
  const Elf64_Ehdr own = own_header();
  if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_machine != own.e_machine) {
    return TargetKind::kForeign;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(file, header.e_phoff + uint64_t{i} * header.e_phentsize, segment)) break;
    if (segment.p_type == PT_INTERP) return TargetKind::kUsable;
  }
  return TargetKind::kStatic;
}

std::vector<std::string> candidates(const std::string& command, const std::string& search_path) {
  if (command.find('/') != std::string::npos) return {command};
  std::vector<std::string> paths;
  std::istringstream directories(search_path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    paths.push_back((directory.empty() ? "." : directory) + "/" + command);
  }
  return paths;
}

}  // namespace

Target find_target(const std::string& command, const std::string& search_path) {
  Target target;
  if (command.empty()) return target;
  for (const std::string& path : candidates(command, search_path)) {
    if (is_executable_file(path)) return {examine(path), path};
    if (target.path.empty() && access(path.c_str(), F_OK) == 0) target = {TargetKind::kNotExecutable, path};
  }
  return target;
}

}  // namespace uroce::cli
