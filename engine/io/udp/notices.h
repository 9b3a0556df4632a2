// SPDX-License-Identifier: BSD-2-Clause
// What UdpIo finds out while packets move and people should know of: said once, and again only after it worked in
// between. The data path notes it; another thread, which may wait for a terminal, says it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/lock_watch.h"
#include "wire/envelope.h"

namespace uroce::io {

struct Notice {
  enum class What : uint8_t {
    kRunsRefused,    // packets leave one by one
    kTooLong,        // for the path: packets of `length` bytes and more are lost
    kCameElsewhere,  // packets to an address of this netdev come in on another one, `netdev`, and are dropped
  };
  What what;
  wire::IpAddress to{};  // unspecified: to any
  int error = 0;         // errno value
  uint32_t length = 0;   // IP header included
  int netdev = 0;        // ifindex
};

// Empty: nothing that people should know of.
std::string text(const Notice& notice);

class Notices {
 public:
  static constexpr size_t kMost = 16;  // at a time; more are only counted (IoCounters)

  // In the data path, which has one thread at a time.
  void note(const Notice& notice);
  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }
  // It works again: kTooLong, packets of this length do.
  void end(Notice::What what, const wire::IpAddress& to, uint32_t length = 0);

  // What is new since the last call, for people. In any thread.
  std::vector<std::string> take();

 private:
  struct Entry {
    Notice notice;
    bool taken;
  };
  Entry* find(Notice::What what, const wire::IpAddress& to);

  LeafMutex lock_;  // of changes, and of take(); held for a few instructions
  std::array<Entry, kMost> entries_;
  std::atomic<size_t> count_ = 0;
  std::atomic<bool> fresh_ = false;
};

}  // namespace uroce::io
