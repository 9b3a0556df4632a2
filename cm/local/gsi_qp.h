// SPDX-License-Identifier: BSD-2-Clause
// QP1 of a device of this process (IBTA 13.5, the general services interface): sends and receives management datagrams.
// There where no broker has it; used by LocalAgent.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cm/types.h"
#include "engine/engine.h"
#include "wire/ip_udp.h"
#include "wire/mad.h"

namespace uroce::rdma_cm {

class GsiQp {
 public:
  // `arrived` is called in any thread when receive() may have something to do; it must not call the engine. 0, or an
  // errno value: EBUSY, ENOTSUP as Engine::create_qp; ENOMEM; why the packet I/O cannot be opened.
  static int open(std::shared_ptr<engine::Engine> engine, std::function<void()> arrived, std::unique_ptr<GsiQp>& out);
  ~GsiQp();
  GsiQp(const GsiQp&) = delete;
  GsiQp& operator=(const GsiQp&) = delete;

  // Of `datagram` the netdev and the GUID do not matter, and the hop limit is the route's. 0; ENETUNREACH, EINVAL: no
  // such address or route; ENOBUFS: the queue is full, and the netdev takes nothing. What is not sent is lost, as on a
  // wire. Whatever was taken has been sent when the GsiQp ends, if the netdev takes it.
  int send(const cm::Datagram& datagram);
  // Calls `take` for datagrams that have arrived, kReceives at most; their netdev and GUID are not set. False: that
  // were all, and `arrived` will be called for the next one.
  bool receive(const std::function<void(const cm::Datagram&)>& take);

 private:
  // Those that wait to be read, 256 bytes each. More of them are dropped (Counter::kDropNoReceive).
  static constexpr uint32_t kReceives = 1024;
  static constexpr uint32_t kSends = 256;
  // To whom datagrams were sent last, so that not every one needs questions to the kernel.
  static constexpr size_t kMostAddresses = 1024;

  using Buffer = std::array<uint8_t, wire::kGrhSize + wire::kMadSize>;
  struct Notifier final : queue::CompletionNotifier {
    void on_completion(queue::CompletionQueue&) override { arrived(); }
    std::function<void()> arrived;
  };
  // Everything of an address vector that differs from one datagram to another.
  struct Way {
    std::array<uint8_t, 16> source, destination;
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit;
    auto operator<=>(const Way&) const = default;
  };
  struct Address {
    Way way;
    uint32_t handle;
  };

  GsiQp(std::shared_ptr<engine::Engine> engine, std::function<void()> arrived);
  int set_up();
  int start();
  void post_receive(uint64_t index);
  // Runs the engine until no more than `most` datagrams wait to be sent. Gives up where the netdev takes none, and does
  // not wait again before it has taken one.
  void settle(uint32_t most);
  std::optional<cm::Datagram> read(const queue::Cqe& cqe) const;
  int address_of(const cm::Datagram& datagram, uint32_t& handle);

  const std::shared_ptr<engine::Engine> engine_;
  Notifier notifier_;
  queue::CompletionQueue cq_;
  std::vector<Buffer> buffers_;
  uint32_t key_ = 0;
  bool registered_ = false;
  engine::Qp* qp_ = nullptr;
  std::optional<uint32_t> stuck_at_;  // the send queue's tail when settle() gave up
  std::list<Address> addresses_;      // the one used last in front
  std::map<Way, std::list<Address>::iterator> by_way_;
};

}  // namespace uroce::rdma_cm
