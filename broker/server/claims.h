// SPDX-License-Identifier: BSD-2-Clause
// Reads kClaim (broker/protocol/protocol.h): sockets that clients had of an earlier broker. Who looks at a descriptor
// of a client, or closes it, may have to wait as long as its sender likes: for a file of his own file system (FUSE),
// for a socket whose lock he holds by a sendto() from such memory. So each claim is read by a process of its own, which
// stages the sockets (staging.h), and none of these descriptors is ever open in the broker. Used by its only thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <poll.h>
#include <sys/types.h>
#include <variant>
#include <vector>

#include "base/time.h"
#include "base/unique_fd.h"
#include "broker/steering/staging.h"

namespace uroce::broker {

class Claims {
 public:
  static constexpr ptrdiff_t kMostOfOwner = 8;
  // How long one may take.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  explicit Claims(Staging& staging) : staging_(staging) {}
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  struct Claim {
    uint64_t client;  // number
    uid_t user;
    int socket;     // in whose queue it is the first message, until it is read and the broker drops it
    bool has_v6;    // Message
    bool of_owner;  // or of root
  };
  // Of a user one at a time is read, of the owner more; those of his processes that cannot end count for what he may
  // have of all.
  enum class Begun { kYes, kNotYet, kNever };
  Begun begin(const Claim& claim, Time now);
  bool is_reading(uint64_t client) const;
  bool is_reading() const { return std::any_of(processes_.begin(), processes_.end(), is_read); }
  // The client has gone.
  void forget(uint64_t client);

  // Readable when work() has something to do; so it has at deadline().
  void add_waits(std::vector<pollfd>& waits) const;
  Time deadline(Time now) const;

  struct Read {
    uint32_t place;  // where it is staged
    bool has_all;    // the process has copies of all that the message brings: it may be dropped
    std::variant<Staging::Staged, Staging::Objection> what;
  };
  // What became of the claim: nothing, it was not read in time. The process keeps its copies until that returns.
  using Done = std::function<void(uint64_t client, const std::optional<Read>& read)>;
  void work(Time now, const Done& done);
  // A process may still have copies of all that is open here: what is closed here now it may be the last to close.
  bool has_starting_child() const;

 private:
  struct Process {
    uint64_t client;  // 0: it is of no use any more
    uid_t user;
    uint32_t place;
    pid_t pid;
    UniqueFd pipe;
    Time ends;
    bool has_begun = false;  // it has nothing of the broker open but what it needs
  };
  static bool is_read(const Process& process) { return process.client != 0; }
  struct Report;
  [[noreturn]] static void run(const Staging& staging, const Claim& claim, uint32_t place, int pipe);
  std::optional<uint32_t> free_place() const;
  std::optional<Read> hear(Process& process) const;
  void reap();

  Staging& staging_;
  std::vector<Process> processes_;
};

}  // namespace uroce::broker
