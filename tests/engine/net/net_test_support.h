// SPDX-License-Identifier: BSD-2-Clause
// Network namespaces of a test's own and a NetView in them. Namespaces have no names: they vanish with the last
// descriptor, also when a test crashes.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "engine/net/net_view.h"

namespace uroce::net {

// "192.0.2.1" or "2001:db8::1".
wire::IpAddress ip(const std::string& text);
// "02:00:00:00:00:01".
wire::MacAddress mac(const std::string& text);

class NetNamespace {
 public:
  NetNamespace();  // makes a new one and enters it
  ~NetNamespace();
  NetNamespace(const NetNamespace&) = delete;
  NetNamespace& operator=(const NetNamespace&) = delete;

  void enter() const;
  // A path by which `ip link set ... netns` finds it.
  std::string path() const;

 private:
  int fd_ = -1;
};

// Runs shell commands in the current namespace; a failure fails the test.
void run(const std::string& commands);

// The host: a namespace with the veth pair va0-vb0 whose other end is in the namespace `peer`. MAC addresses
// 02:00:00:00:00:0a and :0b, IPv6 link-local fe80::a and fe80::b, no duplicate address detection, both up.
class NetViewTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Opens the view, and waits until va0 is running and has so many addresses, all with their local routes. Split from
  // SetUp() so that a test can prepare what is found at the start.
  void open(size_t address_count);
  // Runs commands in the peer's namespace.
  void run_at_peer(const std::string& commands);

  Netdev va0();
  // Processes changes as they arrive until the condition holds; false after a generous limit.
  bool wait_until(const std::function<bool()>& condition);
  // Processes everything that the commands run so far have caused at once. Only a new IPv6 address and the carrier
  // come later, for the kernel leaves them to a work queue; they need wait_until().
  bool settle();

  std::unique_ptr<NetView> view_;
  int index_ = 0;  // of va0

 private:
  int original_ = -1;
  std::unique_ptr<NetNamespace> peer_;
  std::unique_ptr<NetNamespace> host_;
};

}  // namespace uroce::net
