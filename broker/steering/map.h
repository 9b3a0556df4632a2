// SPDX-License-Identifier: BSD-2-Clause
// Steering with privileges (CAP_BPF, CAP_NET_ADMIN): the program of bpf/qpn_steer.bpf.c looks the socket up in a map. A
// socket that is closed is out of it, so that nothing is left of a client that died.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/socket.h>

#include "broker/steering/pool.h"
#include "broker/steering/steering.h"

struct qpn_steer;  // the program

namespace uroce::broker {

class MapSteering final : public Steering, private Staging {
 public:
  static io::IoResult<Steering> open(bool inherits);
  ~MapSteering() override;

  const std::string& isolation_obstacle() const override { return isolation_obstacle_; }
  uint32_t last_number() const override { return LeaseRange::kLastNumber; }
  bool inherits() const override { return inherits_; }
  std::optional<io::IoError> start() override;
  std::variant<PortSockets, io::IoError> admit(LeaseRange range, bool without_copies) override;
  std::variant<LeaseRange, io::IoError> readmit(PortSockets sockets) override;
  Staging* staging() override { return this; }
  void dismiss(LeaseRange range) override;
  bool is_free(LeaseRange range, Time now) const override;
  int own_socket(int family) const override { return (family == AF_INET ? own_.v4 : own_.v6).get(); }
  int descriptor() const override { return events_.get(); }
  void work() override;
  bool has_starting_child() const override { return pool_->has_starting_child(); }

 private:
  struct Unload {
    void operator()(qpn_steer* program) const;
  };

  std::variant<Staged, Objection> stage(uint32_t place, const PortSockets& sockets) const override;
  int descriptor_to_stage() const override;
  std::variant<LeaseRange, io::IoError> readmit(uint32_t place, const Staged& staged) override;
  void clear(uint32_t place) override;

  explicit MapSteering(bool inherits) : inherits_(inherits) {}
  std::optional<io::IoError> set_up();
  std::optional<io::IoError> open_own();
  std::string guard_look_ups();
  int steer_to(uint32_t number, const PortSockets& sockets);
  int steer_to_staged(uint32_t number, uint32_t place);
  int note(uint32_t number, uint64_t cookie);
  uint64_t next_serial();
  void watch_maker();

  bool inherits_;
  std::string isolation_obstacle_;
  std::unique_ptr<qpn_steer, Unload> program_;
  PortSockets own_;
  std::unique_ptr<SocketPool> pool_;
  UniqueFd events_;
  std::bitset<LeaseRange::kLastNumber + 1> leased_;
  std::array<uint64_t, LeaseRange::kLastNumber + 1> serials_{};  // of those leases
  uint64_t last_serial_ = 0;
  std::array<uint64_t, LeaseRange::kLastNumber + 1> cookies_{};  // of the IPv4 sockets
};

}  // namespace uroce::broker
