// SPDX-License-Identifier: BSD-2-Clause
// A namespace of an NVMe controller over RDMA, and the initialization that leads there.
#pragma once

#include <optional>

#include "tests/interop/remote_disk/nvme_queue.h"

namespace uroce::remote_disk {

class NvmeDisk : public Disk {
 public:
  // nvme://ADDRESS:PORT/SUBSYSTEM
  explicit NvmeDisk(const std::string& url);

  uint64_t blocks() const override { return blocks_; }
  size_t outstanding() const override { return commands_->outstanding(); }
  void write(uint64_t block, std::span<uint8_t> data) override;
  void read(uint64_t block, std::span<uint8_t> data) override;
  void wait() override;
  void logout() override;

 private:
  uint16_t connect_queue(NvmeQueue& queue, uint16_t number, uint16_t depth, uint16_t controller);
  void enable();
  void identify();

  std::string subsystem_;
  std::optional<NvmeQueue> admin_, commands_;
  uint64_t blocks_ = 0;
  size_t in_capsule_ = 0;  // bytes of data that the controller takes with a command
};

}  // namespace uroce::remote_disk
