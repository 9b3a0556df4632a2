// SPDX-License-Identifier: BSD-2-Clause
#include "process/io_choice/io_choice.h"

#include <cerrno>

#include "base/concat.h"
#include "engine/io/af_xdp/af_xdp.h"
#include "engine/io/af_xdp/error.h"

namespace uroce::engine {
namespace {

XdpMode xdp_mode(const net::XdpSupport& driver, bool force_generic) {
  if (force_generic || !driver.native) return XdpMode::kGeneric;
  return driver.zero_copy ? XdpMode::kZeroCopy : XdpMode::kNative;
}

// The best one if nothing keeps us from AF_XDP.
//
// Where frames go to software, UDP sockets: XDP there ends segmentation offload for everybody who sends to the netdev,
// or loses runs that arrive, and runs are faster, even those that the kernel cuts (docs/performance.md "Netdevs without
// segmentation offload"). On a wire zero-copy is better than runs, and runs are better than AF_XDP in copy mode.
IoChoice best_io(const IoFacts& facts) {
  const bool runs = facts.features.udp_segmentation == net::Segmentation::kOn;
  if (facts.no_frames) return {IoKind::kUdp, facts.no_frames->what};
  const bool zero_copy = facts.xdp_mode == XdpMode::kZeroCopy;
  if (runs && (facts.to_software || !zero_copy)) return {IoKind::kUdp, "tx-udp-segmentation is on"};
  if (facts.to_software) {
    return {IoKind::kUdp, "a virtual netdev, where AF_XDP ends segmentation offload for others or loses runs"};
  }
  return {IoKind::kAfXdp, zero_copy ? "zero-copy" : "no tx-udp-segmentation"};
}

}  // namespace

IoFacts io_facts(const net::Netdev& netdev, const Options& options) {
  IoFacts facts;
  facts.features = net::netdev_features(netdev.index, netdev.name);
  if (netdev.type != net::LinkType::kEthernet) {
    const char* const what =
        netdev.type == net::LinkType::kLoopback ? " leads to this network namespace only" : " has no MAC address";
    facts.to_software = true;
    facts.no_frames = facts.no_af_xdp = {EOPNOTSUPP, concat(netdev.name, what), "use UDP sockets: --io udp"};
    return facts;
  }
  facts.xdp_mode = xdp_mode(facts.features.xdp, options.force_generic_xdp);
  facts.to_software = !netdev.kind.empty() || facts.features.driver == "virtio_net";
  facts.attached = io::attached_xdp_program(netdev.index);
  if (facts.attached && facts.attached->takes_all()) {
    facts.taken = io::program_present_error(netdev.name, *facts.attached);
  }
  facts.no_af_xdp = io::AfXdp::obstacle(netdev.index, netdev.name, netdev.vlans);
  return facts;
}

IoChoice choose_io(const IoFacts& facts, Options::Io wanted) {
  if (facts.taken) return {IoKind::kNone, facts.taken->text(), facts.taken};
  if (facts.no_frames && (wanted == Options::Io::kAfXdp || wanted == Options::Io::kDpdk)) {
    return {IoKind::kNone, facts.no_frames->text(), facts.no_frames};
  }
  if (wanted == Options::Io::kAfXdp) return {IoKind::kAfXdp, "as UROCE_IO says"};
  if (wanted == Options::Io::kUdp) return {IoKind::kUdp, "as UROCE_IO says"};
  if (wanted == Options::Io::kDpdk) return {IoKind::kDpdk, "as UROCE_IO says"};
  IoChoice best = best_io(facts);
  if (best.kind != IoKind::kAfXdp || !facts.no_af_xdp) return best;
  return {IoKind::kUdp, concat("not AF_XDP: ", facts.no_af_xdp->text())};
}

}  // namespace uroce::engine
