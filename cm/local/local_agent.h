// SPDX-License-Identifier: BSD-2-Clause
// The connection manager of a process that has its netdevs to itself (`uroce run --alone`, or where there is no
// broker): in this process, with the QP1 of each of its devices. A thread takes what arrives, and timers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "cm/agent.h"
#include "cm/local/gsi_qp.h"
#include "cm/service.h"

namespace uroce::rdma_cm {

class LocalAgent final : public cm::Agent, private cm::Output {
 public:
  struct Device {
    uint32_t netdev = 0;
    wire::Guid guid{};
    std::shared_ptr<engine::Engine> engine;
  };
  // Those that there are now. Called in any thread.
  using Devices = std::function<std::vector<Device>()>;

  // `surroundings` outlive it and are used by one thread at a time. Throws std::system_error, std::bad_alloc.
  LocalAgent(cm::Surroundings& surroundings, Devices devices, Handler handler, const cm::Limits& limits = {});
  // Whoever is connected is told. Not within the handler's functions.
  ~LocalAgent() override;

  // Errors also of the device that the request needs: those of GsiQp::open; ENODEV: there is none.
  cm::Reply ask(const cm::Request& request) override;

 private:
  void send(const cm::Datagram& datagram) override;
  void on_event(const cm::Event& event) override;

  int prepare(const cm::Request& request);
  int use(uint32_t netdev);
  int use_all();
  int open(const Device& device);
  void work();
  bool take_datagrams(Time now);
  int patience(Time now);
  void wake();

  const Devices devices_;
  const Handler handler_;
  const UniqueFd wake_;  // eventfd
  std::atomic<bool> ends_{false};

  std::mutex lock_;
  cm::Service service_;
  struct Port {
    Device device;
    std::unique_ptr<GsiQp> gsi;
  };
  std::map<uint32_t, Port> ports_;  // by netdev
  bool all_ = false;                // somebody listens on all devices: those that come later, too
  Time look_again_{};               // for these
  std::vector<cm::Event> events_;   // for the thread to hand on

  std::thread thread_;
};

}  // namespace uroce::rdma_cm
