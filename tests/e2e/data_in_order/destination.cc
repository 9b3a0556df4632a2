// SPDX-License-Identifier: BSD-2-Clause
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "tests/e2e/data_in_order/sides.h"

namespace uroce::data_in_order {
namespace {

uint8_t load(const uint8_t* byte) {
  return __atomic_load_n(byte, __ATOMIC_ACQUIRE);
}

class Destination {
 public:
  Destination(const Settings& settings, Shared& shared)
      : settings_(settings), shared_(shared), plan_(settings.seed), endpoint_(settings, shared, 1) {}

  uint32_t run() {
    endpoint_.connect();
    for (const Operation operation : {Operation::kWrite, Operation::kSend, Operation::kRead}) {
      check(endpoint_.data_in_order(operation) == 1, "the device does not say that data comes in order");
    }
    std::exception_ptr failure;
    std::thread watcher([&] {
      try {
        watch_all();
      } catch (...) {
        failure = std::current_exception();
        failed_.store(true);
      }
    });
    try {
      serve();
    } catch (...) {
      shared_.sides[1].failed.store(1);  // the watcher hears of it, too
      watcher.join();
      throw;
    }
    watcher.join();
    if (failure) std::rethrow_exception(failure);
    shared_.seen_all.store(1);
    wait_for(
        shared_, "the source", [&] { return shared_.all_complete.load() == 1; }, [&] { endpoint_.poll(); });
    return early_;
  }

 private:
  // --- the thread that posts and polls
  void serve() {
    allow();
    const auto seen_all = [&] { return failed_.load() || seen_.load(std::memory_order_acquire) == settings_.messages; };
    const auto turn = [&] {
      if (settings_.sleeps) std::this_thread::sleep_for(std::chrono::microseconds(200));
      endpoint_.poll();
      allow();
      while (settings_.operation == Operation::kRead && posted_ < shared_.filled.load(std::memory_order_acquire)) {
        endpoint_.read(plan_.message(posted_++));
      }
    };
    wait_for_all(seen_all, turn);
  }

  // As wait_for(), as long as messages come.
  template <class Condition, class Turn>
  void wait_for_all(Condition condition, Turn turn) {
    while (!condition()) {
      const uint32_t before = seen_.load();
      wait_for(
          shared_, "messages", [&] { return condition() || seen_.load() > before + 100; }, turn);
    }
  }

  // So many messages may come as there are slots which the watcher has seen and cleared; mostly one: it waits for that
  // then, and sees it come, while of many most are there when their turn comes.
  void allow() {
    const uint32_t seen = seen_.load(std::memory_order_acquire);
    const uint32_t window = seen / 256 % 4 == 0 ? kSlots : 1;
    allowed_ = std::max(allowed_, std::min(settings_.messages, seen + window));
    if (settings_.operation == Operation::kSend) {
      for (; posted_ < allowed_; ++posted_) endpoint_.receive(plan_.message(posted_));
    }
    shared_.allowed.store(allowed_, std::memory_order_release);
  }

  // --- the thread that watches
  void watch_all() {
    for (uint32_t i = 0; i < settings_.messages; ++i) {
      const Message m = plan_.message(i);
      watch(m);
      if (i % 4 == 0) expect_nothing_else(m);
      const auto complete = [&] { return settings_.operation == Operation::kWrite || endpoint_.completed() > i; };
      wait_for(shared_, "a completion", complete, [] {});
      std::fill_n(endpoint_.bytes(m), m.size, uint8_t{0});
      seen_.store(i + 1, std::memory_order_release);
    }
  }

  void watch(const Message& m) {
    const uint8_t* const bytes = endpoint_.bytes(m);
    const auto there = [&](uint32_t at) { return load(bytes + at) == m.value; };
    // Mostly on its core when the byte comes.
    const auto spin = [&] {
      for (uint32_t turns = 0; turns < 500 && !there(m.watched); ++turns) continue;
    };
    wait_for(
        shared_, "a byte", [&] { return there(m.watched); }, spin);
    // Those that come last if they come out of order: the first one, then those right in front.
    uint32_t missing = there(0) ? m.size : 0;
    for (uint32_t at = m.watched; at-- > 0;) {
      if (!there(at)) missing = at;
    }
    if (missing != m.size && ++early_ <= 5) {
      std::fprintf(stderr, "message %u, %u bytes to %p: byte %u was there, byte %u was not\n", m.number, m.size,
                   static_cast<const void*>(bytes), m.watched, missing);
    }
    wait_for(
        shared_, "the last byte", [&] { return there(m.size - 1); }, [] {});
  }

  // Nothing has been placed beside it, nor, again, what was there before.
  void expect_nothing_else(const Message& m) {
    const uint8_t* const slot = endpoint_.slot(m.slot());
    const uint8_t* const end = endpoint_.bytes(m) + m.size;
    const auto zero = [](uint8_t byte) { return byte == 0; };
    if (std::all_of(slot, slot + m.offset, zero) && std::all_of(end, slot + kSlotSize, zero)) return;
    throw Failure("bytes beside message " + std::to_string(m.number) + " have changed");
  }

  const Settings& settings_;
  Shared& shared_;
  const Plan plan_;
  Endpoint endpoint_;
  uint32_t allowed_ = 0, posted_ = 0, early_ = 0;
  std::atomic<uint32_t> seen_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace

uint32_t run_destination(const Settings& settings, Shared& shared) {
  return Destination(settings, shared).run();
}

}  // namespace uroce::data_in_order
