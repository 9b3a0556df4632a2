// main() of verbs_client_test: gives the process a network namespace with one veth pair before anything looks at the
// network. The kernel removes both when the process ends.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sched.h>

namespace {

constexpr int kSkipped = 77;

bool make_network() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  // Without the preload: the commands are none of the test's.
  return std::system(
             "export LD_PRELOAD=;"
             "ip link set lo up && ip link add rdma0 type veth peer name other0 && ip addr add 192.0.2.1/24 dev rdma0 "
             "&&"
             "ip addr add 198.51.100.1/24 dev rdma0 && ip link set rdma0 up && ip link set other0 up") == 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!make_network()) {
    std::fputs("skipped: this needs the right to make a network namespace\n", stderr);
    return kSkipped;
  }
  setenv("UROCE_NETDEV", "rdma0", 1);
  return RUN_ALL_TESTS();
}
