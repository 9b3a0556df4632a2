// SPDX-License-Identifier: BSD-2-Clause
// How connections and descriptors end here: nothing whose last close() may take long is closed in the broker's thread
// (slow_closer.h).
#include <algorithm>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/concat.h"
#include "broker/server/answers.h"
#include "broker/server/server.h"

namespace uroce::broker {

// Whose user has no time is left as it is to a process that ends.
void Server::let_go(ClientSocket& socket, UniqueFd& reports, uid_t user) {
  const bool has_some = has_time(user, now_());
  const Duration begin = spent();
  if (has_some) {
    socket.hang_up();
    reports.reset();
  }
  if (!has_some || !socket.drain()) closer_.add(socket.release(), user);
  closer_.add(std::move(reports), user);
  socket.release().reset();  // on this account
  charge(user, begin);
}

// A descriptor that `user` has been sent: he can have closed his by now, and made the last close() wait for what he
// likes.
void Server::leave_to(uid_t user, UniqueFd given) {
  if (!given || is_trusted(user)) return;
  if (given_.empty()) given_since_ = now_();
  given_.emplace_back(user, std::move(given));
}

// Of what the user has passed on or been given, here until a process closes it.
size_t Server::kept_of(uid_t user) const {
  const auto is_his = [user](const auto& each) { return each.first == user; };
  return closer_.of(user) + static_cast<size_t>(std::count_if(given_.begin(), given_.end(), is_his));
}

// A process closes many.
void Server::leave_given() {
  for (auto& [user, given] : given_) closer_.add(std::move(given), user);
  given_.clear();
}

// Whoever has not been accepted yet: what they have sent would be closed with the listener, and waited for. One that
// another process has made (systemd) stays open there, and they are for the next broker.
void Server::accept_rest(int listener) {
  const std::optional<Peer> maker = peer_of(listener);
  if (!maker || maker->pid != getpid()) return;
  shutdown(listener, SHUT_RDWR);  // nobody comes any more
  while (true) {
    ClientSocket socket(UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)));
    if (socket.get() < 0) return;
    const std::optional<Peer> peer = peer_of(socket.get());
    if (peer) leaving_.push_back({std::move(socket), UniqueFd(), peer->uid});
  }
}

// To tell him, and to close it, costs time of his.
void Server::turn_away(ClientSocket socket, uid_t user) {
  const bool has_some = has_time(user, now_());
  if (has_some) {
    socket.send(refusal(EBUSY, concat("user ", user, " has as many programs here as are left for all others")));
  }
  if (!has_some || !socket.drain()) closer_.add(socket.release(), user);
}

void Server::close_later(ClientSocket socket, const cm::Account& account) {
  const Duration begin = spent();
  if (has_time_for(account)) socket.hang_up();
  charge(account, begin);
  leaving_.push_back({std::move(socket), UniqueFd(), static_cast<uid_t>(account.user)});
}

// Whoever has not read what it was sent stays, and counts for what its user may have (may_connect()); so does whose
// user has no time, as to close costs as much as there are waiters at the other end.
void Server::close_some() {
  size_t closed = 0;
  for (auto leaving = leaving_.begin(); leaving != leaving_.end() && closed < kMostClosed && !closer_.is_full();) {
    const uid_t user = leaving->user;
    if (!has_time(user, now_()) || !leaving->is_read()) {
      ++leaving;
      continue;
    }
    const Duration begin = spent();
    if (!leaving->socket.drain()) closer_.add(leaving->socket.release(), user);
    leaving = leaving_.erase(leaving);
    ++closed;
    charge(user, begin);
  }
  closes_more_ = closed == kMostClosed;
  if (given_.size() >= kEnoughGiven || now_() >= given_since_ + kGivenTime) leave_given();
  if (has_starting_child()) return;
  const Duration begin = spent();
  if (const auto user = closer_.work([this](uid_t each) { return has_time(each, now_()); })) charge(*user, begin);
}

}  // namespace uroce::broker
