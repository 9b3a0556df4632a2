// SPDX-License-Identifier: BSD-2-Clause
// The export of liburoce.so by which liburoce_files.so serves the rdma_cm file (functions.h), and the Manager of the
// process behind it.
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <sys/types.h>

#include "abi/functions.h"
#include "abi/rdma_cm_file/caller_memory.h"
#include "abi/rdma_cm_file/manager.h"
#include "base/fork.h"
#include "engine/net/netdev_settings.h"
#include "process/host.h"

namespace uroce::rdma_cm {
namespace {

bool has_received(engine::Host& host, uint32_t netdev, uint32_t qpn) {
  const auto engines = host.existing_engines();
  const auto found = engines.find(static_cast<int>(netdev));
  return found != engines.end() && found->second->has_received(qpn);
}

// Of a real process.
Environment process_environment(engine::Host& host) {
  return {.devices = [&host] { return host.devices(); },
          .view = &host.view(),
          .has_received = [&host](uint32_t netdev, uint32_t qpn) { return has_received(host, netdev, qpn); },
          .make_agent = make_agent,
          .binds_v6_only = net::binds_v6_only};
}

// Never destroyed: applications use their files until the very end.
struct Own {
  std::once_flag once;
  Manager* manager = nullptr;
};

Manager* existing_manager() {
  return per_process<Own>().manager;
}

void at_exit_of_process() {
  try {
    if (Manager* const manager = existing_manager()) manager->finish();
  } catch (const std::exception&) {  // no memory: the other sides time out
  }
}

Manager* manager_of_process() {
  Own& own = per_process<Own>();
  std::call_once(own.once, [&own] {
    engine::Host* const host = engine::Host::instance();
    if (host == nullptr) return;
    own.manager = new Manager(process_environment(*host));
    static const bool registered = std::atexit(at_exit_of_process) == 0;
    static_cast<void>(registered);
  });
  return own.manager;
}

// What may be a command, as seen without looking at the descriptor.
bool looks_like_a_command(const void* data, size_t size) {
  abi::Header header{};
  if (size < abi::kShortest || size > abi::kLongest) return false;
  if (copy_in(&header, data, sizeof(header)) != 0) return false;
  return header.cmd < abi::kCommands && header.in + sizeof(header) == size;
}

class KeepErrno {
 public:
  KeepErrno() : error_(errno) {}
  ~KeepErrno() { errno = error_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int error_;
};

// A descriptor of a new rdma_cm file.
int open_file(int flags) {
  const KeepErrno keep;
  try {
    Manager* const manager = manager_of_process();
    if (manager == nullptr) return -ENODEV;
    int fd = -1;
    const int error = manager->open(flags, fd);
    return error == 0 ? fd : -error;
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const std::exception&) {
    return -ENODEV;
  }
}

bool is_file(uint64_t device, uint64_t inode) {
  return channel_index::owner({device, inode}) != 0;
}

bool write_file(int fd, const void* data, size_t size, ssize_t* result) {
  const KeepErrno keep;
  if (!looks_like_a_command(data, size)) return false;
  const auto identity = Identity::of(fd);
  const uint32_t owner = identity ? channel_index::owner(*identity) : 0;
  if (owner == 0) return false;
  Manager* const manager = owner == process_generation() ? existing_manager() : nullptr;
  if (owner != process_generation()) engine::Host::tell_of_orphans();
  *result = -EIO;  // a child that uses its parent's file
  if (manager != nullptr) *result = manager->write(*identity, fd, {static_cast<const uint8_t*>(data), size});
  return true;
}

uint64_t before_close(int fd) {
  const auto identity = Identity::of(fd);
  return identity && channel_index::owner(*identity) == process_generation() ? identity->inode : 0;
}

void after_close(uint64_t inode) {
  const KeepErrno keep;
  try {
    if (Manager* const manager = existing_manager()) manager->closed(inode);
  } catch (const std::exception&) {  // our thread does it
  }
}

constexpr Functions kFunctions{open_file, channel_index::any, is_file, write_file, before_close, after_close};

}  // namespace
}  // namespace uroce::rdma_cm

extern "C" [[gnu::visibility("default")]] const uroce::rdma_cm::Functions* uroce_rdma_cm() {
  return &uroce::rdma_cm::kFunctions;
}
