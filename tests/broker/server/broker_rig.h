// SPDX-License-Identifier: BSD-2-Clause
// A broker in a thread of the test, whose steering gives out sockets that are on no port.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "broker/protocol/address.h"
#include "broker/server/server.h"
#include "broker/steering/steering.h"
#include "tests/broker/server/fake_view.h"
#include "tests/broker/server/kept_leases.h"

namespace uroce::broker {

// What the kernel would have kept over the broker's end: of which lease sockets are, by cookie of the first one.
struct Kernel : KeptLeases {
  std::mutex lock;
  bool clients_keep_sockets = false;  // which they are to close
  std::set<uint32_t> kept;            // ranges of whom somebody has sockets
  bool survivors = false;             // clients of an earlier broker live
  std::string isolation_obstacle;
  uint32_t last_number = LeaseRange::kLastNumber;
  int start_error = 0;
  std::atomic<bool> has_starting_child = false;  // a process that makes sockets
  std::map<int, std::string> xdp_programs;       // names, by netdev
  bool has_cm = false;                           // the broker makes connections, as on the host of FakeView

  bool is_steered(uint32_t range) {
    const std::lock_guard guard(lock);
    return steered[range] != 0;
  }
};

class FakeSteering final : public Steering, private Staging {
 public:
  explicit FakeSteering(Kernel& kernel) : kernel_(kernel), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const std::lock_guard guard(kernel_.lock);
    kernel_.steered.clear();
  }
  const std::string& isolation_obstacle() const override { return kernel_.isolation_obstacle; }
  uint32_t last_number() const override { return kernel_.last_number; }
  bool inherits() const override { return kernel_.survivors; }
  std::optional<io::IoError> start() override {
    if (kernel_.start_error != 0) return io::IoError{kernel_.start_error, "cannot start", "try"};
    return std::nullopt;
  }
  std::variant<PortSockets, io::IoError> admit(LeaseRange range, bool) override {
    PortSockets sockets;
    for (UniqueFd* const fd : {&sockets.v4, &sockets.v6, &sockets.kept}) {
      fd->reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (!*fd) return io::IoError{errno, "socket", ""};
    }
    const std::lock_guard guard(kernel_.lock);
    EXPECT_EQ(kernel_.steered[range.number], 0u) << "somebody has them";
    kernel_.steered[range.number] = ++kernel_.last_serial;
    kernel_.leases[socket_cookie(sockets.v4.get())] = {range, kernel_.last_serial};
    return sockets;
  }
  std::variant<LeaseRange, io::IoError> readmit(PortSockets sockets) override {
    return readmit(0, {{}, socket_cookie(sockets.v4.get())});
  }
  Staging* staging() override { return isolates() ? this : nullptr; }
  void dismiss(LeaseRange range) override {
    const std::lock_guard guard(kernel_.lock);
    kernel_.steered[range.number] = 0;
    if (kernel_.clients_keep_sockets) kernel_.kept.insert(range.number);
  }
  bool is_free(LeaseRange range, Time) const override {
    const std::lock_guard guard(kernel_.lock);
    return !kernel_.kept.contains(range.number);
  }
  int own_socket(int) const override { return -1; }
  bool has_starting_child() const override { return kernel_.has_starting_child; }
  int descriptor() const override { return event_.get(); }
  void work() override {}

 private:
  // As the real one's, it waits for who has the socket locked, and for who has the file.
  std::variant<Staged, Objection> stage(uint32_t, const PortSockets& sockets) const override {
    sockaddr_storage name;
    socklen_t size = sizeof(name);
    if (getsockname(sockets.v4.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0)
      return Objection{EINVAL, "no socket"};
    return Staged{{}, socket_cookie(sockets.v4.get())};
  }
  int descriptor_to_stage() const override { return -1; }
  void clear(uint32_t) override {}
  std::variant<LeaseRange, io::IoError> readmit(uint32_t, const Staged& staged) override {
    const std::lock_guard guard(kernel_.lock);
    return kernel_.readmit(staged);
  }

  Kernel& kernel_;
  const UniqueFd event_;
};

class RunningBroker {
 public:
  RunningBroker(Kernel& kernel, std::string address, Policy policy = {.owner = geteuid(), .group = {}, .linger = {}})
      : address_(std::move(address)), stop_(eventfd(0, EFD_CLOEXEC)) {
    UniqueFd listener;
    EXPECT_EQ(listen_at(address_, listener), 0);
    std::vector<UniqueFd> listeners;
    listeners.push_back(std::move(listener));
    thread_ = std::thread([this, &kernel, policy, sockets = std::move(listeners)]() mutable {
      const auto xdp_program_of = [&kernel](int ifindex) -> std::optional<io::AttachedProgram> {
        const std::lock_guard guard(kernel.lock);
        const auto found = kernel.xdp_programs.find(ifindex);
        if (found == kernel.xdp_programs.end()) return io::attached_xdp_program(ifindex);
        return io::AttachedProgram{.id = 7, .name = found->second};
      };
      Server server(std::move(sockets), std::make_unique<FakeSteering>(kernel), policy, false, xdp_program_of);
      if (kernel.has_cm) server.manage_connections(std::make_unique<FakeView>());
      server.run(stop_.get());
      ended_ = true;
    });
  }
  ~RunningBroker() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  const std::string& address() const { return address_; }
  bool ended() const { return ended_; }

 private:
  const std::string address_;
  const UniqueFd stop_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

inline std::string unique_address() {
  static std::atomic<int> count{0};
  return "@uroced-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

template <class F>
bool comes_true(F&& condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace uroce::broker
