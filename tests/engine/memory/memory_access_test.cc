// SPDX-License-Identifier: BSD-2-Clause
// Memory that the application takes away while it is being copied (faults.md, 42): the copy fails, the process lives.
#include "engine/memory/memory_access.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace uroce::memory {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Three pages of which the middle one can be made inaccessible.
class Pages {
 public:
  Pages() {
    base_ = static_cast<uint8_t*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(base_, 7, 3 * kPage);
  }
  ~Pages() {
    munmap(base_, kPage);
    if (!unmapped_) munmap(base_ + kPage, kPage);
    munmap(base_ + 2 * kPage, kPage);
  }
  uint8_t* at(size_t offset) { return base_ + offset; }
  void unmap_middle() { unmapped_ = munmap(base_ + kPage, kPage) == 0; }
  void protect_middle(int protection) { mprotect(base_ + kPage, kPage, protection); }

 private:
  uint8_t* base_;
  bool unmapped_ = false;
};

void touch(uint8_t* at) {
  *const_cast<volatile uint8_t*>(at) = 1;
}

class MemoryAccess : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(install_fault_handler(), 0); }
  Pages pages_;
  std::array<uint8_t, 8192> ours_{};
};

TEST_F(MemoryAccess, CopiesWhatIsThere) {
  EXPECT_TRUE(copy(ours_.data(), pages_.at(kPage - 10), 20));
  EXPECT_EQ(ours_[0], 7);
  EXPECT_EQ(ours_[19], 7);
  EXPECT_EQ(ours_[20], 0);
  ours_[0] = 9;
  EXPECT_TRUE(copy(pages_.at(kPage), ours_.data(), 1));
  EXPECT_EQ(*pages_.at(kPage), 9);
}

TEST_F(MemoryAccess, UnmappedMemoryFailsInBothDirections) {
  pages_.unmap_middle();
  EXPECT_FALSE(copy(ours_.data(), pages_.at(kPage + 5), 1));
  EXPECT_FALSE(copy(ours_.data(), pages_.at(kPage - 8), 64)) << "runs into it";
  EXPECT_FALSE(copy(pages_.at(kPage), ours_.data(), 4096));
  EXPECT_TRUE(copy(ours_.data(), pages_.at(0), kPage)) << "the neighbour is still there";
}

TEST_F(MemoryAccess, ProtectedMemoryFailsForWhatIsNotAllowed) {
  pages_.protect_middle(PROT_READ);
  EXPECT_TRUE(copy(ours_.data(), pages_.at(kPage), 16));
  EXPECT_FALSE(copy(pages_.at(kPage), ours_.data(), 16));
  pages_.protect_middle(PROT_NONE);
  EXPECT_FALSE(copy(ours_.data(), pages_.at(kPage), 16));
  pages_.protect_middle(PROT_READ | PROT_WRITE);
  EXPECT_TRUE(copy(pages_.at(kPage), ours_.data(), 16));
}

// A file that was cut off raises SIGBUS.
TEST_F(MemoryAccess, TruncatedFileFails) {
  char name[] = "/tmp/uroce-memory-access-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  unlink(name);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kPage)), 0);
  void* const map = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_TRUE(copy(ours_.data(), map, 16));
  ASSERT_EQ(ftruncate(fd, 0), 0);
  EXPECT_FALSE(copy(ours_.data(), map, 16));
  munmap(map, kPage);
  close(fd);
}

