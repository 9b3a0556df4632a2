// SPDX-License-Identifier: BSD-2-Clause
// The files say what verbs say, also when the network changes.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <infiniband/verbs.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "view_paths.h"

extern "C" {
const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
}

namespace {

std::string line(const std::string& path) {
  std::ifstream stream(path);
  std::string text;
  std::getline(stream, text);
  return stream.is_open() ? text : "no file";
}

void ip(const std::string& arguments) {
  ASSERT_EQ(std::system(("export LD_PRELOAD=; ip " + arguments).c_str()), 0) << arguments;
}

// A link-local address appears when the kernel is done with looking for duplicates, at any moment.
class NoIpv6 : public testing::Environment {
  void SetUp() override { std::ofstream("/proc/sys/net/ipv6/conf/rdma0/disable_ipv6") << "1"; }
};
const testing::Environment* const kNoIpv6 = testing::AddGlobalTestEnvironment(new NoIpv6);

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  char part[8];
  for (size_t i = 0; i < 16; i += 2) {
    std::snprintf(part, sizeof(part), "%s%02x%02x", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    text += part;
  }
  return text;
}

class VerbsFiles : public testing::Test {
 protected:
  void SetUp() override {
    list_ = ibv_get_device_list(&count_);
    ASSERT_GE(count_, 1);
    context_ = ibv_open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
  }
  void TearDown() override {
    if (context_ != nullptr) ibv_close_device(context_);
    ibv_free_device_list(list_);
  }
  ibv_device** list_ = nullptr;
  int count_ = 0;
  ibv_context* context_ = nullptr;
};

TEST_F(VerbsFiles, TheSameDevices) {
  std::set<std::string> listed, shown;
  for (int i = 0; i < count_; ++i) listed.insert(list_[i]->name);
  DIR* directory = opendir("/sys/class/infiniband");
  ASSERT_NE(directory, nullptr);
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') shown.insert(entry->d_name);
  }
  closedir(directory);
  EXPECT_EQ(listed, shown);
  for (int i = 0; i < count_; ++i) {
    EXPECT_EQ(line(std::string(list_[i]->dev_path) + "/ibdev"), list_[i]->name);
    EXPECT_EQ(line(std::string(list_[i]->ibdev_path) + "/node_type"), "1: CA");
    EXPECT_EQ(access((std::string("/dev/infiniband/") + list_[i]->dev_name).c_str(), R_OK | W_OK), 0) << "as UCX asks";
  }
}

TEST_F(VerbsFiles, TheSameAttributes) {
  ibv_device_attr attributes{};
  ASSERT_EQ(ibv_query_device(context_, &attributes), 0);
  EXPECT_EQ(line(kDevice + "/fw_ver"), attributes.fw_ver);
  char guid[32];
  const uint64_t number = be64toh(attributes.node_guid);
  std::snprintf(guid, sizeof(guid), "%04x:%04x:%04x:%04x", static_cast<unsigned>(number >> 48),
                static_cast<unsigned>(number >> 32 & 0xffff), static_cast<unsigned>(number >> 16 & 0xffff),
                static_cast<unsigned>(number & 0xffff));
  EXPECT_EQ(line(kDevice + "/node_guid"), guid);
  EXPECT_EQ(line(kDevice + "/sys_image_guid"), guid);
  EXPECT_EQ(std::stoul(line(kDevice + "/hw_rev"), nullptr, 16), attributes.hw_ver);
  EXPECT_EQ(attributes.vendor_id, 0xffffffu) << "no OUI";
  EXPECT_EQ(line(kDevice + "/device/vendor"), "0x0000") << "no PCI vendor";
}

TEST_F(VerbsFiles, TheSamePort) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(line(kPort + "/state").substr(0, 2), std::to_string(port.state) + ":");
  EXPECT_EQ(line(kPort + "/phys_state").substr(0, 2), std::to_string(port.phys_state) + ":");
  EXPECT_EQ(std::stoul(line(kPort + "/cap_mask"), nullptr, 16), port.port_cap_flags);
  EXPECT_EQ(std::stoul(line(kPort + "/lid"), nullptr, 16), port.lid);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context_, 1, i, &gid), 0);
    EXPECT_EQ(line(kPort + "/gids/" + std::to_string(i)), gid_text(gid)) << i;
  }
  EXPECT_EQ(line(kPort + "/gids/" + std::to_string(port.gid_tbl_len)), "no file");
  EXPECT_EQ(line(kPort + "/gid_attrs/types/0"), "RoCE v2");
  EXPECT_EQ(line(kPort + "/gid_attrs/ndevs/0"), "rdma0");
}

