#include "engine/device/open_io.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/concat.h"
#include "engine/base/fork.h"
#include "engine/device/capture_setup.h"
#include "engine/device/io_choice.h"
#include "engine/device/say.h"
#include "engine/io/af_xdp/af_xdp.h"
#include "engine/io/udp/udp.h"
#include "engine/net/multicast_memberships.h"

namespace uroce::engine {

namespace {

// What has been said of netdevs that cannot be opened. A program asks again with each QP that it creates.
struct Said {
  std::mutex lock;
  std::set<std::pair<int, std::string>> errors;
};

void say_once(const net::Netdev& netdev, const std::string& text) {
  Said& said = per_process<Said>();
  {
    std::lock_guard guard(said.lock);
    if (!said.errors.emplace(netdev.index, text).second) return;
  }
  say(netdev.name, text);
}

std::variant<OpenedIo, io::IoError> open_af_xdp(const net::Netdev& netdev, const Options& options) {
  io::AfXdpConfig config;
  config.ifindex = netdev.index;
  config.netdev = netdev.name;
  config.mtu = netdev.mtu;
  config.mac = netdev.mac;
  config.local_addresses = netdev.addresses;
  config.vlans = netdev.vlans;
  config.force_generic = options.force_generic_xdp;
  auto result = io::AfXdp::open(config);
  if (auto* error = std::get_if<io::IoError>(&result)) return *error;
  auto& xdp = std::get<std::unique_ptr<io::AfXdp>>(result);
  OpenedIo opened;
  opened.set_addresses = [xsk = xdp.get(), netdev, before = 0](const wire::MacAddress& mac,
                                                               std::span<const wire::IpAddress> addresses) mutable {
    const int mac_error = xsk->set_mac(mac);
    const int addresses_error = xsk->set_local_addresses(addresses);
    const int error = mac_error != 0 ? mac_error : addresses_error;
    if (error != 0 && error != before) {
      say(netdev.name,
          concat("AF_XDP cannot follow the netdev's addresses: ", std::generic_category().message(error),
                 "; packets to new ones are lost until a later attempt succeeds, or the program is started again"));
    }
    return before = error;
  };
  opened.check = [xsk = xdp.get(), before = std::vector<std::string>()](const net::Netdev& now) mutable {
    std::vector<std::string> texts = xsk->outgrown(now.mtu, now.vlans);
    for (const std::string& text : texts) {
      if (std::find(before.begin(), before.end(), text) == before.end()) say(now.name, text);
    }
    before = std::move(texts);
  };
  opened.io.push_back(std::move(xdp));
  return opened;
}

std::variant<OpenedIo, io::IoError> open_udp(const net::Netdev& netdev) {
  io::UdpConfig config{.netdev = netdev.name, .ifindex = netdev.index, .mtu = netdev.mtu};
  if (netdev.gso_max_size != 0) config.gso_max_size = netdev.gso_max_size;
  auto result = io::UdpIo::open(config);
  if (auto* error = std::get_if<io::IoError>(&result)) return *error;
  auto& udp = std::get<std::unique_ptr<io::UdpIo>>(result);
  OpenedIo opened;
  opened.report = [sockets = udp.get(), told = false](uint64_t runs_paused) mutable {
    std::vector<std::string> texts = sockets->take_notices();
    if (runs_paused > 0 && !std::exchange(told, true)) {
      texts.emplace_back(
          "a peer does not get runs of packets, as AF_XDP in generic mode there would explain: they leave one by one, "
          "which is slower; runs are tried again after a second, then ever less often");
    }
    return texts;
  };
  opened.io.push_back(std::move(udp));
  return opened;
}

// `why`: why it is UDP, if nobody asked for that.
std::variant<OpenedIo, io::IoError> open_best(const net::Netdev& netdev, const Options& options, std::string& why) {
  const IoFacts facts = io_facts(netdev, options);
  const IoChoice choice = choose_io(facts, options.io);
  const bool automatic = options.io == Options::Io::kAuto;
  if (choice.kind == IoKind::kNone) return *facts.taken;
  if (choice.kind == IoKind::kAfXdp) {
    std::variant<OpenedIo, io::IoError> result = open_af_xdp(netdev, options);
    const auto* const error = std::get_if<io::IoError>(&result);
    if (error == nullptr || !automatic) return result;
    why = concat("not AF_XDP: ", error->text());
  } else if (automatic) {
    why = choice.why;
  }
  return open_udp(netdev);
}

}  // namespace

std::variant<OpenedIo, io::IoError> open_packet_io(const net::Netdev& netdev, const Options& options) {
  std::string why;
  std::variant<OpenedIo, io::IoError> result = open_best(netdev, options, why);
  if (const auto* const error = std::get_if<io::IoError>(&result)) {
    say_once(netdev, error->text());
    return result;
  }
  auto& opened = std::get<OpenedIo>(result);
  const auto memberships = std::make_shared<net::MulticastMemberships>();
  opened.join = [memberships, index = netdev.index](const wire::IpAddress& group) {
    return memberships->join(index, group);
  };
  opened.leave = [memberships](const wire::IpAddress& group) { memberships->leave(group); };
  add_faults_and_capture(opened, netdev, options);
  if (!options.quiet) {
    say(netdev.name, opened.io.front()->description() + (why.empty() ? "" : concat(" (", why, ")")));
  }
  return result;
}

}  // namespace uroce::engine
