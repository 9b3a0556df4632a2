#include "engine/device/io_choice.h"

#include "engine/base/concat.h"
#include "engine/io/af_xdp/af_xdp.h"
#include "engine/io/af_xdp/error.h"

namespace uroce::engine {
namespace {

using net::Segmentation;

XdpMode xdp_mode(const net::XdpSupport& driver, bool force_generic) {
  if (force_generic || !driver.native) return XdpMode::kGeneric;
  return driver.zero_copy ? XdpMode::kZeroCopy : XdpMode::kNative;
}

// Frames with a run of packets can come although an XDP program is attached: AF_XDP would lose them. Native XDP ends
// them at a veth or virtio-net device; what a guest sends comes to its tap device whole all the same.
bool runs_reach_af_xdp(const IoFacts& facts) {
  return facts.to_software && (facts.xdp_mode == XdpMode::kGeneric || facts.features.driver == "tun");
}

std::string no_segmentation(Segmentation state) {
  switch (state) {
    case Segmentation::kOff:
      return "tx-udp-segmentation is off";
    case Segmentation::kWithdrawn:
      return "tx-udp-segmentation is on, but not possible at present";
    default:
      return "the driver has no tx-udp-segmentation";
  }
}

// The best one if nothing keeps us from AF_XDP. A system call and the kernel's way through its stack per packet are the
// price of UDP sockets, and a run of packets pays it once; but without segmentation offload each pays for itself, even
// if the kernel cuts the run late. Zero-copy is better than either where frames go to a wire; where they go to software
// that handles them one by one, runs are better (reference/udp-sockets.md, reference/af-xdp.md "Measured").
IoChoice best_io(const IoFacts& facts) {
  const bool runs = facts.features.udp_segmentation == Segmentation::kOn;
  const bool native_only = facts.to_software;  // as runs_reach_af_xdp() would say otherwise
  if (facts.xdp_mode == XdpMode::kZeroCopy && !(runs && facts.to_software)) {
    return {IoKind::kAfXdp, "zero-copy", native_only};
  }
  if (runs) return {IoKind::kUdp, "tx-udp-segmentation is on"};
  if (runs_reach_af_xdp(facts)) return {IoKind::kUdp, "runs of packets may arrive, which AF_XDP would lose"};
  return {IoKind::kAfXdp, no_segmentation(facts.features.udp_segmentation), native_only};
}

}  // namespace

IoFacts io_facts(const net::Netdev& netdev, const Options& options) {
  IoFacts facts;
  facts.features = net::netdev_features(netdev.index, netdev.name);
  facts.xdp_mode = xdp_mode(facts.features.xdp, options.force_generic_xdp);
  facts.to_software = !netdev.kind.empty() || facts.features.driver == "virtio_net";
  facts.attached = io::attached_xdp_program(netdev.index);
  if (facts.attached && facts.attached->is_ours()) {
    facts.taken = io::program_present_error(netdev.name, *facts.attached);
  }
  facts.no_af_xdp = io::AfXdp::obstacle(netdev.index, netdev.name, netdev.vlans);
  return facts;
}

IoChoice choose_io(const IoFacts& facts, Options::Io wanted) {
  if (facts.taken) return {IoKind::kNone, facts.taken->text()};
  if (wanted == Options::Io::kAfXdp) return {IoKind::kAfXdp, "as UROCE_IO says"};
  if (wanted == Options::Io::kUdp) return {IoKind::kUdp, "as UROCE_IO says"};
  IoChoice best = best_io(facts);
  if (best.kind != IoKind::kAfXdp || !facts.no_af_xdp) return best;
  return {IoKind::kUdp, concat("not AF_XDP: ", facts.no_af_xdp->text())};
}

}  // namespace uroce::engine
