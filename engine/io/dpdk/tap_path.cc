// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/dpdk/tap_path.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>

#include "base/concat.h"
#include "base/fork.h"

namespace uroce::io {
namespace {

constexpr const char* kDevice = "/dev/net/tun";

IoError tap_error(int code, const std::string& netdev) {
  const std::string what = concat("tap ", netdev, ": ");
  switch (code) {
    case EBUSY:
      return {code, what + "another process has it", "a port and its tap are one process's at a time"};
    case EPERM:
      return {code, what + "it is another user's",
              concat("make it for this one: sudo ip tuntap add dev ", netdev, " mode tap user NAME")};
    case EINVAL:
      return {code, what + "it is no tap of one queue without headers",
              concat("make one: sudo ip tuntap add dev ", netdev, " mode tap user NAME")};
    default:
      return {code, what + std::generic_category().message(code), concat("see ip -d link show ", netdev)};
  }
}

// The carrier has come, and the kernel tells of it a little later. A netdev that is not up has none.
void wait_until_running(ifreq request) {
  constexpr int kLongest = 1000;  // ms
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (int i = 0; i < kLongest; ++i) {
    if (ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP) == 0) return;
    if ((request.ifr_flags & IFF_RUNNING) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

IoResult<TapPath> TapPath::open(const std::string& netdev) {
  UniqueFd fd(::open(kDevice, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    return IoError{errno, concat(kDevice, ": ", std::generic_category().message(errno)),
                   "load the module tun, and let the user read and write the file"};
  }
  ifreq request{};
  if (netdev.size() >= sizeof(request.ifr_name)) return tap_error(ENODEV, netdev);
  netdev.copy(request.ifr_name, netdev.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(fd.get(), TUNSETIFF, &request) != 0) return tap_error(errno, netdev);
  // Who had it before may have taken frames of 64 KiB and without checksums.
  if (ioctl(fd.get(), TUNSETOFFLOAD, 0) != 0) return tap_error(errno, netdev);
  wait_until_running(request);
  return std::unique_ptr<TapPath>(new TapPath(std::move(fd)));
}

// A child would keep the tap busy.
TapPath::TapPath(UniqueFd fd) : fd_(std::move(fd)) {
  ForkGuard guard;
  guard.close_in_children(fd_.get());
}

TapPath::~TapPath() {
  ForkGuard guard;
  guard.forget(fd_.get());
  fd_.reset();
}

// What the kernel does not take is lost, as on a wire.
void TapPath::take(std::span<const uint8_t> frame) {
  [[maybe_unused]] const ssize_t written = write(fd_.get(), frame.data(), frame.size());
}

size_t TapPath::next(std::span<uint8_t> out) {
  const ssize_t size = read(fd_.get(), out.data(), out.size());
  return size > 0 ? static_cast<size_t>(size) : 0;
}

void TapPath::link(bool up) {
  if (up == std::exchange(link_, up)) return;
  const int carrier = up ? 1 : 0;
  ioctl(fd_.get(), TUNSETCARRIER, &carrier);
}

}  // namespace uroce::io
