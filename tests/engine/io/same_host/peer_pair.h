// SPDX-License-Identifier: BSD-2-Clause
// Both ends of what connects two processes of a host, as a broker makes them (broker/server/server_meetings.cc).
#pragma once

#include <array>
#include <cerrno>

#include "base/bell.h"
#include "base/unique_fd.h"
#include "engine/io/same_host/peer.h"

namespace uroce::io::test {

// 0 or an errno value.
inline int make_peers(PeerEnd& one, PeerEnd& other) {
  std::array<UniqueFd, 2> memories;
  for (UniqueFd& memory : memories) {
    if (const int error = PeerMemory::make(memory); error != 0) return error;
  }
  auto [ours, theirs] = make_bell();
  if (!ours) return EMFILE;
  one = {PeerMemory::for_writing(memories[0].get(), true), std::move(memories[1]), std::move(ours)};
  other = {PeerMemory::for_writing(one.memory.get(), true), std::move(memories[0]), std::move(theirs)};
  return one.own && other.own ? 0 : EINVAL;
}

}  // namespace uroce::io::test
