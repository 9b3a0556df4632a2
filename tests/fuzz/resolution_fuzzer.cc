// SPDX-License-Identifier: BSD-2-Clause
// ARP and neighbour discovery of a port that the kernel does not see, on a link with hostile stations: any frames,
// answers to what was asked with bytes changed, and time that goes by. And any file with the port's addresses.
//
// Checked: memory is bounded, whatever comes; neighbours are only those that were wanted, and their MAC addresses are
// those of stations; an answer costs one frame; what leaves is of this port; deadlines lie ahead.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/net/port_file.h"
#include "engine/net/resolution.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "wire/bytes.h"

namespace uroce::fuzz {
namespace {

using net::Neighbour;
using net::Resolution;
using wire::IpAddress;

constexpr wire::MacAddress kOwnMac = {2, 0, 0, 0, 0, 1}, kPeerMac = {2, 0, 0, 0, 0, 2};
constexpr int kOperations = 200;

IpAddress v4(uint8_t last) {
  const uint8_t bytes[4] = {192, 0, 2, last};
  return IpAddress::v4(bytes);
}
IpAddress v6(uint8_t last) {
  const uint8_t bytes[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return IpAddress::v6(bytes);
}

class Link {
 public:
  explicit Link(Input& in) : in_(in) {}

  void step() {
    const uint8_t last = in_.byte();
    switch (in_.below(6)) {
      case 0:
        want(in_.flag() ? v4(last) : v6(last));
        break;
      case 1:
        now_ += std::chrono::milliseconds(in_.word());
        port_.on_time(now_);
        break;
      case 2:
        hear_anything();
        break;
      case 3:
        peer_asks(in_.flag());
        break;
      default:
        peer_answers();
        break;
    }
    look();
  }

 private:
  void want(const IpAddress& address) {
    if (std::find(wanted_.begin(), wanted_.end(), address) == wanted_.end()) wanted_.push_back(address);
    port_.want(address, now_);
  }

  void hear(std::span<const uint8_t> frame) {
    // Of its own size, so that nothing behind it is read.
    const std::vector<uint8_t> copy(frame.begin(), frame.end());
    port_.take(copy, now_);
  }
  void hear_changed(std::vector<uint8_t> frame) {
    for (uint32_t i = in_.below(4); i > 0 && !frame.empty(); --i) {
      frame[in_.below(static_cast<uint32_t>(frame.size()))] = in_.byte();
    }
    if (in_.below(8) == 7) frame.resize(in_.below(200));
    hear(frame);
  }
  void hear_anything() {
    std::vector<uint8_t> frame(in_.below(200));
    in_.fill(frame);
    const uint16_t types[] = {0x0806, 0x86dd, 0x0800};
    if (frame.size() >= 14) wire::store_be16(frame.data() + 12, in_.one_of(types));
    hear(frame);
  }

  // Another such port: its frames are right until they are changed.
  void peer_asks(bool v4_too) {
    peer_.want(v4_too ? v4(1) : v6(1), now_);
    now_ += std::chrono::seconds(2);
    peer_.on_time(now_);
    pass_on(peer_);
  }
  void peer_answers() {
    for (const std::vector<uint8_t>& frame : said_) peer_.take(frame, now_);
    said_.clear();
    pass_on(peer_);
  }
  void pass_on(Resolution& from) {
    std::array<uint8_t, Resolution::kLongestFrame> frame;
    while (const size_t size = from.next_frame(frame))
      hear_changed({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size)});
  }

  void look() {
    std::array<uint8_t, Resolution::kLongestFrame> frame;
    size_t count = 0;
    while (const size_t size = port_.next_frame(frame)) {
      check(size >= 60 && size <= frame.size(), "a frame is of Ethernet's size");
      check(std::equal(kOwnMac.begin(), kOwnMac.end(), frame.begin() + 6), "what leaves is of this port");
      said_.emplace_back(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
      check(++count <= Resolution::kMostFrames, "frames to send are bounded");
    }
    if (said_.size() > Resolution::kMostFrames) said_.clear();
    for (const IpAddress& address : port_.take_changed()) {
      check(std::find(wanted_.begin(), wanted_.end(), address) != wanted_.end(), "nobody else becomes a neighbour");
      const Neighbour neighbour = port_.neighbour(address);
      check(!neighbour.has_mac() || ((neighbour.mac[0] & 1) == 0 && neighbour.mac != wire::MacAddress{}),
            "a neighbour is one station");
    }
  }

  Input& in_;
  Time now_{std::chrono::hours(1)};
  Resolution port_{kOwnMac, {v4(1), v6(1)}}, peer_{kPeerMac, {v4(2), v4(3), v6(2), v6(3)}};
  std::vector<IpAddress> wanted_;
  std::vector<std::vector<uint8_t>> said_;
};

// What is taken is a port that can be used.
void read_file(const std::string& text) {
  const auto result = net::parse_port_file(text);
  if (const auto* const problem = std::get_if<std::string>(&result)) {
    return check(!problem->empty() && problem->size() < 200, "an error says what is wrong");
  }
  const auto& file = std::get<net::PortFile>(result);
  check(!file.name.empty() && file.name.size() < 16, "it has a name");
  check(!file.addresses.empty() && file.addresses.size() <= net::PortFile::kMostAddresses, "and addresses");
  check(file.mtu >= 576 && file.mtu <= 9000 && file.vlan < 4095 && (file.mac[0] & 1) == 0, "within their limits");
  check(net::netdev_of(file).addresses.size() == file.addresses.size(), "which its netdev has");
}

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace uroce::fuzz;
  Input in(data, size);
  if (in.below(4) == 3) {
    read_file(std::string(reinterpret_cast<const char*>(data), size).substr(size == 0 ? 0 : 1));
    return 0;
  }
  Link link(in);
  for (int i = 0; i < kOperations && !in.empty(); ++i) link.step();
  return 0;
}