// As NCCL's plugins, ibdev2netdev and scripts look for it: the one entry of the directory, by either way.
TEST_F(VerbsFiles, TheNetdevOfTheDevice) {
  for (const std::string& device : {kDevice, "/sys/class/infiniband_verbs/" + uverbs()}) {
    std::set<std::string> netdevs;
    DIR* directory = opendir((device + "/device/net").c_str());
    ASSERT_NE(directory, nullptr) << device;
    while (const dirent* entry = readdir(directory)) {
      if (entry->d_name[0] != '.') netdevs.insert(entry->d_name);
    }
    closedir(directory);
    EXPECT_THAT(netdevs, testing::ElementsAre("rdma0")) << device;
    EXPECT_EQ(line(device + "/device/net/rdma0/ifindex"), std::to_string(if_nametoindex("rdma0"))) << device;
  }
}

TEST_F(VerbsFiles, ThroughLibibverbsItself) {
  char text[64];
  const std::string directory = std::string(ibv_get_sysfs_path()) + "/class/infiniband/uroce_rdma0";
  EXPECT_EQ(ibv_read_sysfs_file(directory.c_str(), "node_type", text, sizeof(text)), 5);
  EXPECT_STREQ(text, "1: CA");
}

TEST(FollowTheNetwork, Addresses) {
  ASSERT_EQ(line(kPort + "/gid_attrs/types/2"), "no file");
  ip("address add 203.0.113.9/24 dev rdma0");
  EXPECT_EQ(line(kPort + "/gids/2"), "0000:0000:0000:0000:0000:ffff:cb00:7109");
  EXPECT_EQ(line(kPort + "/gid_attrs/types/2"), "RoCE v2");
  ip("address delete 203.0.113.9/24 dev rdma0");
  EXPECT_EQ(line(kPort + "/gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(line(kPort + "/gid_attrs/types/2"), "no file");
}

// As the process's verbs have them, whatever came and went since they were asked first.
TEST_F(VerbsFiles, TheSamePlacesInTheGidTable) {
  ip("address add 198.18.0.8/24 dev rdma0");
  ip("address add 203.0.113.9/24 dev rdma0");
  ASSERT_EQ(line(kPort + "/gids/3"), "0000:0000:0000:0000:0000:ffff:cb00:7109");
  ip("address delete 198.18.0.8/24 dev rdma0");
  EXPECT_EQ(line(kPort + "/gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(line(kPort + "/gid_attrs/types/2"), "no file");
  EXPECT_EQ(line(kPort + "/gids/3"), "0000:0000:0000:0000:0000:ffff:cb00:7109");
  for (int i = 0; i < 4; ++i) {
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context_, 1, i, &gid), 0);
    EXPECT_EQ(line(kPort + "/gids/" + std::to_string(i)), gid_text(gid)) << i;
  }
  ip("address delete 203.0.113.9/24 dev rdma0");
}

TEST(FollowTheNetwork, ThroughAnOpenDirectory) {
  const int directory = open(kPort.c_str(), O_RDONLY | O_DIRECTORY);
  ip("address add 203.0.113.9/24 dev rdma0");
  ASSERT_EQ(access(kPort.c_str(), F_OK), 0) << "whoever asks brings it up to date";
  struct stat status {};
  EXPECT_EQ(fstatat(directory, "gid_attrs/types/2", &status, 0), 0);
  ip("address delete 203.0.113.9/24 dev rdma0");
  close(directory);
}

TEST(FollowTheNetwork, Devices) {
  unsetenv("UROCE_NETDEV");
  ip("link add second0 type veth peer name third0");
  ip("link add bridge0 type bridge");
  ip("address add 203.0.113.20/24 dev bridge0");
  for (const char* unnamed : {"second0", "bridge0"}) {
    EXPECT_EQ(line(std::string("/sys/class/infiniband/uroce_") + unnamed + "/node_type"), "no file") << unnamed;
  }
  setenv("UROCE_NETDEV", "rdma0,b*0", 1);
  for (const char* named : {"rdma0", "bridge0"}) {
    EXPECT_NE(line(std::string("/sys/class/infiniband/uroce_") + named + "/node_type"), "no file") << named;
  }
  unsetenv("UROCE_NETDEV");
  ip("link delete bridge0");
  ip("address add 203.0.113.10/24 dev other0");
  ip("address add 203.0.113.11/24 dev second0");
  EXPECT_NE(line("/sys/class/infiniband/uroce_other0/node_type"), "no file");
  EXPECT_EQ(line("/sys/class/infiniband/uroce_second0/ports/1/state"), "1: DOWN");
  ip("link set second0 up");
  EXPECT_NE(line("/sys/class/infiniband/uroce_second0/node_type"), "no file");
  ip("link delete second0");
  EXPECT_EQ(line("/sys/class/infiniband/uroce_second0/node_type"), "no file");
  setenv("UROCE_NETDEV", "rdma0", 1);
  EXPECT_EQ(line("/sys/class/infiniband/uroce_other0/node_type"), "no file");
  ip("address delete 203.0.113.10/24 dev other0");
}

}  // namespace
