// SPDX-License-Identifier: BSD-2-Clause
// The netdev of the test's network namespace (tests/abi/verbs/network_namespace.cc) as the files show it.
#pragma once

#include <net/if.h>
#include <string>

inline const std::string kDevice = "/sys/class/infiniband/uroce_rdma0";
inline const std::string kPort = kDevice + "/ports/1";

inline std::string uverbs() {
  return "uverbs" + std::to_string(if_nametoindex("rdma0"));
}
inline std::string node() {
  return "/dev/infiniband/" + uverbs();
}
