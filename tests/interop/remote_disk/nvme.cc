// SPDX-License-Identifier: BSD-2-Clause
#include "tests/interop/remote_disk/nvme.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

namespace uroce::remote_disk {
namespace {

constexpr uint16_t kAdminDepth = 32;  // Linux takes no more
constexpr uint16_t kDepth = 16;
constexpr uint16_t kNewController = 0xffff;
constexpr uint32_t kEnabled = 0x00460001;  // entries of 64 and 16 bytes, as always
constexpr auto kReadyPatience = std::chrono::seconds(20);

}  // namespace

NvmeDisk::NvmeDisk(const std::string& url) {
  const size_t address = url.find("://") + 3, port = url.find(':', address) + 1, subsystem = url.find('/', port) + 1;
  if (port == 0 || subsystem == 0) throw Wrong(url + " is not nvme://ADDRESS:PORT/SUBSYSTEM");
  const std::string host = url.substr(address, port - 1 - address), service = url.substr(port, subsystem - 1 - port);
  subsystem_ = url.substr(subsystem);
  admin_.emplace(host, service, 0, kAdminDepth);
  const uint16_t controller = connect_queue(*admin_, 0, kAdminDepth, kNewController);
  enable();
  identify();
  commands_.emplace(host, service, 1, kDepth);
  connect_queue(*commands_, 1, kDepth, controller);
}

// The first command of a queue. Returns the controller's number.
uint16_t NvmeDisk::connect_queue(NvmeQueue& queue, uint16_t number, uint16_t depth, uint16_t controller) {
  const auto data = connect_data(controller, subsystem_);
  queue.send_with_memory(connect(number, depth), data.size(), data);
  const NvmeAnswer answered = queue.wait();
  if (answered.status != 0) throw Lost("Connect: status " + std::to_string(answered.status));
  return static_cast<uint16_t>(answered.result);
}

void NvmeDisk::enable() {
  if (admin_->ask(property_get(Property::kCapabilities, true)).result == 0)
    throw Wrong("a controller without capabilities");
  admin_->ask(property_set(Property::kConfiguration, kEnabled));
  const auto start = std::chrono::steady_clock::now();
  while ((admin_->ask(property_get(Property::kStatus, false)).result & 1) == 0) {
    if (std::chrono::steady_clock::now() - start > kReadyPatience) throw Wrong("the controller does not get ready");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void NvmeDisk::identify() {
  NvmeCommand which = command(NvmeOpcode::kIdentify);
  put(which, 40, uint32_t{1});  // the controller
  const auto controller = admin_->ask_with_memory(which, kIdentifyData).data;
  const auto* const name = reinterpret_cast<const char*>(controller.subspan(768, 256).data());
  if (subsystem_ != std::string(name, strnlen(name, 256))) throw Wrong("Identify: another subsystem");
  const size_t capsule = size_t{get<uint32_t>(controller, 1792)} * 16;
  in_capsule_ = std::min(capsule - std::min(capsule, sizeof(NvmeCommand)), NvmeQueue::kInCapsule);

  const auto name_space = admin_->ask_with_memory(command(NvmeOpcode::kIdentify, 1), kIdentifyData).data;
  const size_t format = name_space[26] & 0xf;
  if (size_t{1} << name_space[128 + 4 * format + 2] != kBlock) throw Wrong("Identify: not blocks of 512 bytes");
  blocks_ = get<uint64_t>(name_space, 0);
}

void NvmeDisk::write(uint64_t block, std::span<uint8_t> data) {
  const NvmeCommand bytes = transfer(NvmeOpcode::kWrite, block, data.size() / kBlock);
  if (data.size() <= in_capsule_) {
    commands_->send_in_capsule(bytes, data);
  } else {
    commands_->send_with_memory(bytes, data.size(), data);
  }
}

void NvmeDisk::read(uint64_t block, std::span<uint8_t> data) {
  commands_->send_with_memory(transfer(NvmeOpcode::kRead, block, data.size() / kBlock), data.size(), {}, data);
}

void NvmeDisk::wait() {
  const NvmeAnswer answered = commands_->wait();
  if (answered.status != 0) throw Wrong("a command ends with status " + std::to_string(answered.status));
  std::ranges::copy(answered.data.first(answered.for_data.size()), answered.for_data.begin());
}

void NvmeDisk::logout() {
  commands_->disconnect();
  admin_->disconnect();
}

}  // namespace uroce::remote_disk
