// SPDX-License-Identifier: BSD-2-Clause
// Where the program begins on the command line of `uroce run`.
#include "cli/arguments.h"

#include <gtest/gtest.h>

namespace uroce::cli {
namespace {

using Words = std::vector<std::string>;
const Words kWithValue = {"--io", "--netdev"};

TEST(MarkCommand, FirstWordThatIsNoOption) {
  EXPECT_EQ(mark_command({"run", "ib_send_bw", "-F", "--io", "x"}, kWithValue),
            (Words{"run", "--", "ib_send_bw", "-F", "--io", "x"}));
}

TEST(MarkCommand, OptionValuesAreNotTheCommand) {
  EXPECT_EQ(mark_command({"run", "--io", "udp", "--quiet", "--netdev=eth0", "ls"}, kWithValue),
            (Words{"run", "--io", "udp", "--quiet", "--netdev=eth0", "--", "ls"}));
}

TEST(MarkCommand, KeepsTheUsersMark) {
  EXPECT_EQ(mark_command({"run", "--quiet", "--", "-odd-name"}, kWithValue),
            (Words{"run", "--quiet", "--", "-odd-name"}));
}

TEST(MarkCommand, MarkOfTheCommandStaysItsOwn) {
  EXPECT_EQ(mark_command({"run", "env", "--", "ls"}, kWithValue), (Words{"run", "--", "env", "--", "ls"}));
}

TEST(MarkCommand, NoCommand) {
  EXPECT_EQ(mark_command({"run", "--io"}, kWithValue), (Words{"run", "--io"}));
  EXPECT_EQ(mark_command({"run"}, kWithValue), (Words{"run"}));
  EXPECT_EQ(mark_command({}, kWithValue), Words{});
}

TEST(MarkCommand, OtherSubcommandsStayAsTheyAre) {
  EXPECT_EQ(mark_command({"doctor", "--json", "x"}, kWithValue), (Words{"doctor", "--json", "x"}));
}

}  // namespace
}  // namespace uroce::cli
