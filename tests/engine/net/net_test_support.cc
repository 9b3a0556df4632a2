// SPDX-License-Identifier: BSD-2-Clause
// See net_test_support.h.
#include "tests/engine/net/net_test_support.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <system_error>
#include <unistd.h>

namespace uroce::net {
namespace {

constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";
constexpr std::chrono::seconds kPatience{20};

}  // namespace

wire::IpAddress ip(const std::string& text) {
  uint8_t bytes[16];
  if (inet_pton(AF_INET, text.c_str(), bytes) == 1) return wire::IpAddress::v4(bytes);
  if (inet_pton(AF_INET6, text.c_str(), bytes) == 1) return wire::IpAddress::v6(bytes);
  ADD_FAILURE() << "no address: " << text;
  return {};
}

wire::MacAddress mac(const std::string& text) {
  wire::MacAddress m{};
  int fields = std::sscanf(text.c_str(), "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]);
  EXPECT_EQ(fields, 6) << text;
  return m;
}

NetNamespace::NetNamespace() {
  if (unshare(CLONE_NEWNET) != 0) throw std::system_error(errno, std::generic_category(), "unshare");
  fd_ = ::open(kOwnNamespace, O_RDONLY | O_CLOEXEC);
}

NetNamespace::~NetNamespace() {
  close(fd_);
}

void NetNamespace::enter() const {
  ASSERT_EQ(setns(fd_, CLONE_NEWNET), 0);
}

std::string NetNamespace::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_);
}

void run(const std::string& commands) {
  ASSERT_EQ(std::system(("set -e; " + commands).c_str()), 0) << commands;
}

void NetViewTest::SetUp() {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: makes network namespaces and veth pairs";
  original_ = ::open(kOwnNamespace, O_RDONLY | O_CLOEXEC);
  peer_ = std::make_unique<NetNamespace>();
  host_ = std::make_unique<NetNamespace>();
  const std::string prepare =
      "prepare() { echo 0 > /proc/sys/net/ipv6/conf/$1/accept_dad; ip link set $1 addrgenmode none address $2; "
      "ip link set $1 up; ip addr add $3/64 dev $1 nodad; }; ip link set lo up;";
  run("ip link add va0 type veth peer name vb0; ip link set vb0 netns " + peer_->path());
  run(prepare + "prepare va0 02:00:00:00:00:0a fe80::a");
  run_at_peer(prepare + "prepare vb0 02:00:00:00:00:0b fe80::b");
  index_ = static_cast<int>(if_nametoindex("va0"));
  ASSERT_NE(index_, 0);
}

void NetViewTest::TearDown() {
  if (original_ < 0) return;
  view_.reset();
  EXPECT_EQ(setns(original_, CLONE_NEWNET), 0);
  close(original_);
}

void NetViewTest::open(size_t address_count) {
  view_ = NetView::open();
  ASSERT_TRUE(wait_until([&] {
    const Netdev netdev = va0();
    auto has_local_route = [this](const wire::IpAddress& address) {
      auto route = view_->route(index_, {}, address);
      return route && route->local;
    };
    return netdev.running && netdev.addresses.size() == address_count &&
           std::all_of(netdev.addresses.begin(), netdev.addresses.end(), has_local_route);
  }));
}

void NetViewTest::run_at_peer(const std::string& commands) {
  peer_->enter();
  run(commands + "; while ip -6 addr show tentative | grep -q .; do :; done");
  host_->enter();
}

Netdev NetViewTest::va0() {
  return view_->netdev(index_).value_or(Netdev{});
}

bool NetViewTest::wait_until(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    view_->process_changes();
    if (condition()) return true;
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now());
    pollfd readable{view_->descriptor(), POLLIN, 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0) return false;
  }
}

bool NetViewTest::settle() {
  return view_->process_changes();
}

}  // namespace uroce::net
