// SPDX-License-Identifier: BSD-2-Clause
#include "tests/abi/verbs/own_network.h"

#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <string>
#include <unistd.h>

namespace {

// Without privileges a user namespace gives them, inside; but only root in it keeps them across exec().
bool enter_user_namespace() {
  const std::string user = "0 " + std::to_string(geteuid()) + " 1";
  const std::string group = "0 " + std::to_string(getegid()) + " 1";
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/gid_map") << group;
  std::ofstream("/proc/self/uid_map") << user;
  return true;
}

}  // namespace

bool enter_own_network() {
  if (unshare(CLONE_NEWNET) != 0 && !enter_user_namespace()) return false;
  // Without the preload: the commands are none of the test's.
  return std::system(
             "export LD_PRELOAD=;"
             "ip link set lo up && ip link add rdma0 type veth peer name other0 && ip addr add 192.0.2.1/24 dev rdma0 "
             "&&"
             "ip addr add 198.51.100.1/24 dev rdma0 && ip link set rdma0 up && ip link set other0 up") == 0;
}
