// SPDX-License-Identifier: BSD-2-Clause
// The devices of this process: one engine per usable netdev, made from netlink on demand. Process-wide state; the verbs
// shim and the command line start here.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "process/open_io.h"
#include "process/options.h"

namespace uroce::engine {

struct DeviceInfo {
  std::string name;  // device_name()
  net::Netdev netdev;
  uint64_t guid = 0;  // EUI-64 of the MAC, host order
};

class Host {
 public:
  // Created on first use, and anew in a child after fork(). Null when netlink cannot be read or UROCE_* is malformed:
  // one line has gone to stderr.
  static Host* instance();
  // The same, if this process (not its parent) has asked for it before; else null.
  static Host* existing();
  // For programs that bring a network of their own (bench/messages): makes the host, before anybody asks for it.
  static void make(Options options, std::shared_ptr<net::NetView> view, IoOpener open);

  // Those of the current netdevs that the process is to see (devices_of).
  std::vector<DeviceInfo> devices();
  // The engine of a device; the same object as long as anybody holds it and the netdev is there.
  std::shared_ptr<Engine> engine(const DeviceInfo& device);
  std::map<int, std::shared_ptr<Engine>> existing_engines();  // by ifindex
  const Options& options() const { return options_; }
  net::NetView& view() { return *view_; }

  // The process is about to end without exit handlers, or to become another program: the ACKs that its QPs
  // owe leave, and captures are written to their end, unless it becomes another program. Waits for locks for some
  // milliseconds and allocates nothing, as a signal handler may be where it ends. In a child of fork() or vfork() it
  // does nothing.
  enum class End : uint8_t { kExit, kExec };
  static void before_end(End end);

  // The last that the library does in a process that exits: closes the packet I/O of devices that are open, because the
  // kernel would take longer for that (docs/reference/af-xdp.md "Time to open and close"). Waits a second at most.
  void leave_netdevs();
  // Says once in a process what has become of the devices that it inherited through fork(), as EIO does not.
  static void tell_of_orphans();

 private:
  Host(Options options, std::shared_ptr<net::NetView> view, IoOpener open);
  static Host* create();
  static Host* take(std::unique_ptr<Host> host);
  static void at_exit();
  void finish();
  bool settle_acks();  // false: no packets have moved in this process
  std::shared_ptr<Engine> find_engine(const DeviceInfo& device);
  std::shared_ptr<Engine> make_engine(const net::Netdev& netdev, std::shared_ptr<std::atomic<bool>> gone);
  void io_has_opened(int netdev_index);

  struct Slot;
  struct Engines;
  Options options_;
  std::shared_ptr<net::NetView> view_;
  const IoOpener open_;
  std::shared_ptr<Engines> engines_;
  std::mutex opened_lock_;
  std::set<int> opened_;    // ifindexes of the netdevs whose packet I/O has been opened
  const uint32_t process_;  // that created it: its generation
  const pid_t pid_;         // and its id, which a child of vfork() does not share
};

}  // namespace uroce::engine
