// SPDX-License-Identifier: BSD-2-Clause
// Who exchanges packets with whom by memory.
#include <array>
#include <cerrno>
#include <optional>
#include <sys/types.h>

#include "broker/server.h"
#include "engine/base/concat.h"
#include "engine/io/same_host/peer.h"

namespace uroce::broker {

// A user's processes need not mistrust each other, and nobody root's.
void Server::meet(const Client& client, const Message& request) {
  const auto own = client.leases.find(request.range);
  const Client* const other = holder(request.other);
  if (own == client.leases.end() || other == nullptr || other == &client) return;  // one has been given back
  if (other->leases.at(request.other).ifindex != own->second.ifindex) return;
  const uid_t asks = client.peer.uid, is_asked = other->peer.uid;
  const bool one_is_enough = asks == is_asked || asks == 0;
  if (!meetings_.wish(request.range, request.other, one_is_enough)) return;
  const auto has_many = [this](const Client& each, uid_t user) {
    return user != 0 && user != each.peer.uid && met_of_user(each, user) >= kMostMetOfUser;
  };
  if (has_many(client, is_asked) || has_many(*other, asks)) return;
  bring_together(client, request.range, *other, request.other);
}

size_t Server::met_of_user(const Client& client, uid_t user) const {
  size_t count = 0;
  for (const auto& [range, lease] : client.leases) {
    for (const uint32_t met : meetings_.met(range)) {
      const Client* const other = holder(met);
      count += other != nullptr && other->peer.uid == user ? 1 : 0;
    }
  }
  return count;
}

// Two clients that have ranges on one netdev get what connects them, once. If the asking one cannot be told, the other
// sees the end of it.
void Server::bring_together(const Client& client, uint32_t range, const Client& other, uint32_t its_range) {
  io::PeerEnd ours, theirs;
  if (io::make_peers(ours, theirs) != 0) return;
  const auto tell = [](const Client& to, uint32_t own, const Client& it, uint32_t peer, const io::PeerEnd& end) {
    Message message = make_message(Kind::kPeer);
    message.range = own;
    message.other = peer;
    message.side = end.side;
    message.of_stranger = it.peer.uid != to.peer.uid && it.peer.uid != 0;
    const std::array descriptors{end.memory.get(), end.bell.get()};
    return send(to.reports.get(), message, descriptors) == 0;
  };
  // Whoever does not listen has to ask again.
  if (!tell(other, its_range, client, range, theirs)) return meetings_.drop_wish(its_range, range);
  if (!tell(client, range, other, its_range, ours)) return meetings_.drop_wish(range, its_range);
  meetings_.settle(range, its_range);
  log(client, concat("exchanges packets with process ", other.peer.pid, " by memory"));
}

// Whoever it was has not met anybody any more. The others hear of that, or they would send the next one's packets to
// the memory that the last one may still have.
void Server::take_away(Client& client, uint32_t range) {
  const auto tell = [this](uint32_t other, uint32_t gone) { return tell_of_parting(other, gone); };
  for (const uint32_t other : meetings_.met(range)) partings_.add(other, range, now_() + kPartingTime, tell);
  client.leases.erase(range);
  holders_.erase(range);
  meetings_.forget(range);
}

// True as well if there is nobody to be told.
bool Server::tell_of_parting(uint32_t other, uint32_t range) const {
  const Client* const client = holder(other);
  if (client == nullptr) return true;
  Message message = make_message(Kind::kPart);
  message.range = other;
  message.other = range;
  return send(client->reports.get(), message) != EAGAIN;
}

}  // namespace uroce::broker
