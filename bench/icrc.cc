// SPDX-License-Identifier: BSD-2-Clause
// How fast CRC-32 and the ICRC are, by implementation and size, beside memcpy and ISA-L. All data is in the L1 or L2
// cache. GB are 10^9 bytes of message.
#include "wire/icrc.h"

#include <benchmark/benchmark.h>
#include <cstring>
#include <isa-l.h>
#include <numeric>
#include <string>
#include <vector>

#include "wire/bth.h"
#include "wire/crc32.h"
#include "wire/crc32_kernels.h"

namespace uroce::wire {
namespace {

std::vector<uint8_t> message(size_t size) {
  std::vector<uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

void report(benchmark::State& state) {
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)) / 1e9, benchmark::Counter::kIsRate);
}

template <class Sum>  // uint32_t(const uint8_t*, size_t)
void sum_messages(benchmark::State& state, Sum sum) {
  const auto source = message(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    const uint8_t* p = source.data();
    benchmark::DoNotOptimize(p);
    benchmark::DoNotOptimize(sum(p, source.size()));
  }
  report(state);
}

template <class Copy>  // void(uint8_t*, const uint8_t*, size_t)
void copy_messages(benchmark::State& state, Copy copy) {
  const auto source = message(static_cast<size_t>(state.range(0)));
  std::vector<uint8_t> destination(source.size());
  for (auto _ : state) {
    copy(destination.data(), source.data(), source.size());
    benchmark::ClobberMemory();
  }
  report(state);
}

// Range: the InfiniBand part, BTH to pad.
void sum_packets(benchmark::State& state, const Envelope& envelope,
                 uint32_t (*sum)(const Envelope&, std::span<const uint8_t>)) {
  sum_messages(state, [&](const uint8_t* p, size_t n) { return sum(envelope, std::span(p, n)); });
}

// What a sender does: headers, then the payload copied and summed.
void send_packets(benchmark::State& state, const Envelope& envelope) {
  copy_messages(state, [&](uint8_t* dst, const uint8_t* src, size_t n) {
    std::array<uint8_t, kIcrcHeaderRoom> headers;
    std::memcpy(headers.data(), src, Bth::kSize);
    uint32_t crc = icrc_headers(envelope, static_cast<uint32_t>(n + 12), headers, Bth::kSize);
    std::memcpy(dst, headers.data(), Bth::kSize);
    crc = crc32_copy(crc, dst + Bth::kSize, src + Bth::kSize, n - Bth::kSize);
    benchmark::DoNotOptimize(icrc_finish(crc));
  });
}

void at_sizes(benchmark::internal::Benchmark* b) {
  for (const int size : {64, 256, 1024, 4096, 65536}) b->Arg(size);
}
void at_packet_sizes(benchmark::internal::Benchmark* b) {
  for (const int size : {16, 64, 256, 1024 + 28, 4096 + 28}) b->Arg(size);
}

void register_all() {
  using benchmark::RegisterBenchmark;
  static Envelope v4, v6;
  const uint8_t loopback[] = {127, 0, 0, 1};
  v4.source = v4.destination = IpAddress::v4(loopback);

  RegisterBenchmark("crc32/reference", [](auto& s) {
    sum_messages(s, [](const uint8_t* p, size_t n) { return crc32_update_reference(1, p, n); });
  })->Apply(at_sizes);
  for (const Crc32Kernel& kernel : crc32_kernels()) {
    if (!kernel.supported()) continue;
    const std::string name = kernel.name;
    RegisterBenchmark(("crc32/" + name).c_str(), [&kernel](auto& s) {
      sum_messages(s, [&](const uint8_t* p, size_t n) { return kernel.update(1, p, n); });
    })->Apply(at_sizes);
    RegisterBenchmark(("crc32_copy/" + name).c_str(), [&kernel](auto& s) {
      copy_messages(s, [&](uint8_t* dst, const uint8_t* src, size_t n) {
        benchmark::DoNotOptimize(kernel.copy(1, dst, src, n));
      });
    })->Apply(at_sizes);
  }
  RegisterBenchmark("crc32/isa-l", [](auto& s) {
    sum_messages(s, [](const uint8_t* p, size_t n) { return crc32_gzip_refl(1, p, n); });
  })->Apply(at_sizes);
  RegisterBenchmark("memcpy", [](auto& s) {
    copy_messages(s, [](uint8_t* dst, const uint8_t* src, size_t n) { std::memcpy(dst, src, n); });
  })->Apply(at_sizes);
  RegisterBenchmark("memcpy_then_crc32", [](auto& s) {
    copy_messages(s, [](uint8_t* dst, const uint8_t* src, size_t n) {
      std::memcpy(dst, src, n);
      benchmark::DoNotOptimize(crc32_update(1, dst, n));
    });
  })->Apply(at_sizes);

  RegisterBenchmark("icrc/reference", [](auto& s) { sum_packets(s, v4, icrc_reference); })->Apply(at_packet_sizes);
  RegisterBenchmark("icrc/v4", [](auto& s) { sum_packets(s, v4, icrc); })->Apply(at_packet_sizes);
  RegisterBenchmark("icrc/v6", [](auto& s) { sum_packets(s, v6, icrc); })->Apply(at_packet_sizes);
  RegisterBenchmark("icrc_send/v4", [](auto& s) { send_packets(s, v4); })->Apply(at_packet_sizes);

  static Envelope hidden = v4;
  hidden.ip_id_known = false;
  RegisterBenchmark("icrc_matches/v4_id_unknown_not_0", [](auto& s) {
    sum_packets(s, hidden,
                [](const Envelope& e, std::span<const uint8_t> ib) { return uint32_t{icrc_matches(e, ib)}; });
  })->Apply(at_packet_sizes);
}

}  // namespace
}  // namespace uroce::wire

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  uroce::wire::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
