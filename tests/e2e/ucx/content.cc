// SPDX-License-Identifier: BSD-2-Clause
#include "content.h"

#include <algorithm>
#include <cstring>

namespace exchange {

uint64_t Random::next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

uint64_t name_of(Part part, unsigned way, unsigned side, size_t size, unsigned number) {
  return static_cast<uint64_t>(part) << 56 | static_cast<uint64_t>(way & 0x7f) << 49 |
         static_cast<uint64_t>(side) << 48 | static_cast<uint64_t>(number & 0xffff) << 32 | (size & 0xffffffff);
}

std::vector<uint8_t> content(uint64_t seed, uint64_t name, size_t size) {
  std::vector<uint8_t> bytes((size + 7) / 8 * 8);
  Random random(seed * 0x9e3779b97f4a7c15 ^ Random(name).next());
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random.next();
    std::memcpy(&bytes[at], &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

uint64_t hash(uint64_t name, const uint8_t* data, size_t size) {
  constexpr uint64_t kPrime = 0x100000001b3;  // of FNV-1a, here over words
  uint64_t sum = (0xcbf29ce484222325 ^ name) * kPrime;
  size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    uint64_t word;
    std::memcpy(&word, data + at, 8);
    sum = (sum ^ word) * kPrime;
    sum ^= sum >> 29;
  }
  for (; at < size; ++at) sum = (sum ^ data[at]) * kPrime;
  return sum;
}

std::vector<size_t> sizes_between(size_t min, size_t max) {
  std::vector<size_t> sizes;
  for (size_t power = 1; power - 1 <= max; power *= 2) {
    for (const size_t size : {power - 1, power, power + 1}) {
      if (size >= min && size <= max && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
    }
  }
  return sizes;
}

std::vector<Piece> cut(Random random, size_t size, size_t most) {
  std::vector<size_t> bounds = {0, size};
  for (size_t i = 1; i < most; ++i) bounds.push_back(random.below(size));
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::vector<Piece> pieces;
  for (size_t i = 1; i < bounds.size(); ++i) pieces.push_back({bounds[i - 1], bounds[i] - bounds[i - 1]});
  for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
  return pieces;
}

}  // namespace exchange
