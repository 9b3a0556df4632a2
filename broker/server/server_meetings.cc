// SPDX-License-Identifier: BSD-2-Clause
// Who exchanges packets with whom by memory.
#include <array>
#include <cerrno>
#include <optional>
#include <sys/types.h>

#include "base/bell.h"
#include "base/concat.h"
#include "broker/server/server.h"
#include "cm/shares.h"

namespace uroce::broker {

// A user's processes need not mistrust each other, and nobody root's. Two that are about to meet do so as soon as both
// have sealed their memory, whatever they say.
void Server::meet(const Client& client, const Message& request) {
  const auto own = client.leases.find(request.range);
  const Client* const other = holder(request.other);
  if (own == client.leases.end() || other == nullptr || other == &client) return;  // one has been given back
  if (other->leases.at(request.other).ifindex != own->second.ifindex) return;
  bring_together(client, request.range, request.other);
  if (request.kind == Kind::kSealed) return;
  const uid_t asks = client.peer.uid, is_asked = other->peer.uid;
  if (asks != is_asked && !policy_.memory_between_users) return;
  const bool one_is_enough = asks == is_asked || asks == 0;
  if (!meetings_.wish(request.range, request.other, one_is_enough, now_())) return;
  const auto has_many = [this](const Client& each, uid_t user) {
    return user != 0 && user != each.peer.uid && met_of_user(each, user) >= kMostMetOfUser;
  };
  if (has_many(client, is_asked) || has_many(*other, asks)) return;
  if (!may_begin_to_meet(client) || !may_begin_to_meet(*other)) return;
  // That they part from their last meeting would end this one.
  if (partings_.is_untold(request.range, request.other) || partings_.is_untold(request.other, request.range)) return;
  prepare_meeting(client, request.range, *other, request.other);
}

// `to` need not trust it.
bool Server::is_stranger(const Client& it, const Client& to) {
  return it.peer.uid != to.peer.uid && it.peer.uid != 0;
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

bool Server::may_begin_to_meet(const Client& client) const {
  const uid_t user = client.peer.uid;
  const size_t own = pending_.unsealed_by([&](uint32_t range) { return holder(range)->peer.uid == user; });
  return cm::Shares::leaves_enough(kMostPendingMeetings, pending_.size(), own,
                                   {cm::UserId{user}, is_owner(client.peer.uid)});
}

// Two clients that have ranges on one netdev get the memory that they write to.
void Server::prepare_meeting(const Client& client, uint32_t range, const Client& other, uint32_t its_range) {
  const auto* const pending = pending_.begin(range, its_range, client.peer.uid != other.peer.uid);
  if (pending == nullptr) return;
  const auto gives = [&](const Client& to, uint32_t own, const Client& it, uint32_t peer) {
    Message message = make_message(Kind::kMemory);
    message.range = own;
    message.other = peer;
    message.of_stranger = it.peer.uid != to.peer.uid;
    return tell(to, message, std::array{pending->memory_of(own)}) == 0;
  };
  const bool it_is_told = gives(other, its_range, client, range);
  if (it_is_told && gives(client, range, other, its_range)) return meetings_.settle(range, its_range);
  pending_.end(range, its_range);
  // Whoever does not listen has to ask again, and not soon; the other one does not keep its memory for that.
  if (!it_is_told) {
    put_off(other, its_range, client, range);
    return meetings_.drop_wish(its_range, range);
  }
  put_off(client, range, other, its_range);
  meetings_.drop_wish(range, its_range);
  part(its_range, range);
}

// `client` does not listen. What processes of one user make each other do is their affair: many that begin together
// cannot be told of all others at once.
void Server::put_off(const Client& client, uint32_t range, const Client& other, uint32_t its_range) {
  if (client.peer.uid != other.peer.uid) meetings_.put_off(range, its_range, now_() + kPutOff);
}

// They get what connects them if each has sealed what it writes to. If one of them cannot be told, the other does not
// keep its memory.
void Server::bring_together(const Client& client, uint32_t range, uint32_t its_range) {
  auto sealed = pending_.take_sealed(range, its_range);
  if (!sealed) return;
  const Client& other = *holder(its_range);
  auto [ours, theirs] = make_bell();
  const auto gives = [&](const Client& to, uint32_t own, const Client& it, uint32_t peer, const UniqueFd& bell) {
    Message message = make_message(Kind::kPeer);
    message.range = own;
    message.other = peer;
    message.of_stranger = is_stranger(it, to);
    return bell && tell(to, message, std::array{sealed->memory_of(peer), bell.get()}) == 0;
  };
  const bool it_is_told = gives(other, its_range, client, range, theirs);
  const bool both_are = it_is_told && gives(client, range, other, its_range, ours);
  const uid_t mistrusted = is_trusted(client.peer.uid) ? other.peer.uid : client.peer.uid;
  for (UniqueFd* const each : {&ours, &theirs}) leave_to(mistrusted, std::move(*each));
  pending_.hold_until(now_() + kHoldTime, std::move(*sealed));
  if (both_are) return log(client, concat("exchanges packets with process ", other.peer.pid, " by memory"));
  meetings_.unsettle(range, its_range);
  part(range, its_range);
  part(its_range, range);
  it_is_told ? put_off(client, range, other, its_range) : put_off(other, its_range, client, range);
}

// Whoever it was has not met anybody any more. The others hear of that, or they would send the next one's packets to
// the memory that the last one may still have.
void Server::take_away(Client& client, uint32_t range) {
  for (const uint32_t other : meetings_.met(range)) part(other, range);
  client.leases.erase(range);
  holders_.erase(range);
  meetings_.forget(range);
  pending_.forget(range);
}

// The client with range `other` is told that it has no peer with `range`, or has it no longer.
void Server::part(uint32_t other, uint32_t range) {
  partings_.add(other, range, now_() + kPartingTime,
                [this](uint32_t told, uint32_t gone) { return tell_of_parting(told, gone); });
}

// True as well if there is nobody to be told.
bool Server::tell_of_parting(uint32_t other, uint32_t range) {
  const Client* const client = holder(other);
  if (client == nullptr) return true;
  Message message = make_message(Kind::kPart);
  message.range = other;
  message.other = range;
  return tell(*client, message) != EAGAIN;
}

// True as well if there is nobody.
bool Server::has_read(uint32_t other) const {
  const Client* const client = holder(other);
  return client == nullptr || !is_unread(client->reports.get());
}

}  // namespace uroce::broker
