// SPDX-License-Identifier: BSD-2-Clause
// What cmd_fd of a context refers to: in the kernel the open uverbs file, to which objects belong and from which every
// process that holds it can import them; here what the contexts of this process that share it have in common. Made by
// ibv_open_device, found by ibv_import_device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <utility>

#include "abi/verbs/memory_objects.h"
#include "abi/verbs/objects.h"

namespace uroce::verbs {

class CommandFile {
 public:
  // Makes a new one for `device` and its engine; `fd` is the caller's. 0 or an errno value.
  static int open(Device& device, engine::Engine& engine, int& fd, std::shared_ptr<CommandFile>& out);
  // The one that `fd` refers to, also where it is a duplicate. Null: it is none of ours, or all its contexts are
  // closed.
  static std::shared_ptr<CommandFile> find(int fd);

  CommandFile(Device& device, engine::Engine& engine)
      : device_(device),
        quota_(std::make_shared<engine::QuotaAccount>(engine.quota())),
        memory_(std::make_shared<MemoryHandles>()) {}
  ~CommandFile();
  CommandFile(const CommandFile&) = delete;
  CommandFile& operator=(const CommandFile&) = delete;

  Device& device() const { return device_; }
  const std::shared_ptr<engine::QuotaAccount>& quota() const { return quota_; }
  const std::shared_ptr<MemoryHandles>& memory() const { return memory_; }

  // False: all its contexts have been closed. The last one gives back what the application has left of all of them.
  bool open_context();
  void close_context();

  // The protection domains, by handle; parent domains are not among them. Throws std::bad_alloc.
  void add(const Pd& pd);
  // The domain ceases to exist, whichever of its pointers this is. 0; EBUSY: it has users; ENOENT: it did before.
  int remove(const Pd& pd);
  // Another pointer to the PD that has the handle. Null: there is none (ENOENT). Throws std::bad_alloc.
  std::unique_ptr<Pd> import_pd(uint32_t handle);

 private:
  using Identity = std::pair<dev_t, ino_t>;

  Device& device_;
  const std::shared_ptr<engine::QuotaAccount> quota_;
  const std::shared_ptr<MemoryHandles> memory_;
  Identity identity_{};
  std::mutex mutex_;
  uint32_t open_contexts_ = 0;
  bool closed_ = false;
  std::map<uint32_t, std::shared_ptr<std::atomic<uint32_t>>> pds_;  // and their users
};

}  // namespace uroce::verbs
