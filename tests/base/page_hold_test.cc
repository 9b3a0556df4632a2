// SPDX-License-Identifier: BSD-2-Clause
#include "base/page_hold.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/moved_together.h"

namespace uroce {
namespace {

class PageHold : public testing::Test {
 protected:
  PageHold() { EXPECT_EQ(ftruncate(file_.get(), 40000), 0); }
  const UniqueFd file_{memfd_create("file", MFD_CLOEXEC)};
  const test::MovedTogether pages_;
};

TEST_F(PageHold, KeepsThePagesWhereTheyAre) {
  if (!test::MovedTogether::possible()) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE for files in memory";
  UniqueFd hold;
  ASSERT_EQ(hold_first_page(file_.get(), hold), 0);
  EXPECT_FALSE(pages_.are(file_.get()));
  const UniqueFd copy(dup(hold.get()));
  hold.reset();
  EXPECT_FALSE(pages_.are(file_.get()));
}

TEST_F(PageHold, OfAPageThatIsMapped) {
  if (!test::MovedTogether::possible()) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE for files in memory";
  void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file_.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  UniqueFd hold;
  ASSERT_EQ(hold_page(mapped, hold), 0);
  munmap(mapped, 4096);
  EXPECT_FALSE(pages_.are(file_.get()));
  char byte;
  EXPECT_EQ(read(hold.get(), &byte, 1), -1) << "who got it could take the page out";
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(fcntl(hold.get(), F_GETFD), FD_CLOEXEC);
  hold.reset();
  EXPECT_TRUE(pages_.are(file_.get()));
}

TEST_F(PageHold, OfAFileThatHasNoPage) {
  const UniqueFd empty(memfd_create("empty", MFD_CLOEXEC));
  UniqueFd hold;
  EXPECT_EQ(hold_first_page(empty.get(), hold), EFAULT);
  EXPECT_FALSE(hold);
}

}  // namespace
}  // namespace uroce
