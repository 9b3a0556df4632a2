// SPDX-License-Identifier: BSD-2-Clause
// Where brokers listen, and what is at a path there already.
#include "broker/protocol/address.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace uroce::broker {
namespace {

class AddressTest : public testing::Test {
 protected:
  AddressTest() { std::filesystem::create_directory(directory_); }
  ~AddressTest() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return directory_ / name; }

  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("uroced-test-" + std::to_string(getpid()));
};

TEST_F(AddressTest, ReplacesASocketAtWhichNobodyListens) {
  const std::string address = path("socket");
  UniqueFd first, second, other;
  ASSERT_EQ(listen_at(address, first), 0);
  EXPECT_EQ(address_of(first.get()), address);
  EXPECT_EQ(listen_at(address, second), EADDRINUSE);
  first.reset();
  EXPECT_EQ(connect_to(address, other), ECONNREFUSED);
  ASSERT_EQ(listen_at(address, second), 0);
  EXPECT_EQ(connect_to(address, other), 0);
  struct stat status {};
  ASSERT_EQ(stat(address.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0777u) << "who may use it is looked at when they connect";
}

TEST_F(AddressTest, LeavesFilesAlone) {
  std::ofstream(path("file")) << "precious";
  std::filesystem::create_symlink(path("file"), path("link"));
  const auto mode = std::filesystem::status(path("file")).permissions();
  UniqueFd socket;
  for (const char* const name : {"file", "link"}) {
    EXPECT_EQ(listen_at(path(name), socket), EADDRINUSE);
    remove_path(path(name));
    EXPECT_TRUE(std::filesystem::exists(path(name)));
  }
  EXPECT_EQ(std::filesystem::file_size(path("file")), 8u);
  EXPECT_EQ(std::filesystem::status(path("file")).permissions(), mode);
}

TEST_F(AddressTest, OnlyListeningMessageSocketsHaveAnAddress) {
  const std::string address = "@" + directory_.filename().string();
  UniqueFd listener, connected;
  ASSERT_EQ(listen_at(address, listener), 0);
  ASSERT_EQ(connect_to(address, connected), 0);
  EXPECT_EQ(address_of(listener.get()), address);
  EXPECT_EQ(address_of(connected.get()), "");
  EXPECT_EQ(address_of(STDERR_FILENO), "");
  EXPECT_EQ(address_of(-1), "");
}

}  // namespace
}  // namespace uroce::broker
