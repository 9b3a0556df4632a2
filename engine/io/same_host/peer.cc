// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/peer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/base/clock.h"
#include "engine/base/fork.h"

namespace uroce::io {
namespace {

// The memory: a page with the controls of both rings, then the rings; ring 0 is what side 0 writes to.
constexpr size_t kControlSize = 4096;
constexpr size_t kMemorySize = kControlSize + 2 * kRingSize;
static_assert(2 * sizeof(RingControl) <= kControlSize);
// As it is mapped: each ring twice.
constexpr size_t kMappedSize = kControlSize + 4 * kRingSize;

// What a ring of a stranger may take in the long run; one thread that sleeps is woken in a tenth of that.
constexpr Duration kFairRing = std::chrono::microseconds(50);
// By how much more, before there are no more rings.
constexpr Duration kMostRingDebt = std::chrono::milliseconds(1);

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

int make_peers(PeerEnd& one, PeerEnd& other) {
  UniqueFd memory(memfd_create("uroce peers", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ftruncate(memory.get(), kMemorySize) != 0 || fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return errno;
  }
  UniqueFd second(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!second) return errno;
  auto [ours, theirs] = make_bell();
  if (!ours) return errno;
  one = {std::move(memory), std::move(ours), 0};
  other = {std::move(second), std::move(theirs), 1};
  return 0;
}

// --- mapping --------------------------------------------------------------------------------------------------------

// Memory that shrinks would be a SIGBUS here.
bool Peer::Mapping::map(int memory) {
  struct stat status {};
  const int seals = fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memory, &status) != 0) return false;
  if (status.st_size != static_cast<off_t>(kMemorySize)) return false;
  void* const room = mmap(nullptr, kMappedSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  base = static_cast<uint8_t*>(room);
  const auto place = [&](size_t at, size_t size, size_t offset) {
    return mmap(base + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, static_cast<off_t>(offset)) !=
           MAP_FAILED;
  };
  size_t at = kControlSize;
  bool mapped = place(0, kControlSize, 0);
  for (const size_t offset : {kControlSize, kControlSize, kControlSize + kRingSize, kControlSize + kRingSize}) {
    mapped = mapped && place(at, kRingSize, offset);
    at += kRingSize;
  }
  return mapped && madvise(base, kMappedSize, MADV_DONTFORK) == 0;
}

Peer::Mapping::~Mapping() {
  if (base != nullptr) munmap(base, kMappedSize);
}

RingControl& Peer::Mapping::control(uint32_t side) const {
  return reinterpret_cast<RingControl*>(base)[side];
}

uint8_t* Peer::Mapping::ring(uint32_t side) const {
  return base + kControlSize + size_t{side} * 2 * kRingSize;
}

// --- peer -----------------------------------------------------------------------------------------------------------

std::unique_ptr<Peer> Peer::open(uint32_t range, PeerEnd end) {
  auto mapping = std::make_unique<Mapping>();
  const bool usable = end.side <= 1 && end.bell && mapping->map(end.memory.get());
  if (usable) return std::unique_ptr<Peer>(new Peer(range, std::move(mapping), end, std::move(end.bell)));
  ForkGuard().close(end.bell.release());
  return nullptr;
}

Peer::Peer(uint32_t its_range, std::unique_ptr<Mapping> mapping, const PeerEnd& end, UniqueFd bell)
    : range(its_range),
      out(mapping->control(end.side), mapping->ring(end.side)),
      in(mapping->control(1 - end.side), mapping->ring(1 - end.side)),
      mapping_(std::move(mapping)),
      bell_(std::move(bell)),
      of_stranger_(end.of_stranger) {}

void Peer::wake() {
  if (costly_) return;
  if (!of_stranger_) return ring_bell(bell_.get());
  const bool timed = is_timed_;
  const auto now = [timed] { return timed ? thread_time() : monotonic_now().time_since_epoch(); };
  const Duration begin = now();
  ring_bell(bell_.get());
  account_for_ring(now() - begin);
}

// The clock says nothing against the peer, as others may have had the processor meanwhile: it is looked at closer then.
void Peer::account_for_ring(Duration took) {
  ring_debt_ = std::max(ring_debt_ + took - kFairRing, Duration{});
  if (ring_debt_ > kMostRingDebt) {
    costly_ |= is_timed_;
    ended_ |= is_timed_;
    is_timed_ = true;
    ring_debt_ = Duration{1};
  } else if (ring_debt_ == Duration{}) {
    is_timed_ = false;
  }
}

// Nothing is in it that could make closing it wait.
Peer::~Peer() {
  ForkGuard().close(bell_.release());
}

}  // namespace uroce::io
