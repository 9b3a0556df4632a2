// SPDX-License-Identifier: BSD-2-Clause
// The TCP connection between the two processes: both always know what the other is going to say. Used by all scenarios.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace uroce::memory_faults {

class Control {
 public:
  static Control serve(uint16_t port);  // waits for one client
  static Control connect(const std::string& host, uint16_t port);
  Control(Control&& other) noexcept;
  Control& operator=(Control&&) = delete;
  ~Control();

  // Both sides give a value and get the other's.
  template <class T>
  T exchange(const T& own) const {
    static_assert(std::is_trivially_copyable_v<T>);
    send(&own, sizeof own);
    T theirs;
    receive(&theirs, sizeof theirs);
    return theirs;
  }
  // Both sides have come here.
  void meet() const { exchange(uint8_t{0}); }

  // One side tells, the other looks whether it has, or waits.
  void tell() const;
  bool told() const;  // takes it
  void wait_told() const;

 private:
  explicit Control(int fd);
  void send(const void* data, size_t size) const;
  void receive(void* data, size_t size) const;

  int fd_;
};

}  // namespace uroce::memory_faults
