// SPDX-License-Identifier: BSD-2-Clause
// A source that changes while it is copied and summed, as memory that an application goes on writing: the sum must be
// that of the bytes that were copied. To make every change count, the source is protected, and each instruction that
// reads it traps twice: before it, to let it read, and behind it, to change all of the source.
#include <gtest/gtest.h>

#if defined(__x86_64__) && defined(__linux__)

#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#include "wire/crc32.h"
#include "wire/crc32_kernels.h"

namespace uroce::wire {
namespace {

constexpr size_t kSize = 8192;
constexpr greg_t kTrapFlag = 0x100;

// A page range that is mapped twice: `source` for the code under test, `behind` for the one that changes it.
struct Changing {
  uint8_t* source = nullptr;
  uint8_t* behind = nullptr;
  volatile size_t changes = 0;
};
Changing memory;

void let_one_instruction_read(int, siginfo_t* info, void* context) {
  const auto* const at = static_cast<const uint8_t*>(info->si_addr);
  if (at < memory.source || at >= memory.source + kSize) {
    std::signal(SIGSEGV, SIG_DFL);
    return;
  }
  mprotect(memory.source, kSize, PROT_READ);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}

void change_everything(int, siginfo_t*, void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  for (size_t i = 0; i < kSize; ++i) memory.behind[i] = static_cast<uint8_t>(memory.behind[i] + 0x3b);
  memory.changes = memory.changes + 1;
  mprotect(memory.source, kSize, PROT_NONE);
}

class Crc32OfAChangingSource : public testing::TestWithParam<Crc32Kernel> {
 protected:
  void SetUp() override {
    if (!GetParam().supported()) GTEST_SKIP() << "this CPU cannot run it";
    const int file = memfd_create("source", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, kSize), 0);
    memory.source = static_cast<uint8_t*>(mmap(nullptr, kSize, PROT_NONE, MAP_SHARED, file, 0));
    memory.behind = static_cast<uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    ASSERT_NE(memory.source, MAP_FAILED);
    ASSERT_NE(memory.behind, MAP_FAILED);
    for (size_t i = 0; i < kSize; ++i) memory.behind[i] = static_cast<uint8_t>(i * 7);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = let_one_instruction_read;
    sigaction(SIGSEGV, &action, &segv_before_);
    action.sa_sigaction = change_everything;
    sigaction(SIGTRAP, &action, &trap_before_);
  }
  void TearDown() override {
    if (memory.source == nullptr) return;
    sigaction(SIGSEGV, &segv_before_, nullptr);
    sigaction(SIGTRAP, &trap_before_, nullptr);
    munmap(memory.source, kSize);
    munmap(memory.behind, kSize);
    memory.source = memory.behind = nullptr;
  }

 private:
  struct sigaction segv_before_ {
  }, trap_before_{};
};

INSTANTIATE_TEST_SUITE_P(All, Crc32OfAChangingSource, testing::ValuesIn(crc32_kernels().begin(), crc32_kernels().end()),
                         [](const auto& kernel) {
                           std::string name = kernel.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_P(Crc32OfAChangingSource, IsThatOfTheBytesCopied) {
  std::vector<uint8_t> out(600);
  for (size_t n = 1; n <= out.size(); n += n < 340 ? 1 : 37) {
    const size_t changes = memory.changes;
    const uint32_t state = GetParam().copy(7, out.data(), memory.source + n % 19, n);
    ASSERT_GT(memory.changes, changes) << "nothing has changed";
    ASSERT_EQ(state, crc32_update_reference(7, out.data(), n)) << n << " bytes";
  }
}

}  // namespace
}  // namespace uroce::wire

#endif
