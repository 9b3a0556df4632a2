// SPDX-License-Identifier: BSD-2-Clause
// What others tell Manager's thread: the agent's threads, and whoever reads the kernel's news of the network. Nothing
// of Manager is touched by them, so nobody waits for anybody.
#pragma once

#include <atomic>
#include <mutex>
#include <variant>
#include <vector>

#include "cm/types.h"

namespace uroce::rdma_cm {

class Mailbox {
 public:
  struct Loss {};
  struct Return {};
  using Letter = std::variant<cm::Event, Loss, Return>;

  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread. A letter for which there is no memory is lost.
  void put(const Letter& letter);
  void network_has_changed();
  void wake();
  void end();

  // The thread: readable after any of these.
  int descriptor() const { return wake_; }
  std::vector<Letter> take();
  bool take_network_change() { return network_changed_.exchange(false); }
  bool ended() const { return ended_.load(); }

 private:
  int wake_ = -1;
  std::mutex lock_;
  std::vector<Letter> letters_;
  std::atomic<bool> network_changed_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace uroce::rdma_cm