TEST_F(MemoryAccess, ManyFaultsInARowAndInSeveralThreads) {
  pages_.protect_middle(PROT_NONE);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::array<uint8_t, 64> local{};
      for (int i = 0; i < 1000; ++i) {
        if (copy(local.data(), pages_.at(kPage), 64) || !copy(local.data(), pages_.at(0), 64)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(MemoryAccess, GuardsAnyAccess) {
  pages_.protect_middle(PROT_NONE);
  int steps = 0;
  EXPECT_FALSE(guarded(pages_.at(kPage), 1, [&] {
    ++steps;
    touch(pages_.at(kPage));
    ++steps;
  }));
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(guarded(pages_.at(kPage), 1, [&] { ++steps; }));
}

// An access in a signal handler that interrupts another one has a recovery point of its own.
// Fails where threads do not lock each other out.
TEST_F(MemoryAccess, UnalignedAtomicsAreAtomicAmongThemselves) {
  constexpr uint64_t kEach = 20000;
  std::array<uint8_t, 16> memory{};
  uint8_t* const address = memory.data() + 3;
  const auto add = [address] {
    for (uint64_t i = 0; i < kEach; ++i) {
      uint64_t found = 0;
      ASSERT_TRUE(atomic_unaligned(address, {true, 0x100000001, 0}, found));
    }
  };
  std::thread other(add);
  add();
  other.join();
  uint64_t value = 0, found = 0;
  std::memcpy(&value, address, sizeof(value));
  EXPECT_EQ(value, 2 * kEach * 0x100000001);

  ASSERT_TRUE(atomic_unaligned(address, {false, 5, value + 1}, found));
  EXPECT_EQ(found, value);
  std::memcpy(&found, address, sizeof(found));
  EXPECT_EQ(found, value) << "compared unequal: not swapped";
  ASSERT_TRUE(atomic_unaligned(address, {false, 5, value}, found));
  std::memcpy(&found, address, sizeof(found));
  EXPECT_EQ(found, 5u);
}

TEST_F(MemoryAccess, GuardsNest) {
  pages_.protect_middle(PROT_NONE);
  bool inner = true, went_on = false;
  EXPECT_FALSE(guarded(pages_.at(kPage), 1, [&] {
    inner = copy(ours_.data(), pages_.at(kPage), 1);
    went_on = true;
    touch(pages_.at(kPage));
  }));
  EXPECT_FALSE(inner);
  EXPECT_TRUE(went_on);
}

// Blocked faults kill; the application may block them after the thread's first access.
TEST_F(MemoryAccess, FaultsAreUnblockedAgain) {
  pages_.protect_middle(PROT_NONE);
  EXPECT_FALSE(copy(ours_.data(), pages_.at(kPage), 1));
  const auto is_blocked = [] {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return sigismember(&mask, SIGSEGV) == 1 || sigismember(&mask, SIGBUS) == 1;
  };
  const Time start{std::chrono::seconds(1)};
  keep_faults_unblocked(start);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  keep_faults_unblocked(start + std::chrono::microseconds(999));
  EXPECT_TRUE(is_blocked()) << "not a system call every time";
  keep_faults_unblocked(start + std::chrono::milliseconds(1));
  EXPECT_FALSE(is_blocked());
  EXPECT_FALSE(copy(ours_.data(), pages_.at(kPage), 1));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they look at such an address first
TEST_F(MemoryAccess, AddressThatNoMemoryCanHave) {
  EXPECT_FALSE(copy(ours_.data(), reinterpret_cast<const void*>(0x1234'0000'0000'0000), 8));
}
#endif

// What is not ours goes to whoever handled it before, also when that one came first and when it came later.
volatile sig_atomic_t seen_by_application = 0;

void application_handler(int) {
  seen_by_application = seen_by_application + 1;
  std::_Exit(seen_by_application == 1 ? 42 : 43);
}

TEST_F(MemoryAccess, FaultsOfTheApplicationReachItsHandler) {
  EXPECT_EXIT(
      {
        struct sigaction action {};
        action.sa_handler = application_handler;
        sigaction(SIGSEGV, &action, nullptr);
        if (install_fault_handler() != 0) std::_Exit(1);
        pages_.protect_middle(PROT_NONE);
        if (copy(ours_.data(), pages_.at(kPage), 1)) std::_Exit(2);
        touch(pages_.at(kPage));
      },
      testing::ExitedWithCode(42), "");
}

// A program that finds out by faults what is written to, as garbage collectors do, in a handler that interrupts a copy.
uint8_t* watched_page = nullptr;
volatile sig_atomic_t writes_seen = 0;

void on_write(int, siginfo_t* info, void*) {
  if (info->si_addr != watched_page) std::_Exit(50);
  writes_seen = writes_seen + 1;
  mprotect(watched_page, kPage, PROT_READ | PROT_WRITE);
}

TEST_F(MemoryAccess, FaultsOfAHandlerThatInterruptsACopyAreTheApplications) {
  EXPECT_EXIT(
      {
        watched_page = pages_.at(0);
        pages_.protect_middle(PROT_NONE);
        struct sigaction action {};
        action.sa_sigaction = on_write;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, nullptr);
        if (install_fault_handler() != 0) std::_Exit(1);
        signal(SIGUSR1, [](int) { touch(watched_page); });
        mprotect(watched_page, kPage, PROT_READ);
        const bool copied = guarded(pages_.at(kPage), kPage, [&] {
          raise(SIGUSR1);
          if (writes_seen != 1) std::_Exit(2);
          touch(pages_.at(kPage));  // and now the copy itself
        });
        std::_Exit(copied ? 3 : 43 + writes_seen);
      },
      testing::ExitedWithCode(44), "");
}

// The set of handlers that ours took the place of changes while other threads are in the handler.
TEST_F(MemoryAccess, HandlersAreReplacedWhileFaultsAreHandedOn) {
  EXPECT_EXIT(
      {
        static std::atomic<bool> stop{false};
        static std::atomic<int> handled{0};
        static uint8_t* const page = pages_.at(kPage);
        const auto handler = [](int, siginfo_t*, void*) {
          ++handled;
          mprotect(page, kPage, PROT_READ | PROT_WRITE);
        };
        struct sigaction action {};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = handler;
        sigaction(SIGSEGV, &action, nullptr);
        if (install_fault_handler() != 0) std::_Exit(1);
        std::thread faulting([] {
          while (!stop) {
            mprotect(page, kPage, PROT_NONE);
            touch(page);
          }
        });
        for (int i = 0; i < 2000 || handled < 100; ++i) {
          sigaction(SIGSEGV, &action, nullptr);  // the application installs its own again, and registers memory
          if (install_fault_handler() != 0) std::_Exit(1);
        }
        stop = true;
        faulting.join();
        std::_Exit(45);
      },
      testing::ExitedWithCode(45), "");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they handle it themselves
TEST_F(MemoryAccess, FaultsOfOursOutsideOfTheMemoryAreNotHidden) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        if (install_fault_handler() != 0) std::_Exit(1);
        pages_.protect_middle(PROT_NONE);
        guarded(pages_.at(0), kPage, [&] { touch(pages_.at(kPage)); });
        std::_Exit(3);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(MemoryAccess, WithoutAHandlerTheProcessDiesAsItWould) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        if (install_fault_handler() != 0) std::_Exit(1);
        pages_.protect_middle(PROT_NONE);
        if (copy(ours_.data(), pages_.at(kPage), 1)) std::_Exit(2);
        touch(pages_.at(kPage));
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(MemoryAccess, ASignalFromOutsideIsNotAFault) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        if (install_fault_handler() != 0) std::_Exit(1);
        raise(SIGSEGV);
        std::_Exit(3);
      },
      testing::KilledBySignal(SIGSEGV), "");
}
#endif

}  // namespace
}  // namespace uroce::memory
