// SPDX-License-Identifier: BSD-2-Clause
// The TCP connection over which the two sides tell each other of their queue pairs; in NCCL that is its bootstrap
// network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace uroce::nccl_style {

class Link {
 public:
  static Link serve(uint16_t port);
  static Link connect(const std::string& address, uint16_t port);
  explicit Link(int fd) : fd_(fd) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  // Both sides say a Value and hear the other's.
  template <typename Value>
  Value exchange(const Value& mine) {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value theirs;
    send(&mine, sizeof(mine));
    receive(&theirs, sizeof(theirs));
    return theirs;
  }

 private:
  void send(const void* data, size_t size);
  void receive(void* data, size_t size);

  int fd_;
};

}  // namespace uroce::nccl_style
