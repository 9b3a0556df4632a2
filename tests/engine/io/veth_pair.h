// SPDX-License-Identifier: BSD-2-Clause
// Two network namespaces joined by a veth pair, for tests of the system backends as root. The namespaces have no names
// and vanish with the object: nothing is left behind, however the test ends.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "wire/envelope.h"

namespace uroce::io::test {

class VethPair {
 public:
  struct Options {
    uint32_t mtu = 1500;
    int queues = 1;
  };

  // Both ends up, with addresses and without address detection delays.
  VethPair() : VethPair(Options{}) {}
  explicit VethPair(const Options& options);
  ~VethPair();
  VethPair(const VethPair&) = delete;
  VethPair& operator=(const VethPair&) = delete;

  struct End {
    int namespace_fd = -1;
    std::string netdev;
    int ifindex = 0;
    wire::MacAddress mac{};
    wire::IpAddress v4;
    wire::IpAddress v6;
  };
  const End& a() const { return a_; }
  const End& b() const { return b_; }

  // Moves the calling thread into an end's namespace.
  static void enter(const End& end);
  // Runs a command there.
  static void run(const End& end, const std::string& command);

  // For packets from one end to the other.
  static wire::Envelope envelope_v4(const End& from, const End& to);
  static wire::Envelope envelope_v6(const End& from, const End& to);

 private:
  void complete(End& end, const char* netdev, uint8_t host);

  int original_namespace_ = -1;
  End a_;
  End b_;
};

}  // namespace uroce::io::test

// Namespaces and XDP need root.
#define UROCE_SKIP_UNLESS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "needs root: makes network namespaces and loads XDP programs"
