// SPDX-License-Identifier: BSD-2-Clause
// memory_pattern MIB SECONDS: threads write to memory and look whether what they wrote last is still there. Run by
// ../migration.py in a guest that moves while it runs: a page that the emulator copied, and did not notice to be
// written to after that, comes back as it was. Uses neither network nor RDMA.
//
// Ends with 0 where nothing was wrong, with 1 and a line for the first words that were.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPage = 4096 / sizeof(uint64_t), kStep = 64 / sizeof(uint64_t);  // words
constexpr int kThreads = 2;                                                       // as many as the guest has CPUs
constexpr int kShown = 10;

std::atomic<uint64_t> rounds{0}, wrong{0};

// One word of each cache line: checked, then written with the round and its place.
void write_and_check(uint64_t* words, size_t count, std::chrono::steady_clock::time_point end) {
  for (uint64_t round = 0; std::chrono::steady_clock::now() < end; ++round, ++rounds) {
    for (size_t at = 0; at < count; at += kStep) {
      auto* const word = static_cast<volatile uint64_t*>(words + at);
      const uint64_t expected = round == 0 ? 0 : round << 32 | at;
      const uint64_t found = *word;
      if (found != expected && wrong++ < kShown) {
        std::printf("page %zu, word %zu: %#llx, was written as %#llx\n", at / kPage, at % kPage,
                    static_cast<unsigned long long>(found), static_cast<unsigned long long>(expected));
      }
      *word = (round + 1) << 32 | at;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t words = (std::strtoul(argv[1], nullptr, 10) << 20) / sizeof(uint64_t) / kThreads;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::strtoul(argv[2], nullptr, 10));
  std::vector<std::vector<uint64_t>> memory(kThreads, std::vector<uint64_t>(words));
  std::vector<std::thread> threads;
  for (auto& part : memory) threads.emplace_back([&part, end] { write_and_check(part.data(), part.size(), end); });
  for (std::thread& thread : threads) thread.join();
  std::printf("%llu words were wrong in %llu rounds\n", static_cast<unsigned long long>(wrong.load()),
              static_cast<unsigned long long>(rounds.load()));
  return wrong == 0 ? 0 : 1;
}
