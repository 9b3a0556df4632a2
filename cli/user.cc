// SPDX-License-Identifier: BSD-2-Clause
#include "cli/user.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/capabilities.h"

namespace uroce::cli {
namespace {

// Exactly what AF_XDP takes, in all sets from which a program that is started gets it. False: errno says why.
bool keep_af_xdp_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  for (const int capability : af_xdp_capabilities()) {
    __user_cap_data_struct& word = data[capability / 32];
    word.effective |= 1U << capability % 32;
    word.permitted |= 1U << capability % 32;
    word.inheritable |= 1U << capability % 32;
  }
  if (syscall(SYS_capset, &header, data) != 0) return false;
  for (const int capability : af_xdp_capabilities()) {
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> why_not_user(const std::string& name) {
  errno = 0;
  const passwd* const user = getpwnam(name.c_str());
  if (user == nullptr) {
    return errno == 0 || errno == ENOENT ? fmt::format("--user {}: there is no such user", name)
                                         : fmt::format("--user {}: {}", name, std::strerror(errno));
  }
  if (user->pw_uid == 0) return fmt::format("--user {}: that is root; leave --user out", name);
  if (geteuid() != 0) return fmt::format("--user {0}: it needs root; sudo uroce run --user {0} ...", name);
  return std::nullopt;
}

std::optional<std::string> become_user(const std::string& name) {
  if (auto problem = why_not_user(name)) return problem;
  const passwd* const user = getpwnam(name.c_str());
  if (user == nullptr) return fmt::format("--user {}: there is no such user", name);
  const auto problem = [&name](const char* what) {
    return fmt::format("--user {}: {}: {}", name, what, std::strerror(errno));
  };
  if (initgroups(user->pw_name, user->pw_gid) != 0) return problem("groups");
  if (setresgid(user->pw_gid, user->pw_gid, user->pw_gid) != 0) return problem("group");
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return problem("capabilities");
  if (setresuid(user->pw_uid, user->pw_uid, user->pw_uid) != 0) return problem("user");
  if (!keep_af_xdp_capabilities()) return problem("capabilities");
  setenv("HOME", user->pw_dir, 1);
  setenv("USER", user->pw_name, 1);
  setenv("LOGNAME", user->pw_name, 1);
  return std::nullopt;
}

}  // namespace uroce::cli
