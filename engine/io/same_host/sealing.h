// SPDX-License-Identifier: BSD-2-Clause
// Peers of strangers on their way to a PeerExchange: none is used before nobody can take its memory away any more
// (Peer::seal()). Who has a mapping of it that can be written to could remove its pages (FALLOC_FL_PUNCH_HOLE), which
// takes the longer the more mappings he has, and whoever touches the memory then waits for that: here under the shard's
// lock. The seal that forbids it also forbids new mappings, so both sides map it first; and to set it takes a lock that
// the other side may keep for long, so a thread does, which nobody waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/time.h"
#include "engine/io/same_host/peer.h"

namespace uroce::io {

class Sealing : public std::enable_shared_from_this<Sealing> {
 public:
  // How long the other side may take to map the memory.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  // Gets each that is sealed, in a thread; not during forget(), forget_all() and end(), nor after the end.
  using Take = std::function<void(std::unique_ptr<Peer> peer)>;
  explicit Sealing(Take take) : take_(std::move(take)) {}

  // False: there is no thread for it.
  bool add(std::unique_ptr<Peer> peer);
  // The one with that range is of no use any more.
  void forget(uint32_t range);
  void forget_all();
  void end();
  size_t size() const;

 private:
  struct Waiting {
    std::unique_ptr<Peer> peer;
    Time ends;
  };
  void run();
  bool work();

  const Take take_;
  mutable std::mutex lock_;
  std::vector<Waiting> waiting_;
  Peer* sealed_ = nullptr;  // by the thread, without the lock
  bool forgotten_ = false;  // that one, meanwhile
  bool runs_ = false, ended_ = false;
};

}  // namespace uroce::io
