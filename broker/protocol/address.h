// SPDX-License-Identifier: BSD-2-Clause
// Where the broker of a network namespace listens: UNIX sockets of the abstract namespace, which each network namespace
// has of its own, which only one process can have, and which are gone with that process. Root's broker serves many
// users; a user's own one serves that user only. A name that a stranger has taken is no broker: both sides look at who
// the other one is (SO_PEERCRED). The stranger keeps brokers from listening there all the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/unique_fd.h"

namespace uroce::broker {

// "@uroced", "@uroced-1000"; "@" stands for the abstract namespace.
std::string address_of_user(uid_t user);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};
// As the kernel says it. pid 0: not visible from here; uid kNobodyKnown: a user whom this user namespace does not know.
inline constexpr uid_t kNobodyKnown = UINT32_MAX;
std::optional<Peer> peer_of(int socket);

// Whom a process obeys that nobody has told whom to ask: root, and its own user.
bool is_trusted(const Peer& peer);
// A listening socket at an address: a path, or a name that begins with "@". EADDRINUSE: somebody listens there, or
// the path is something else. Otherwise an errno value. A path at which nobody listens any more is replaced.
int listen_at(const std::string& address, UniqueFd& socket);
// Where a socket listens; empty: nowhere, or not for messages of a broker.
std::string address_of(int socket);
// Removes the path of a socket that listened there.
void remove_path(const std::string& address);

// Never waits. ENOENT, ECONNREFUSED: nobody listens. EAGAIN: too many wait there already.
int connect_to(const std::string& address, UniqueFd& socket);
// The broker whom a process is to use, likewise: whoever listens at `address`; if that is empty, root's broker, or else
// the user's own one. ENOENT: there is none of these; EAGAIN: there may be one that is busy. Strangers who have taken
// their names are passed over.
int find_broker(const std::string& address, UniqueFd& socket);

}  // namespace uroce::broker
