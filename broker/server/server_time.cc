// SPDX-License-Identifier: BSD-2-Clause
// Whose time it is that the broker takes.
//
// Whatever is sent, read or closed takes as long as there are waiters at the other end, 0.1 us each: a user can have
// millions of them. So each such step is on the account of the user at that end, and he is asked for before it.
#include <cerrno>

#include "base/clock.h"
#include "broker/server/server.h"

namespace uroce::broker {

bool Server::has_time(uid_t user, Time now) const {
  return is_owner(user) || budget_.has_some(user, now);
}

bool Server::has_time_for(const cm::Account& account) {
  return account.has_reserve || budget_.has_some(static_cast<uid_t>(account.user), now_());
}

Duration Server::spent() const {
  return thread_time() - charged_;
}

void Server::charge(const cm::Account& account, Duration since) {
  const Duration took = spent() - since;
  charged_ += took;
  if (!account.has_reserve) budget_.spend(static_cast<uid_t>(account.user), took, now_());
}

void Server::charge(uid_t user, Duration since) {
  charge({cm::UserId{user}, is_owner(user)}, since);
}

bool Server::serve_on_account(Client& client) {
  const Duration begin = spent();
  const bool goes_on = serve(client);
  charge(client.peer.uid, begin);
  return goes_on;
}

// Others do not wait for more messages of one user than so many. Nor is he answered while too much waits to be closed
// of what he has had: his processes that close it may never end.
bool Server::has_its_turn(const Client& client) {
  const uid_t user = client.peer.uid;
  if (is_trusted(user)) return true;
  if (closer_.is_full() || kept_of(user) >= kMostKeptOfUser) return false;
  return is_owner(user) || ++served_[user] <= kServedOfUser;
}

// What is no answer. EAGAIN as well while the user has no time.
int Server::tell(const Client& client, const Message& message, std::span<const int> descriptors) {
  if (!has_time(client.peer.uid, now_())) return EAGAIN;
  const Duration begin = spent();
  const int error = send(client.reports.get(), message, descriptors);
  charge(client.peer.uid, begin);
  return error;
}

}  // namespace uroce::broker
