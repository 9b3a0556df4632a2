// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/greeting.h"

#include <algorithm>
#include <endian.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::errors {

Peer greet(transfer::Control& control, const transfer::Device& device) {
  const ibv_gid& gid = device.gid();
  const Provider provider = provider_of(device.context());
  control.send(kHello, {cases_digest(), static_cast<uint64_t>(provider), be64toh(gid.global.subnet_prefix),
                        be64toh(gid.global.interface_id), device.active_mtu()});
  const transfer::Record hello = control.expect(kHello, 5, in_time());
  if (hello.words[0] != cases_digest() || hello.words[1] > static_cast<uint64_t>(Provider::kOther)) {
    throw transfer::Failure(transfer::ExitCode::kUsage, "the other side is another version of this program");
  }
  Peer peer{};
  peer.provider = static_cast<Provider>(hello.words[1]);
  peer.gid.global.subnet_prefix = htobe64(hello.words[2]);
  peer.gid.global.interface_id = htobe64(hello.words[3]);
  peer.mtu = std::min(device.active_mtu(), static_cast<uint32_t>(hello.words[4]));
  return peer;
}

transfer::ConnectionParameters parameters(const Peer& peer, const Case* item) {
  transfer::ConnectionParameters result{};
  result.remote_gid = peer.gid;
  result.mtu = peer.mtu;
  result.initiator_depth = result.responder_depth = 4;
  result.ack_timeout = 16;  // 268 ms: nothing is lost here, and a guest may be slow
  result.retry_count = 6;   // rxe takes 7 for endless
  result.rnr_timer = 20;    // 10 ms
  if (item != nullptr) {
    result.rnr_retry = item->rnr_retry;
    if (item->peer_is_dead()) {
      result.ack_timeout = 12;  // 17 ms
      result.retry_count = 3;
    }
  }
  return result;
}

}  // namespace uroce::errors
