// SPDX-License-Identifier: BSD-2-Clause
// Registration of memory in all its kinds, and that traffic finds what was registered. Errno values as the kernel's.
#include <array>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <string>

#include "memory_fixture.h"

namespace {

// Newer than the header: values of the ABI.
constexpr unsigned int kFlushGlobal = 1u << 8, kFlushPersistent = 1u << 9;

class Registration : public MemoryTest {
 protected:
  // The errno value; 0: it was registered, and is not any more. Through the call that takes all flags.
  int outcome(void* address, size_t length, unsigned int access) {
    return outcome(address, length, address_of(address), access);
  }
  int outcome(void* address, size_t length, uint64_t iova, unsigned int access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr_iova2(client_.pd, address, length, iova, access);
    if (mr == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  }
};

// --- what is asked for -----------------------------------------------------------------------------------------------

TEST_F(Registration, EveryAccessFlag) {
  Pages pages(1);
  const auto with = [&](unsigned int access) { return outcome(pages.at(0), 64, access); };
  EXPECT_EQ(with(0), 0);
  EXPECT_EQ(with(IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(with(IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(with(IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(with(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(with(kAllRights), 0);
  EXPECT_EQ(with(IBV_ACCESS_MW_BIND), 0);
  EXPECT_EQ(with(IBV_ACCESS_ZERO_BASED), 0);
  EXPECT_EQ(with(IBV_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(with(IBV_ACCESS_HUGETLB), 0);
  EXPECT_EQ(with(IBV_ACCESS_RELAXED_ORDERING), 0);
  EXPECT_EQ(with(IBV_ACCESS_OPTIONAL_RANGE), 0) << "optional means: ignored when not known";
  EXPECT_EQ(with(kFlushGlobal), 0);
  EXPECT_EQ(with(kFlushPersistent), EOPNOTSUPP);
  for (unsigned int bit = 10; bit < 20; ++bit) EXPECT_EQ(with(1u << bit), EINVAL) << bit;
  EXPECT_EQ(with(1u << 30), EINVAL);
  EXPECT_EQ(with(1u << 31), EINVAL);
}

TEST_F(Registration, RangesThatAreNone) {
  Pages pages(4);
  EXPECT_EQ(outcome(pages.at(0), SIZE_MAX, 0u), EINVAL);
  EXPECT_EQ(outcome(nullptr, SIZE_MAX, 0u), EINVAL) << "the whole address space is for on-demand paging";
  EXPECT_EQ(outcome(pages.at(0), SIZE_MAX, IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(outcome(nullptr, 4096, 0u), EFAULT);
  pages.unmap(2);
  EXPECT_EQ(outcome(pages.at(0), pages.bytes(), 0u), EFAULT);
  EXPECT_EQ(outcome(pages.at(1), Pages::size() + 1, 0u), EFAULT);
  EXPECT_EQ(outcome(pages.at(1), Pages::size(), 0u), 0);
  EXPECT_EQ(outcome(pages.at(0), 64, address_of(pages.at(0)) + 1, 0), EINVAL) << "another offset in the page";
  EXPECT_EQ(outcome(pages.at(0), 64, 0x7000, 0), 0);
  EXPECT_EQ(outcome(pages.at(0), 8192, UINT64_MAX - 4095, 0), EINVAL) << "the iova wraps";
}

// Programs register what they have, and that may be nothing.
TEST_F(Registration, RegionsOfNoBytesGiveAccessToNothing) {
  Pages pages(2);
  pages.unmap(1);
  for (unsigned char* address : {pages.at(0), pages.at(0) + 100, pages.at(1)}) {
    ibv_mr* mr = ibv_reg_mr(client_.pd, address, 0, kAllRights);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->length, 0u);
    EXPECT_EQ(write(sge(0, 1), address_of(address), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    EXPECT_EQ(write(sge(0, 0), address_of(address), mr->rkey), IBV_WC_SUCCESS) << "no bytes there either";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

TEST_F(Registration, OverlappingRegionsHaveKeysOfTheirOwn) {
  Pages pages(2);
  ibv_mr* whole = ibv_reg_mr(client_.pd, pages.at(0), pages.bytes(), kAllRights);
  ibv_mr* part = ibv_reg_mr(client_.pd, pages.at(0) + 100, 200, IBV_ACCESS_REMOTE_READ);
  ASSERT_TRUE(whole != nullptr && part != nullptr);
  EXPECT_NE(whole->lkey, part->lkey);
  EXPECT_NE(whole->handle, part->handle);
  EXPECT_TRUE(writes_to(pages.at(0) + 100, 200, address_of(pages.at(0) + 100), whole->rkey));
  EXPECT_EQ(read(sge(65536, 200), address_of(pages.at(0) + 100), part->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(write(sge(0, 8), address_of(pages.at(0) + 100), part->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(part), 0);
  EXPECT_EQ(ibv_dereg_mr(whole), 0);
}

TEST_F(Registration, ZeroBasedAndOtherAddresses) {
  Pages pages(2);
  for (const uint64_t iova : {uint64_t{0}, uint64_t{0x5000}}) {
    ibv_mr* mr = iova == 0 ? ibv_reg_mr(client_.pd, pages.at(0) + 16, 8000, kAllRights | IBV_ACCESS_ZERO_BASED)
                           : ibv_reg_mr_iova(client_.pd, pages.at(0) + 16, 8000, iova + 16, kAllRights);
    ASSERT_NE(mr, nullptr);
    const uint64_t start = iova == 0 ? 0 : iova + 16;
    EXPECT_TRUE(writes_to(pages.at(0) + 16, 8000, start, mr->rkey));
    // As the source, too.
    EXPECT_EQ(write({start + 5000, 100, mr->lkey}, address_of(client_.memory) + 65536, client_.mr->rkey),
              IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(client_.memory + 65536, pages.at(0) + 16 + 5000, 100), 0);
    EXPECT_EQ(write(sge(0, 8), start + 8000 - 7, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

// --- on-demand paging ------------------------------------------------------------------------------------------------

TEST_F(Registration, OnDemandRangesNeedNotBeMappedBefore) {
  Pages pages(4);
  for (const size_t page : {0, 1, 2, 3}) pages.unmap(page);
  ibv_mr* mr = ibv_reg_mr(client_.pd, pages.at(0), pages.bytes(), kAllRights | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  pages.map(1);
  EXPECT_TRUE(writes_to(pages.at(1), 4096, address_of(pages.at(1)), mr->rkey));
  EXPECT_EQ(write(sge(0, 8), address_of(pages.at(2)), mr->rkey), IBV_WC_REM_OP_ERR) << "nothing is mapped there";
  reconnect();
  pages.map(2);
  EXPECT_TRUE(writes_to(pages.at(2), 4096, address_of(pages.at(2)), mr->rkey));
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Registration, TheWholeAddressSpaceOnDemand) {
  errno = 0;
  EXPECT_EQ(outcome(nullptr, SIZE_MAX, 0, IBV_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(outcome(nullptr, SIZE_MAX, 4096, IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(outcome(nullptr, SIZE_MAX, 0, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB), EINVAL);
  ibv_mr* mr = ibv_reg_mr(client_.pd, nullptr, SIZE_MAX, kAllRights | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  Pages later(2);
  std::array<unsigned char, 100> on_stack{};
  EXPECT_TRUE(writes_to(later.at(0), 8000, address_of(later.at(0)), mr->rkey));
  EXPECT_TRUE(writes_to(on_stack.data(), 100, address_of(on_stack.data()), mr->rkey));
  EXPECT_EQ(send({address_of(later.at(0)), 5000, mr->lkey}, sge(65536, 5000)), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(client_.memory + 65536, later.at(0), 5000), 0);
  for (const uint64_t near_null : {0, 8}) {
    const ibv_wc_status remote_error = near_null == 0 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
    EXPECT_EQ(write(sge(0, 8), near_null, mr->rkey), remote_error);
    reconnect();
    EXPECT_EQ(write({near_null, 8, mr->lkey}, address_of(later.at(0)), mr->rkey), IBV_WC_LOC_PROT_ERR);
    reconnect();
    EXPECT_EQ(read(sge(0, 8), near_null, mr->rkey), remote_error);
    reconnect();
    EXPECT_EQ(read({near_null, 8, mr->lkey}, address_of(later.at(0)), mr->rkey), IBV_WC_LOC_PROT_ERR);
    reconnect();
  }
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// kB that this process has in memory.
size_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes;
  }
  return 0;
}

TEST_F(Registration, AHundredGibibytesOfReservedAddressSpaceCostNothing) {
  constexpr size_t kHuge = size_t{100} << 30;
  for (const int protection : {PROT_NONE, PROT_READ | PROT_WRITE}) {
    Pages pages(kHuge / Pages::size(), protection);
    const size_t before = resident();
    ibv_mr* mr = ibv_reg_mr(client_.pd, pages.at(0), kHuge, kAllRights);
    ASSERT_NE(mr, nullptr);
    EXPECT_LT(resident(), before + 4096) << "kB";
    unsigned char* last = pages.at(kHuge / Pages::size() - 1);
    ASSERT_EQ(mprotect(last, Pages::size(), PROT_READ | PROT_WRITE), 0);
    EXPECT_TRUE(writes_to(last, static_cast<uint32_t>(Pages::size()), address_of(last), mr->rkey));
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

// --- advice ----------------------------------------------------------------------------------------------------------

class Advice : public MemoryTest {
 protected:
  static constexpr size_t kPages = 8;

  void SetUp() override {
    MemoryTest::SetUp();
    mr_ = ibv_reg_mr(client_.pd, pages_.at(0), pages_.bytes(), kAllRights | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr_, nullptr);
  }
  void TearDown() override {
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    MemoryTest::TearDown();
  }
  int advise(ibv_advise_mr_advice advice, uint32_t flags, ibv_sge range) {
    return ibv_advise_mr(client_.pd, advice, flags, &range, 1);
  }
  ibv_sge pages(size_t first, size_t count) {
    return {address_of(pages_.at(first)), static_cast<uint32_t>(count * Pages::size()), mr_->lkey};
  }
  // Which pages are in memory.
  std::string residency() {
    std::array<unsigned char, kPages> pages{};
    EXPECT_EQ(mincore(pages_.at(0), pages_.bytes(), pages.data()), 0);
    std::string text;
    for (const unsigned char page : pages) text += page & 1 ? '1' : '0';
    return text;
  }

  Pages pages_{kPages};
  ibv_mr* mr_ = nullptr;
};

constexpr auto kPrefetch = IBV_ADVISE_MR_ADVICE_PREFETCH, kPrefetchWrite = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
               kNoFault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
constexpr uint32_t kFlush = IBV_ADVISE_MR_FLAG_FLUSH;

TEST_F(Advice, BringsPagesIn) {
  ASSERT_EQ(residency(), "00000000");
  EXPECT_EQ(advise(kPrefetchWrite, kFlush, pages(1, 2)), 0);
  EXPECT_EQ(residency(), "01100000");
  EXPECT_EQ(advise(kPrefetchWrite, kFlush, {address_of(pages_.at(5)) + 100, 1, mr_->lkey}), 0);
  EXPECT_EQ(residency(), "01100100");
  EXPECT_EQ(advise(kNoFault, 0, pages(0, 8)), 0);
  EXPECT_EQ(advise(kNoFault, kFlush, pages(0, 8)), 0);
  EXPECT_EQ(residency(), "01100100") << "no fault means: what is not there stays away";
  EXPECT_EQ(advise(kPrefetch, 0, pages(0, 8)), 0);
  EXPECT_EQ(advise(kPrefetchWrite, 0, pages(0, 8)), 0);
  EXPECT_EQ(advise(kPrefetch, kFlush, pages(0, 8)), 0);
  EXPECT_EQ(advise(kPrefetch, kFlush, pages(0, 0)), 0);
  ibv_sge list[] = {pages(6, 1), pages(7, 1)};
  EXPECT_EQ(ibv_advise_mr(client_.pd, kPrefetchWrite, kFlush, list, 2), 0);
  EXPECT_EQ(residency().substr(6), "11");
}

TEST_F(Advice, TheWholeAddressSpaceTakesIt) {
  ibv_mr* all = ibv_reg_mr(client_.pd, nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(advise(kPrefetchWrite, kFlush, {address_of(pages_.at(3)), 10, all->lkey}), 0);
  EXPECT_EQ(residency(), "00010000");
  EXPECT_EQ(advise(kPrefetch, kFlush, {0, 10, all->lkey}), EFAULT);
  EXPECT_EQ(ibv_dereg_mr(all), 0);
}

TEST_F(Advice, IsRefusedForWhatItCannotMean) {
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(3), 0, pages(0, 1)), EOPNOTSUPP);
  EXPECT_EQ(advise(kPrefetch, 2, pages(0, 1)), EINVAL);
  EXPECT_EQ(ibv_advise_mr(client_.pd, kPrefetch, 0, nullptr, 0), EINVAL);
  for (const uint32_t flags : {0u, kFlush}) {
    ibv_sge range = pages(0, 1);
    range.lkey ^= 1;
    EXPECT_EQ(advise(kPrefetch, flags, range), ENOENT);
    range.lkey = client_.mr->lkey;
    EXPECT_EQ(advise(kPrefetch, flags, range), ENOENT) << "not an on-demand region";
    range = pages(0, 8);
    range.length += 1;
    EXPECT_EQ(advise(kPrefetch, flags, range), EFAULT);
    range = pages(0, 1);
    range.addr -= 1;
    EXPECT_EQ(advise(kPrefetch, flags, range), EFAULT);
    ibv_sge list[] = {pages(0, 1), pages(1, 1)};
    list[1].lkey = 0;
    EXPECT_EQ(ibv_advise_mr(client_.pd, kPrefetch, flags, list, 2), ENOENT);
  }
  ibv_pd* other = ibv_alloc_pd(client_.context);
  ibv_sge range = pages(0, 1);
  EXPECT_EQ(ibv_advise_mr(other, kPrefetch, 0, &range, 1), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  ibv_mr* read_only = ibv_reg_mr(client_.pd, pages_.at(0), 64, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(advise(kPrefetchWrite, kFlush, {address_of(pages_.at(0)), 8, read_only->lkey}), EPERM);
  EXPECT_EQ(advise(kPrefetch, kFlush, {address_of(pages_.at(0)), 8, read_only->lkey}), 0);
  EXPECT_EQ(ibv_dereg_mr(read_only), 0);
  ibv_mw* window = ibv_alloc_mw(client_.pd, IBV_MW_TYPE_2);
  EXPECT_EQ(advise(kPrefetch, kFlush, {address_of(pages_.at(0)), 8, window->rkey}), EINVAL);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(Advice, UnmappedPagesAreToldToWhoWaits) {
  pages_.unmap(4);
  EXPECT_EQ(advise(kPrefetch, kFlush, pages(3, 2)), EFAULT);
  EXPECT_EQ(advise(kPrefetchWrite, kFlush, pages(4, 1)), EFAULT);
  EXPECT_EQ(advise(kPrefetch, 0, pages(3, 2)), 0);
  EXPECT_EQ(advise(kNoFault, kFlush, pages(3, 2)), 0);
  ASSERT_EQ(mprotect(pages_.at(5), Pages::size(), PROT_READ), 0);
  EXPECT_EQ(advise(kPrefetchWrite, kFlush, pages(5, 1)), EFAULT);
  EXPECT_EQ(advise(kPrefetch, kFlush, pages(5, 1)), 0);
}

// --- file descriptors ------------------------------------------------------------------------------------------------

class Dmabuf : public MemoryTest {
 protected:
  static constexpr size_t kSize = 16384;

  void SetUp() override {
    MemoryTest::SetUp();
    fd_ = memfd_create("buffer", MFD_CLOEXEC);
    ASSERT_GE(fd_, 0);
    ASSERT_EQ(ftruncate(fd_, kSize), 0);
    view_ = static_cast<unsigned char*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    ASSERT_NE(view_, MAP_FAILED);
  }
  void TearDown() override {
    munmap(view_, kSize);
    if (fd_ >= 0) close(fd_);
    MemoryTest::TearDown();
  }
  int error(uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dmabuf_mr(client_.pd, offset, length, iova, fd, access), nullptr);
    return errno;
  }

  int fd_ = -1;
  unsigned char* view_ = nullptr;
};

TEST_F(Dmabuf, IsReachedUnderItsIova) {
  constexpr uint64_t kIova = 0x10000000 + 100;
  ibv_mr* mr = ibv_reg_dmabuf_mr(client_.pd, 4096 + 100, 9000, kIova, fd_, kAllRights | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->length, 9000u);
  close(fd_);
  fd_ = -1;
  EXPECT_TRUE(writes_to(view_ + 4096 + 100, 9000, kIova, mr->rkey)) << "the region keeps the buffer";
  EXPECT_EQ(read({kIova + 200, 300, mr->lkey}, address_of(client_.memory), client_.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(view_ + 4096 + 300, client_.memory, 300), 0);
  EXPECT_EQ(write(sge(0, 8), kIova + 9000 - 7, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Dmabuf, ThatShrinksEndsInAnError) {
  ibv_mr* mr = ibv_reg_dmabuf_mr(client_.pd, 0, kSize, 0, fd_, kAllRights);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(ftruncate(fd_, 4096), 0);
  EXPECT_EQ(write(sge(0, 8), 8192, mr->rkey), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Dmabuf, Errors) {
  EXPECT_EQ(error(0, kSize, 0, -1, 0), EBADF);
  EXPECT_EQ(error(0, 0, 0, fd_, 0), EINVAL);
  EXPECT_EQ(error(0, kSize + 1, 0, fd_, 0), EINVAL);
  EXPECT_EQ(error(kSize, 1, 0, fd_, 0), EINVAL);
  EXPECT_EQ(error(4096, SIZE_MAX, 0, fd_, 0), EINVAL);
  EXPECT_EQ(error(~uint64_t{4095}, 4096, 0, fd_, 0), EINVAL);
  EXPECT_EQ(error(100, 8, 0, fd_, 0), EINVAL) << "iova and offset differ in the page";
  EXPECT_EQ(error(0, 8, 0, fd_, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  for (const int access : {IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB}) {
    EXPECT_EQ(error(0, 8, 0, fd_, access), EINVAL);
  }
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(error(0, 8, 0, ends[0], 0), EINVAL);
  close(ends[0]);
  close(ends[1]);
  const int read_only = open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(read_only, 0);
  EXPECT_EQ(error(0, 8, 0, read_only, IBV_ACCESS_LOCAL_WRITE), EACCES);
  ibv_mr* mr = ibv_reg_dmabuf_mr(client_.pd, 0, 8, 0, read_only, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  close(read_only);
}

// --- ibv_reg_mr_ex (IBVERBS_1.15) ------------------------------------------------------------------------------------

struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  void* dmah;
};
enum : uint64_t { kIova = 1, kAddress = 2, kFd = 4, kFdOffset = 8, kDmah = 16 };

TEST_F(Dmabuf, AndAllElseBehindOneCall) {
  const auto reg_mr_ex =
      reinterpret_cast<ibv_mr* (*)(ibv_pd*, MrInitAttr*)>(dlvsym(RTLD_DEFAULT, "ibv_reg_mr_ex", "IBVERBS_1.15"));
  ASSERT_NE(reg_mr_ex, nullptr);
  Pages pages(1);
  const MrInitAttr all{4096, kAllRights, 0, 0x3000, pages.at(0), fd_, 4096, nullptr};
  const auto reg = [&](uint64_t mask) {
    MrInitAttr attr = all;
    attr.comp_mask = mask;
    errno = 0;
    return reg_mr_ex(client_.pd, &attr);
  };
  struct Case {
    uint64_t mask, remote;
    unsigned char* target;
  };
  for (const auto& [mask, remote, target] :
       {Case{kAddress, address_of(pages.at(0)), pages.at(0)}, Case{kAddress | kIova, 0x3000, pages.at(0)},
        Case{kFd | kFdOffset | kIova, 0x3000, view_ + 4096}, Case{kFd | kFdOffset, 0, view_ + 4096}}) {
    ibv_mr* mr = reg(mask);
    ASSERT_NE(mr, nullptr) << mask;
    std::memset(target, 0, 4096);
    EXPECT_TRUE(writes_to(target, 4096, remote, mr->rkey)) << mask;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  for (const uint64_t mask : {uint64_t{0}, uint64_t{kIova}, kAddress | kFd | kFdOffset, uint64_t{kFd},
                              kAddress | kFdOffset, uint64_t{kFdOffset}}) {
    EXPECT_EQ(reg(mask), nullptr);
    EXPECT_EQ(errno, EINVAL) << mask;
  }
  for (const uint64_t mask : {uint64_t{kDmah}, uint64_t{1} << 40}) {
    EXPECT_EQ(reg(kAddress | mask), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP) << mask;
  }
}

// --- null regions ----------------------------------------------------------------------------------------------------

TEST_F(MemoryTest, NullRegionsSwallowAndGiveZeroes) {
  ibv_mr* null = ibv_alloc_null_mr(client_.pd);
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(null->addr, nullptr);
  EXPECT_EQ(null->rkey, 0u) << "there is none";
  EXPECT_EQ(null->length, SIZE_MAX);
  EXPECT_EQ(null->pd, client_.pd);
  EXPECT_EQ(send(sge(0, 5000), {0x1234, 5000, null->lkey}), IBV_WC_SUCCESS) << "several packets into nothing";
  EXPECT_EQ(send({UINT64_MAX - 6000, 5000, null->lkey}, sge(0, 5000)), IBV_WC_SUCCESS);
  EXPECT_EQ(std::count(client_.memory, client_.memory + 5000, 0), 5000);
  EXPECT_EQ(read({0, 9000, null->lkey}, address_of(client_.memory) + 5000, client_.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(write({0, 4096, null->lkey}, address_of(client_.memory) + 8192, client_.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::count(client_.memory + 8192, client_.memory + 8192 + 4096, 0), 4096);
  EXPECT_EQ(write(sge(0, 8), 0, null->lkey), IBV_WC_REM_ACCESS_ERR) << "for local use";
  EXPECT_EQ(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

// --- handles ---------------------------------------------------------------------------------------------------------

TEST_F(MemoryTest, ImportedRegionsAreTheSameRegion) {
  Pages pages(1);
  ibv_mr* mr = ibv_reg_mr(client_.pd, pages.at(0), 4096, kAllRights);
  ASSERT_NE(mr, nullptr);
  ibv_pd* other = ibv_alloc_pd(client_.context);
  ibv_mr* imported = ibv_import_mr(client_.pd, mr->handle);
  ASSERT_NE(imported, nullptr);
  EXPECT_NE(imported, mr);
  EXPECT_EQ(imported->lkey, mr->lkey);
  EXPECT_EQ(imported->rkey, mr->rkey);
  EXPECT_EQ(imported->length, 4096u);
  EXPECT_EQ(imported->handle, mr->handle);
  EXPECT_EQ(imported->addr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(imported, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  ibv_unimport_mr(imported);
  EXPECT_TRUE(writes_to(pages.at(0), 4096, address_of(pages.at(0)), mr->rkey)) << "the region is still there";

  imported = ibv_import_mr(client_.pd, mr->handle);
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(ibv_dereg_mr(imported), 0) << "either handle ends the region";
  EXPECT_EQ(write(sge(0, 8), address_of(pages.at(0)), mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), ENOENT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  errno = 0;
  EXPECT_EQ(ibv_import_mr(client_.pd, mr->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  ibv_unimport_mr(mr);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(MemoryTest, HandlesOfOtherContextsAreUnknown) {
  client second{};
  ASSERT_EQ(client_open(&second), 0);
  errno = 0;
  EXPECT_EQ(ibv_import_mr(second.pd, client_.mr->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  ibv_mr* null = ibv_alloc_null_mr(client_.pd);
  errno = 0;
  EXPECT_EQ(ibv_import_mr(client_.pd, null->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
  client_close(&second);
}

}  // namespace
