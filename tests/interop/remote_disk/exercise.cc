// SPDX-License-Identifier: BSD-2-Clause
#include "tests/interop/remote_disk/exercise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace uroce::remote_disk {
namespace {

// libiscsi 1.19 does not mind how many commands the target takes; Linux takes 64.
constexpr size_t kDepth = 8;

// Bytes of the commands, again and again until the region is full. More than one of the largest kind are outstanding.
constexpr std::array<size_t, 10> kSizes{
    512, 1024, 3584, 4096, 12288, 65536, 131072, kLargestCommand, kLargestCommand, kLargestCommand};

struct Command {
  uint64_t block;
  size_t offset, size;  // in the region's memory
};

template <typename Sizes>
std::vector<Command> split(Region region, const Sizes& sizes) {
  std::vector<Command> commands;
  const size_t end = region.blocks * kBlock;
  for (size_t offset = 0; offset < end; offset += commands.back().size) {
    const size_t size = std::min(sizes[commands.size() % sizes.size()], end - offset);
    commands.push_back({region.block + offset / kBlock, offset, size});
  }
  return commands;
}

uint64_t mix(uint64_t value) {  // SplitMix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::array<uint8_t, kBlock> contents(uint64_t block, uint64_t seed) {
  std::array<uint64_t, kBlock / 8> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = mix(mix(seed) ^ (block * words.size() + i));
  std::array<uint8_t, kBlock> bytes;
  std::memcpy(bytes.data(), words.data(), kBlock);
  return bytes;
}

template <typename Start>
void run(Disk& disk, const std::vector<Command>& commands, Start start) {
  for (const Command& command : commands) {
    while (disk.outstanding() >= kDepth) disk.wait();
    start(command);
  }
  while (disk.outstanding() > 0) disk.wait();
}

}  // namespace

size_t write(Disk& disk, Region region, uint64_t seed) {
  std::vector<uint8_t> memory(region.blocks * kBlock);
  for (uint64_t i = 0; i < region.blocks; ++i) {
    std::ranges::copy(contents(region.block + i, seed), memory.begin() + static_cast<ptrdiff_t>(i * kBlock));
  }
  const auto commands = split(region, kSizes);
  run(disk, commands, [&](const Command& c) { disk.write(c.block, std::span(memory).subspan(c.offset, c.size)); });
  return commands.size();
}

// Other borders between the commands than the writer's. Memory with a seed of its own: what is not brought shows.
size_t read(Disk& disk, Region region, std::span<const uint64_t> seeds) {
  std::vector<uint8_t> memory(region.blocks * kBlock, 0xa5);
  std::array<size_t, kSizes.size()> sizes;
  std::ranges::reverse_copy(kSizes, sizes.begin());
  const auto commands = split(region, sizes);
  run(disk, commands, [&](const Command& c) { disk.read(c.block, std::span(memory).subspan(c.offset, c.size)); });
  for (uint64_t i = 0; i < region.blocks; ++i) {
    const auto came = std::span(memory).subspan(i * kBlock, kBlock);
    const auto is_of = [&](uint64_t seed) { return std::ranges::equal(came, contents(region.block + i, seed)); };
    if (std::ranges::none_of(seeds, is_of)) throw Wrong("block " + std::to_string(region.block + i) + " is wrong");
  }
  return commands.size();
}

}  // namespace uroce::remote_disk
