// SPDX-License-Identifier: BSD-2-Clause
// A queue of an NVMe controller over RDMA: a connection, a QP, and memory for the commands that are outstanding on it
// (NVM Express RDMA Transport 1.0).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <rdma/rdma_cma.h>
#include <vector>

#include "tests/interop/remote_disk/disk.h"
#include "tests/interop/remote_disk/nvme_command.h"

namespace uroce::remote_disk {

struct NvmeAnswer {
  uint64_t result;
  uint16_t status;  // without the phase bit; 0 is success
  uint16_t slot;
  std::span<uint8_t> data;      // what the target may have written, until the next command
  std::span<uint8_t> for_data;  // as it was given
};

class NvmeQueue {
 public:
  static constexpr size_t kInCapsule = 8192;  // at most; targets of Linux take 16384

  // Throws Lost when the target does not accept the connection.
  NvmeQueue(const std::string& address, const std::string& port, uint16_t number, uint16_t depth);
  ~NvmeQueue();
  NvmeQueue(const NvmeQueue&) = delete;
  NvmeQueue& operator=(const NvmeQueue&) = delete;

  size_t outstanding() const { return outstanding_; }

  // Each sends a command. No more than kLargestCommand bytes.
  void send(NvmeCommand command) { post(command, 0, {}); }
  void send_in_capsule(NvmeCommand command, std::span<const uint8_t> data);
  // The target reads or writes this memory's copy in the slot. copied: data goes to the target; for_data: for the
  // answer.
  void send_with_memory(NvmeCommand command, size_t size, std::span<const uint8_t> copied,
                        std::span<uint8_t> for_data = {});
  // The next answer. Throws Lost when the connection ends.
  NvmeAnswer wait();
  // With nothing outstanding. Throws Wrong when the answer's status is not 0.
  NvmeAnswer ask(const NvmeCommand& command);
  NvmeAnswer ask_with_memory(const NvmeCommand& command, size_t size, std::span<const uint8_t> copied = {});
  void disconnect();

 private:
  struct Slot {
    bool sent = true, answered = true;  // it is free when both are
    std::span<uint8_t> for_data{};
    bool free() const { return sent && answered; }
  };
  struct DestroyId {
    void operator()(rdma_cm_id* id) const;
  };
  struct Unmake {
    void operator()(ibv_mr* region) const { ibv_dereg_mr(region); }
    void operator()(ibv_cq* queue) const { ibv_destroy_cq(queue); }
    void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
    void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
  };

  void resolve(const std::string& address, const std::string& port);
  void make_qp();
  void connect_to(uint16_t number);
  size_t take_slot();
  std::span<uint8_t> capsule(size_t slot);
  std::span<uint8_t> data(size_t slot);
  std::span<uint8_t> answer(size_t receive);
  void post(NvmeCommand command, size_t in_capsule, std::span<uint8_t> for_data);
  void post_from(size_t slot, NvmeCommand command, size_t in_capsule, std::span<uint8_t> for_data);
  void post_receive(size_t receive);
  std::optional<NvmeAnswer> handle(const ibv_wc& completion);
  ibv_wc next_completion();
  void wait_for_event();

  std::vector<Slot> slots_;
  size_t outstanding_ = 0;
  std::deque<NvmeAnswer> early_;  // that came while a slot was waited for
  std::vector<uint8_t> memory_;
  std::unique_ptr<ibv_pd, Unmake> domain_;
  std::unique_ptr<ibv_comp_channel, Unmake> channel_;
  std::unique_ptr<ibv_cq, Unmake> queue_;
  std::unique_ptr<ibv_mr, Unmake> region_;
  std::unique_ptr<rdma_cm_id, DestroyId> id_;  // goes first: its QP uses the others
};

}  // namespace uroce::remote_disk
