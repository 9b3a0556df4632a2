// SPDX-License-Identifier: BSD-2-Clause
// What remote_disk does with a disk: writes regions of it, in commands of all sizes, and compares what it reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/interop/remote_disk/disk.h"

namespace uroce::remote_disk {

struct Region {
  uint64_t block, blocks;
};

// The one that is written once, and the one in which commands run while the target is restarted.
inline constexpr Region kKept{0, 8192}, kBusy{16384, 2048};

// The contents of a region are a function of the seed. Both return how many commands it took, and throw Wrong and Lost.
size_t write(Disk& disk, Region region, uint64_t seed);
// The contents are those of one of the seeds, block by block.
size_t read(Disk& disk, Region region, std::span<const uint64_t> seeds);

}  // namespace uroce::remote_disk
