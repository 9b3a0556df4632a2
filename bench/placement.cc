// SPDX-License-Identifier: BSD-2-Clause
// What placing payload in order costs (engine/memory/ordered_copy.h), beside memcpy: as a receiver does it, which has
// summed up to 16 KiB of packets before it copies them. Time is of both passes and per KiB; the sum alone is beside
// them.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstring>
#include <string>
#include <vector>

#include "engine/memory/ordered_copy.h"
#include "wire/crc32.h"

namespace uroce {
namespace {

using Copy = void (*)(uint8_t*, const uint8_t*, size_t);

void with_memcpy(uint8_t* to, const uint8_t* from, size_t size) {
  std::memcpy(to, from, size);
}

void in_order(uint8_t* to, const uint8_t* from, size_t size) {
  memory::copy_in_order(to, from, size);
}

void nothing(uint8_t*, const uint8_t*, size_t) {}

// Arguments: payload of a packet, and of how many KiB the buffer is that messages go to in turn.
void receive(benchmark::State& state, Copy copy) {
  constexpr size_t kRow = size_t{16} << 10, kArea = size_t{256} << 10, kHeaders = 12;
  const auto payload = static_cast<size_t>(state.range(0));
  const size_t room = static_cast<size_t>(state.range(1)) << 10, frame = payload + 64;
  const size_t row = std::max<size_t>(kRow / payload, 1);
  std::vector<uint8_t> frames(kArea + row * frame, 1), buffer(room + 64, 2);
  uint8_t* const first = buffer.data() + (64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64);
  size_t from = 0, to = 0;
  uint32_t sum = 0;
  for (auto _ : state) {
    const uint8_t* const begin = &frames[from] + kHeaders;
    for (size_t i = 0; i < row; ++i) sum = wire::crc32_update(sum, begin + i * frame, payload);
    for (size_t i = 0; i < row; ++i) copy(first + to + i * payload, begin + i * frame, payload);
    benchmark::DoNotOptimize(sum);
    benchmark::ClobberMemory();
    from = from + row * frame < kArea ? from + row * frame : 0;
    to = to + 2 * row * payload <= room ? to + row * payload : 0;
  }
  const auto kib = static_cast<double>(state.iterations()) * static_cast<double>(row * payload) / 1024;
  state.counters["per KiB"] = benchmark::Counter(kib, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void register_all() {
  const std::pair<const char*, Copy> copies[] = {{"summed", nothing}, {"memcpy", with_memcpy}, {"ordered", in_order}};
  for (const auto& [name, copy] : copies) {
    auto* const made =
        benchmark::RegisterBenchmark(name, [run = copy](benchmark::State& state) { receive(state, run); });
    for (const int payload : {64, 256, 1024, 4096, 65536}) {
      for (const int room : {64, 1024, 32768}) made->Args({payload, room});
    }
    made->MinTime(0.02)->ComputeStatistics(
        "lowest", [](const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); });
  }
}

}  // namespace
}  // namespace uroce

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  uroce::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
