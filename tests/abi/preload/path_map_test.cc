// SPDX-License-Identifier: BSD-2-Clause
// Which paths belong to the view, and what other ways there are to write them.
#include "abi/preload/sysfs_view/path_map.h"

#include <cerrno>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/preload/sysfs_view/tree_name.h"

namespace uroce::files {
namespace {

// "+" and the path in the view, "-" and the absolute path of what has left it again, or "" for what is none of ours.
std::string place(std::string_view path, Base base = Base::kRoot) {
  const auto found = find_place(path, base);
  return found ? (found->inside ? "+" : "-") + found->path : "";
}

TEST(PathMap, TheDirectoriesAndWhatIsInThem) {
  EXPECT_EQ(place("/sys/class/infiniband"), "+sys/class/infiniband");
  EXPECT_EQ(place("/sys/class/infiniband/"), "+sys/class/infiniband");
  EXPECT_EQ(place("/sys/class/infiniband/uroce_eth0/ports/1"), "+sys/class/infiniband/uroce_eth0/ports/1");
  EXPECT_EQ(place("/sys/class/infiniband_verbs/uverbs3/"), "+sys/class/infiniband_verbs/uverbs3/");
  EXPECT_EQ(place("/sys/class/infiniband_mad"), "+sys/class/infiniband_mad");
  EXPECT_EQ(place("/dev/infiniband/uverbs3"), "+dev/infiniband/uverbs3");
  EXPECT_EQ(place("/sys/class/misc/rdma_cm/abi_version"), "+sys/class/misc/rdma_cm/abi_version");
  EXPECT_EQ(place("misc/rdma_cm/dev", Base::kSysClass), "+sys/class/misc/rdma_cm/dev");
  EXPECT_TRUE(may_lead_inside("misc/rdma_cm/dev"));
}

TEST(PathMap, NothingElse) {
  for (const char* path : {"", "/", "/sys", "/sys/class", "/sys/class/infiniband_cm", "/sys/class/infinibandx",
                           "/sys/class/net/infiniband", "/dev/infinibandx", "/infiniband", "/home/sys/class/infiniband",
                           "/usr/include/infiniband/verbs.h", "/devx/infiniband", "/sys/class/misc",
                           "/sys/class/misc/fuse", "/sys/class/rdma_cm", "/sys/infiniband", "/dev/shm/infiniband"}) {
    EXPECT_EQ(place(path), "") << path;
  }
}

TEST(PathMap, SlashesAndDots) {
  EXPECT_EQ(place("//sys///class/./infiniband//uroce_eth0"), "+sys/class/infiniband/uroce_eth0");
  EXPECT_EQ(place("/sys/class/../class/infiniband/."), "+sys/class/infiniband");
  EXPECT_EQ(place("/../dev/../sys/class/infiniband"), "+sys/class/infiniband");
  EXPECT_EQ(place("/sys/class/infiniband/../infiniband_verbs/abi_version"), "+sys/class/infiniband_verbs/abi_version");
  // What a netdev's directory is a link to only the kernel knows.
  EXPECT_EQ(place("/sys/class/net/eth0/../infiniband"), "");
  // Further inside the kernel goes its way.
  EXPECT_EQ(place("/dev/infiniband/uverbs3/../x"), "+dev/infiniband/uverbs3/../x");
}

TEST(PathMap, OutAgain) {
  EXPECT_EQ(place("/sys/class/infiniband/../net/eth0"), "-/sys/class/net/eth0");
  EXPECT_EQ(place("/sys/class/infiniband/.."), "-/sys/class");
  EXPECT_EQ(place("/sys/class/infiniband/../../../etc/passwd"), "-/etc/passwd");
  EXPECT_EQ(place("/dev/infiniband/../../"), "-/");
}

TEST(PathMap, RelativeToADirectoryOnTheWay) {
  EXPECT_EQ(place("infiniband/uroce_eth0", Base::kSysClass), "+sys/class/infiniband/uroce_eth0");
  EXPECT_EQ(place("infiniband", Base::kDev), "+dev/infiniband");
  EXPECT_EQ(place("infiniband", Base::kSys), "");
  EXPECT_EQ(place("class/infiniband", Base::kSys), "+sys/class/infiniband");
  EXPECT_EQ(place("../class/./infiniband", Base::kSysClass), "+sys/class/infiniband");
  EXPECT_EQ(place("sys/class/infiniband", Base::kRoot), "+sys/class/infiniband");
  EXPECT_EQ(place("/dev/infiniband", Base::kSysClass), "+dev/infiniband") << "absolute is absolute";
  EXPECT_TRUE(may_lead_inside("infiniband/x"));
  EXPECT_TRUE(may_lead_inside("./class/infiniband"));
  EXPECT_FALSE(may_lead_inside("include/infiniband/verbs.h"));
}

TEST(TreeName, SaysWhoseItIs) {
  const TreeOwner owner{1000, 4026531836, 4711, 123456789};
  const auto parsed = parse_tree_name(tree_name_template(owner));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, owner);
  for (const char* name : {"", "uroce-files-", "uroce-files-0-1-2", "uroce-files-0-1-2-3", "uroce-files-a-1-2-3-XXXXXX",
                           "uroce-files-0-1--2-3-XXXXXX", "other-0-1-2-3-XXXXXX"}) {
    EXPECT_FALSE(parse_tree_name(name)) << name;
  }
}

TEST(TreeName, AbandonedOnlyWhenItCanBeKnown) {
  const TreeOwner self = current_owner();
  EXPECT_FALSE(is_abandoned({self.user, self.namespace_of_pids, 1, 0}, self)) << "it lives";
  EXPECT_TRUE(is_abandoned({self.user, self.namespace_of_pids, 1, 987654321}, self)) << "the number was used again";
  EXPECT_TRUE(is_abandoned(self, self)) << "of the program before exec()";
  const pid_t nobody = 0x7ffffffe;
  EXPECT_TRUE(is_abandoned({self.user, self.namespace_of_pids, nobody, 1}, self));
  EXPECT_FALSE(is_abandoned({self.user + 1, self.namespace_of_pids, nobody, 1}, self));
  EXPECT_FALSE(is_abandoned({self.user, self.namespace_of_pids + 1, nobody, 1}, self));
}

TEST(TreeName, HiddenInPaths) {
  std::string tree = "/dev/shm/" + tree_name_template(current_owner());
  EXPECT_EQ(hidden_length(tree + "/sys/class/infiniband"), 0u) << "there is none";
  ASSERT_NE(mkdtemp(tree.data()), nullptr);
  errno = 0;
  EXPECT_EQ(hidden_length(tree + "/sys/class/infiniband"), tree.size());
  EXPECT_EQ(hidden_length(tree), 0u);
  EXPECT_EQ(hidden_length("/dev/shm/other/sys"), 0u);
  EXPECT_EQ(hidden_length("/home" + tree + "/sys"), 0u);
  EXPECT_EQ(errno, 0);
  rmdir(tree.c_str());
}

// Otherwise a user could make his /tmp/uroce-files-1-1-1-1-x/root/.ssh look like /root/.ssh to a program of root's.
TEST(TreeName, NotHiddenUnlessATreeOfThisUser) {
  std::string tree = "/tmp/" + tree_name_template({1, 1, 1, 1});
  ASSERT_NE(mkdtemp(tree.data()), nullptr);
  const std::string path = tree + "/root/.ssh";
  EXPECT_EQ(hidden_length(path), tree.size());
  ASSERT_EQ(chmod(tree.c_str(), 0755), 0);
  EXPECT_EQ(hidden_length(path), 0u) << "no tree is open to others";
  ASSERT_EQ(chmod(tree.c_str(), 0700), 0);
  std::string link = "/tmp/" + tree_name_template({1, 1, 1, 2});
  ASSERT_EQ(symlink(tree.c_str(), link.c_str()), 0);
  EXPECT_EQ(hidden_length(link + "/root/.ssh"), 0u) << "anybody can make a link to a tree";
  if (geteuid() == 0) {
    ASSERT_EQ(chown(tree.c_str(), 65534, 65534), 0);
    EXPECT_EQ(hidden_length(path), 0u) << "of another user";
  }
  unlink(link.c_str());
  rmdir(tree.c_str());
}

}  // namespace
}  // namespace uroce::files
