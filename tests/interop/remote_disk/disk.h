// SPDX-License-Identifier: BSD-2-Clause
// A disk of another machine, as remote_disk uses it: commands that run while others do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace uroce::remote_disk {

// What must not be: wrong data, no answer and no error, a command that the target does not like.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The session has ended; or the target does not accept one.
struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr size_t kBlock = 512;
inline constexpr size_t kLargestCommand = 0x40000;  // libiscsi 1.19 takes no more for iSER

class Disk {
 public:
  virtual ~Disk() = default;

  virtual uint64_t blocks() const = 0;
  virtual size_t outstanding() const = 0;
  // Each starts a command. The memory is the disk's until wait() has ended it.
  virtual void write(uint64_t block, std::span<uint8_t> data) = 0;
  virtual void read(uint64_t block, std::span<uint8_t> data) = 0;
  // Until a command has ended. Throws Lost when the session has.
  virtual void wait() = 0;
  // With no command outstanding.
  virtual void logout() = 0;
};

}  // namespace uroce::remote_disk
