// SPDX-License-Identifier: BSD-2-Clause
// Steering without privileges, for the processes of one user. A classic BPF program picks a member of the group by its
// place in the kernel's list, to which the last member moves when another one closes. So all members are made at
// the beginning, for ranges 1, 2, 3 ... at places 1, 2, 3 ..., the program is attached once, and no member closes while
// there are clients, even if the broker is killed: the descriptors of all of them, in their order, are on the way
// through a UNIX socket that nobody reads, and that each client has (PortSockets::kept). From there a new broker takes
// them over.
#pragma once

#include <string>
#include <vector>

#include "broker/steering/steering.h"

namespace uroce::broker {

class SlotSteering final : public Steering {
 public:
  static constexpr uint32_t kSlots = 256;
  // A client of an earlier broker that was stopped may come back so much later.
  static constexpr Duration kAbsence = std::chrono::minutes(1);

  // The process may have as many open files as it can (file_limit.h): two for each slot, and as many on the way.
  static io::IoResult<Steering> open(bool inherits);

  const std::string& isolation_obstacle() const override;
  uint32_t last_number() const override { return kSlots; }
  bool inherits() const override { return inherits_; }
  std::optional<io::IoError> start() override;
  std::variant<PortSockets, io::IoError> admit(LeaseRange range, bool without_copies) override;
  std::variant<LeaseRange, io::IoError> readmit(PortSockets sockets) override;
  void dismiss(LeaseRange range) override;
  bool is_free(LeaseRange range, Time now) const override;
  int own_socket(int family) const override;
  int descriptor() const override { return events_.get(); }
  void work() override;

 private:
  struct Slot {
    UniqueFd v4;
    UniqueFd v6;  // empty: the host has no IPv6
    bool leased = false;
  };

  explicit SlotSteering(bool inherits) : inherits_(inherits) {}
  std::optional<io::IoError> make_slots();
  std::optional<io::IoError> park();
  std::string take_over(int kept);
  bool watch(const Slot& slot);
  void forget(const Slot& slot);

  bool inherits_;
  std::vector<Slot> slots_;  // by the number of the range; 0 is the broker's own
  UniqueFd parked_;          // what clients keep
  Time absence_ends_{};      // of clients who have not brought their sockets to this broker
  UniqueFd events_;
};

}  // namespace uroce::broker
