// SPDX-License-Identifier: BSD-2-Clause
// NVMe commands as a host builds them (NVM Express Base 2.0, NVMe over Fabrics): 64 bytes, little-endian.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace uroce::remote_disk {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

template <typename Value>
void put(std::span<uint8_t> bytes, size_t at, Value value) {
  std::memcpy(bytes.subspan(at, sizeof value).data(), &value, sizeof value);
}

template <typename Value>
Value get(std::span<const uint8_t> bytes, size_t at) {
  Value value;
  std::memcpy(&value, bytes.subspan(at, sizeof value).data(), sizeof value);
  return value;
}

using NvmeCommand = std::array<uint8_t, 64>;
inline constexpr size_t kConnectData = 1024, kIdentifyData = 4096;

enum class NvmeOpcode : uint8_t { kWrite = 0x01, kRead = 0x02, kIdentify = 0x06, kFabrics = 0x7f };
enum class FabricsType : uint8_t { kPropertySet = 0x00, kConnect = 0x01, kPropertyGet = 0x04 };
enum class Property : uint32_t { kCapabilities = 0x00, kVersion = 0x08, kConfiguration = 0x14, kStatus = 0x1c };

inline constexpr uint8_t kInMemory = 0x40, kInCapsuleAtOffset = 0x01;  // types of SGL descriptors

inline NvmeCommand command(NvmeOpcode opcode, uint32_t name_space = 0) {
  NvmeCommand bytes{};
  put(bytes, 0, opcode);
  put(bytes, 1, uint8_t{0x40});  // data is described by SGLs
  put(bytes, 4, name_space);
  put(bytes, 39, kInMemory);  // none
  return bytes;
}

inline NvmeCommand fabrics(FabricsType type) {
  NvmeCommand bytes = command(NvmeOpcode::kFabrics);
  put(bytes, 4, type);
  return bytes;
}

inline NvmeCommand connect(uint16_t queue, uint16_t depth) {
  NvmeCommand bytes = fabrics(FabricsType::kConnect);
  put(bytes, 42, queue);
  put(bytes, 44, static_cast<uint16_t>(depth - 1));
  return bytes;
}

// Of a Connect. controller: 0xffff for the admin queue, which gets one.
inline std::array<uint8_t, kConnectData> connect_data(uint16_t controller, const std::string& subsystem) {
  constexpr char kHost[] = "nqn.2026-11.example.uroce:host";
  std::array<uint8_t, kConnectData> data{};
  put(data, 0, uint64_t{0x75726f6365});  // the host's id, anything but zero
  put(data, 16, controller);
  std::memcpy(data.data() + 256, subsystem.data(), std::min<size_t>(subsystem.size(), 255));
  std::memcpy(data.data() + 512, kHost, sizeof kHost);
  return data;
}

inline NvmeCommand property_get(Property property, bool of_eight_bytes) {
  NvmeCommand bytes = fabrics(FabricsType::kPropertyGet);
  put(bytes, 40, static_cast<uint8_t>(of_eight_bytes));
  put(bytes, 44, property);
  return bytes;
}

inline NvmeCommand property_set(Property property, uint32_t value) {
  NvmeCommand bytes = fabrics(FabricsType::kPropertySet);
  put(bytes, 44, property);
  put(bytes, 48, uint64_t{value});
  return bytes;
}

inline NvmeCommand transfer(NvmeOpcode opcode, uint64_t block, size_t blocks) {
  NvmeCommand bytes = command(opcode, 1);
  put(bytes, 40, block);
  put(bytes, 48, static_cast<uint16_t>(blocks - 1));
  return bytes;
}

// Where the data is: in the memory of the host, for the target's RDMA WRITEs and READs; or behind the command.
inline void describe_memory(NvmeCommand& bytes, uint64_t address, size_t size, uint32_t key) {
  put(bytes, 24, address);
  put(bytes, 32, static_cast<uint32_t>(size));  // three bytes; the fourth is the key's first
  put(bytes, 35, key);
  put(bytes, 39, kInMemory);
}

inline void describe_capsule(NvmeCommand& bytes, size_t size) {
  put(bytes, 24, uint64_t{0});
  put(bytes, 32, static_cast<uint32_t>(size));
  put(bytes, 39, kInCapsuleAtOffset);
}

}  // namespace uroce::remote_disk
