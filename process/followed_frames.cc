// SPDX-License-Identifier: BSD-2-Clause
#include "process/followed_frames.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/concat.h"

namespace uroce::engine {

namespace {

// The kernel announces no program that somebody detaches, and not every driver other queues. A look costs two system
// calls.
constexpr Duration kLook = std::chrono::seconds(1);
// Between attempts, growing as long as they fail; each may take some seconds.
constexpr Duration kFirstRetry = std::chrono::seconds(1), kLastRetry = std::chrono::seconds(64);

}  // namespace

std::variant<std::shared_ptr<FollowedFrames>, io::IoError> FollowedFrames::open(io::AfXdpConfig config, Open open) {
  auto result = open(config);
  if (auto* const error = std::get_if<io::IoError>(&result)) return std::move(*error);
  auto& frames = std::get<std::unique_ptr<io::AfXdp>>(result);
  return std::shared_ptr<FollowedFrames>(new FollowedFrames(std::move(config), std::move(open), std::move(frames)));
}

FollowedFrames::FollowedFrames(io::AfXdpConfig config, Open open, std::unique_ptr<io::AfXdp> frames)
    : config_(std::move(config)),
      open_(std::move(open)),
      frames_(frames.get()),
      owned_(std::make_unique<io::ReplaceableIo>(std::move(frames))),
      io_(*owned_),
      addresses_(config_.local_addresses) {}

int FollowedFrames::set_addresses(const wire::MacAddress& mac, std::span<const wire::IpAddress> addresses) {
  config_.mac = mac;
  addresses_.assign(addresses.begin(), addresses.end());
  if (frames_ == nullptr) return 0;  // whoever is opened gets them
  const int mac_error = frames_->set_mac(mac);
  const int addresses_error = frames_->set_local_addresses(addresses);
  const int error = mac_error != 0 ? mac_error : addresses_error;
  if (error != 0 && error != addresses_error_) {
    notices_.push_back(
        concat("AF_XDP cannot follow the netdev's addresses: ", std::generic_category().message(error),
               "; packets to new ones are lost until a later attempt succeeds, or the program is started again"));
  }
  return addresses_error_ = error;
}

Time FollowedFrames::follow(const net::Netdev& now, const OpenedIo::Exclusively& exclusively, Time time) {
  config_.netdev = now.name;
  config_.vlans = now.vlans;
  config_.local_addresses = now.addresses;
  config_.mtu = std::max(config_.mtu, now.mtu);
  if (frames_ != nullptr) {
    look_at(now, exclusively, time);
  } else if (time >= retry_at_) {
    open_again(exclusively, time);
  }
  return frames_ != nullptr ? time + kLook : retry_at_;
}

// Is said once as long as it is so: what is in the way of opening AF_XDP anew, and what would be of opening it.
void FollowedFrames::look_at(const net::Netdev& now, const OpenedIo::Exclusively& exclusively, Time time) {
  std::vector<std::string> wrong;
  std::optional<io::IoError> obstacle = io::AfXdp::vlan_obstacle(now.name, now.vlans);
  if (obstacle) wrong.push_back(obstacle->text());
  if (frames_->is_detached()) {
    wrong.push_back(concat("somebody has detached uroce's XDP program (bpftool link detach): ", loss(),
                           "; start the programs that use uroce again"));
  }
  why_ = frames_->outgrown(now.name, now.mtu);
  if (!why_.empty()) {
    obstacle = io::AfXdp::obstacle_to_reopening(now.name, now.vlans);
    if (!obstacle) {
      std::unique_ptr<io::PacketIo> former;
      exclusively([&] {
        frames_ = nullptr;
        former = io_.take();
      });
      former.reset();  // the netdev is free when that returns
      standing_.clear();
      retry_after_ = kFirstRetry;
      return open_again(exclusively, time);
    }
    const bool given_up = obstacle->code == EPERM;  // uroce run --user: rights end when AF_XDP is open
    wrong.push_back(concat(why_, ": AF_XDP stays as it is, and of new queues ", loss(),
                           "; it cannot be opened anew: ", given_up ? obstacle->what : obstacle->text(),
                           given_up ? "; start the programs that use uroce again" : ""));
  }
  for (const std::string& text : wrong) {
    if (std::find(standing_.begin(), standing_.end(), text) == standing_.end()) notices_.push_back(text);
  }
  standing_ = std::move(wrong);
}

void FollowedFrames::open_again(const OpenedIo::Exclusively& exclusively, Time time) {
  auto result = open_(config_);
  if (const auto* const error = std::get_if<io::IoError>(&result)) {
    std::string text =
        concat("AF_XDP has to be opened anew (", why_, ") and cannot be: ", error->text(), "; until then ", loss());
    if (text != failure_) notices_.push_back(text);
    failure_ = std::move(text);
    retry_at_ = time + retry_after_;
    retry_after_ = std::min(2 * retry_after_, kLastRetry);
    return;
  }
  auto& frames = std::get<std::unique_ptr<io::AfXdp>>(result);
  io::AfXdp* const opened = frames.get();
  exclusively([&] { io_.put(std::move(frames)); });
  frames_ = opened;
  failure_.clear();
  set_addresses(config_.mac, std::exchange(addresses_, {}));  // with the multicast groups
  notices_.push_back(concat(why_, ": opened anew: ", frames_->description()));
}

// What happens to packets that AF_XDP does not take.
std::string FollowedFrames::loss() const {
  return config_.qpns ? "packets take the slower way, through sockets" : "packets are lost";
}

}  // namespace uroce::engine
