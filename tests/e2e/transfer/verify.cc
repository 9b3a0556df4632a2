// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/verify.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <fmt/format.h>
#include <isa-l/crc64.h>
#include <sys/mman.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

constexpr size_t kMaxGap = 64;

// Little-endian on every machine, so that peers agree.
uint64_t stream_word(uint64_t key, uint64_t index) {
  return htole64(mix(key + index * kGoldenGamma));
}

}  // namespace

void fill_stream(uint64_t key, uint64_t offset, std::span<uint8_t> out) {
  constexpr size_t kWord = sizeof(uint64_t);
  uint64_t index = offset / kWord;
  uint8_t* to = out.data();
  size_t left = out.size();
  if (const size_t skip = offset % kWord; skip != 0) {
    const uint64_t word = stream_word(key, index++);
    const size_t count = std::min(left, kWord - skip);
    std::memcpy(to, reinterpret_cast<const uint8_t*>(&word) + skip, count);
    to += count;
    left -= count;
  }
  for (; left >= kWord; left -= kWord, to += kWord) {
    const uint64_t word = stream_word(key, index++);
    std::memcpy(to, &word, kWord);
  }
  if (left > 0) {
    const uint64_t word = stream_word(key, index);
    std::memcpy(to, &word, left);
  }
}

std::optional<size_t> first_difference(uint64_t key, uint64_t offset, std::span<const uint8_t> bytes) {
  std::array<uint8_t, 1024> expected;
  for (size_t done = 0; done < bytes.size(); done += expected.size()) {
    const size_t count = std::min(expected.size(), bytes.size() - done);
    fill_stream(key, offset + done, {expected.data(), count});
    const uint8_t* actual = bytes.data() + done;
    if (std::memcmp(expected.data(), actual, count) == 0) continue;
    return done + static_cast<size_t>(std::mismatch(actual, actual + count, expected.data()).first - actual);
  }
  return std::nullopt;
}

Pieces lay_out(Random& random, size_t size, size_t max_pieces) {
  Pieces pieces;
  const size_t count = size == 0 ? 0 : 1 + random.below(std::min(max_pieces, size));
  size_t offset = kMargin / 2;
  size_t left = size;
  for (size_t i = 0; i < count; ++i) {
    const size_t still_to_come = count - i - 1;
    const size_t length = still_to_come == 0 ? left : 1 + random.below(left - still_to_come);
    offset += kMaxGap / 4 + random.below(kMaxGap * 3 / 4);
    pieces.push_back({offset, length});
    offset += length;
    left -= length;
  }
  return pieces;
}

Pieces head(const Pieces& pieces, size_t size) {
  Pieces result;
  for (const Piece& piece : pieces) {
    if (size == 0) break;
    result.push_back({piece.offset, std::min(piece.length, size)});
    size -= result.back().length;
  }
  return result;
}

size_t slot_size(uint32_t max_size) {
  const size_t needed = kMargin + std::max<size_t>(max_size, 8) + kReceiveSlack + kMaxPieces * kMaxGap + kMargin;
  return (needed + 63) / 64 * 64;
}

GuardedMemory::GuardedMemory(uint64_t slots, size_t slot_size, uint64_t guard_key)
    : slots_(slots), slot_size_(slot_size), size_(slots * slot_size), key_(guard_key) {
  void* area = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) {
    throw Failure(ExitCode::kUsage, fmt::format("no {} bytes of memory: {}; lower --max-size, --queue-depth or --qps",
                                                size_, std::strerror(errno)));
  }
  base_ = static_cast<uint8_t*>(area);
  fill_stream(key_, 0, bytes());
}

GuardedMemory::~GuardedMemory() {
  munmap(base_, size_);
}

void GuardedMemory::fill_payload(uint64_t number, const Pieces& pieces, uint64_t key) {
  uint64_t position = 0;
  for (const Piece& piece : pieces) {
    fill_stream(key, position, {slot(number) + piece.offset, piece.length});
    position += piece.length;
  }
}

void GuardedMemory::restore_guard(uint64_t number, const Pieces& pieces) {
  for (const Piece& piece : pieces) {
    const size_t offset = slot_offset(number) + piece.offset;
    fill_stream(key_, offset, {base_ + offset, piece.length});
  }
}

std::optional<size_t> GuardedMemory::payload_difference(uint64_t number, const Pieces& pieces, uint64_t key) const {
  size_t position = 0;
  for (const Piece& piece : pieces) {
    const auto difference = first_difference(key, position, {slot(number) + piece.offset, piece.length});
    if (difference) return position + *difference;
    position += piece.length;
  }
  return std::nullopt;
}

std::optional<size_t> GuardedMemory::guard_range(uint64_t number, size_t begin, size_t end) const {
  const size_t offset = slot_offset(number) + begin;
  const auto difference = first_difference(key_, offset, {base_ + offset, end - begin});
  if (difference) return begin + *difference;
  return std::nullopt;
}

std::optional<size_t> GuardedMemory::guard_difference(uint64_t number, const Pieces& pieces) const {
  size_t begin = 0;
  for (const Piece& piece : pieces) {
    if (const auto difference = guard_range(number, begin, piece.offset)) return difference;
    begin = piece.offset + piece.length;
  }
  return guard_range(number, begin, std::min(slot_size_, begin + kMargin));
}

std::optional<size_t> GuardedMemory::stale_write(uint64_t number, const Pieces& pieces) const {
  const size_t end = pieces.empty() ? 0 : pieces.back().offset + pieces.back().length;
  return guard_range(number, 0, std::min(slot_size_, end + kMargin));
}

std::optional<size_t> GuardedMemory::any_difference() const {
  return first_difference(key_, 0, bytes());
}

uint64_t GuardedMemory::hash(uint64_t number, const Pieces& pieces) const {
  uint64_t crc = 0;
  for (const Piece& piece : pieces) crc = crc64_ecma_refl(crc, slot(number) + piece.offset, piece.length);
  return crc;
}

}  // namespace uroce::transfer
