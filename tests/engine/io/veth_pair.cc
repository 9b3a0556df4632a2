// SPDX-License-Identifier: BSD-2-Clause
#include "tests/engine/io/veth_pair.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {
namespace {

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what + ": " + std::strerror(errno));
}

int open_namespace() {
  const int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  check(fd >= 0, "open network namespace");
  return fd;
}

int make_namespace() {
  check(unshare(CLONE_NEWNET) == 0, "unshare network namespace");
  return open_namespace();
}

void run_here(const std::string& command) {
  check(std::system(command.c_str()) == 0, command);
}

wire::MacAddress mac_of(const std::string& netdev) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  check(fd >= 0, "socket");
  ifreq ifr{};
  netdev.copy(ifr.ifr_name, IFNAMSIZ - 1);
  const int result = ioctl(fd, SIOCGIFHWADDR, &ifr);
  close(fd);
  check(result == 0, "hardware address of " + netdev);
  wire::MacAddress mac;
  std::memcpy(mac.data(), ifr.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

// Some time after the link has come up, an address gets the routes that make packets to and from it possible.
void wait_for_ipv6(const VethPair::End& end, const VethPair::End& peer) {
  VethPair::run(end, "timeout 20 sh -c 'until ip -6 route show table local | grep -q \"^local " + end.v6.text() +
                         " \" && ip -6 route get " + peer.v6.text() + " >/dev/null 2>&1; do :; done'");
}

}  // namespace

VethPair::VethPair(const Options& options) : original_namespace_(open_namespace()) {
  a_.namespace_fd = make_namespace();
  b_.namespace_fd = make_namespace();
  const std::string queues =
      " numrxqueues " + std::to_string(options.queues) + " numtxqueues " + std::to_string(options.queues);
  const std::string mtu = " mtu " + std::to_string(options.mtu);
  const std::string to_b = " netns /proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(b_.namespace_fd);
  enter(a_);
  run_here("ip link add name va" + mtu + queues + " type veth peer name vb" + mtu + queues);
  run_here("ip link set dev vb" + to_b);
  complete(a_, "va", 1);
  complete(b_, "vb", 2);
  wait_for_ipv6(a_, b_);
  wait_for_ipv6(b_, a_);
  check(setns(original_namespace_, CLONE_NEWNET) == 0, "setns");
}

void VethPair::complete(End& end, const char* netdev, uint8_t host) {
  enter(end);
  const std::string name = netdev;
  const std::string number = std::to_string(host);
  run_here("ip link set dev lo up");
  run_here("ip address add 192.0.2." + number + "/24 dev " + name);
  run_here("ip address add 2001:db8::" + number + "/64 dev " + name + " nodad");
  run_here("ip link set dev " + name + " up");
  end.netdev = name;
  end.ifindex = static_cast<int>(if_nametoindex(netdev));
  end.mac = mac_of(name);
  end.v4 = ipv4(192, 0, 2, host);
  end.v6 = ipv6(host);
}

VethPair::~VethPair() {
  setns(original_namespace_, CLONE_NEWNET);
  close(a_.namespace_fd);
  close(b_.namespace_fd);
  close(original_namespace_);
}

void VethPair::enter(const End& end) {
  check(setns(end.namespace_fd, CLONE_NEWNET) == 0, "setns");
}

void VethPair::run(const End& end, const std::string& command) {
  const int here = open_namespace();
  enter(end);
  run_here(command);
  check(setns(here, CLONE_NEWNET) == 0, "setns");
  close(here);
}

wire::Envelope VethPair::envelope_v4(const End& from, const End& to) {
  wire::Envelope envelope;
  envelope.source_mac = from.mac;
  envelope.destination_mac = to.mac;
  envelope.source = from.v4;
  envelope.destination = to.v4;
  envelope.source_port = 0xc123;
  envelope.traffic_class = 0x68;
  envelope.hop_limit = 60;
  return envelope;
}

wire::Envelope VethPair::envelope_v6(const End& from, const End& to) {
  wire::Envelope envelope = envelope_v4(from, to);
  envelope.source = from.v6;
  envelope.destination = to.v6;
  return envelope;
}

}  // namespace uroce::io::test
