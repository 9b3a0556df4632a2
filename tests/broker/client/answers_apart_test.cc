// SPDX-License-Identifier: BSD-2-Clause
// Answers of other users' processes, and what those that break the rules cost who reads them.
#include "broker/client/answers_apart.h"

#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/broker/client/answers.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/server_rig.h"
#include "tests/held_files.h"

namespace uroce::broker {
namespace {

template <class... Each>
std::vector<Asked> list(Each... each) {
  std::vector<Asked> all;
  (all.push_back(std::move(each)), ...);
  return all;
}

// A reader that does not come back is left behind, and that user has no other meanwhile. It has nothing that others
// would wait for.
TEST(AnswersApart, WhatCannotBeReadKeepsNobody) {
  const std::string text(1 << 20, 'x');
  AnswersApart apart;
  std::set<size_t> taken;
  const auto take = [&taken](size_t process, const std::optional<std::string>& answer) {
    taken.insert(process);
    EXPECT_EQ(answer.value_or("").size(), size_t{1} << 20);
  };
  const auto start = [&](Time until) {
    AskedOfUsers asked;
    asked[kUser] = list(answered(1, text));
    asked[kOtherUser] = list(answered(2, text));
    apart.start(std::move(asked), text.size(), until);
  };
  const auto finish = [&apart] {
    apart.finish();
    return apart.readers() == 0;
  };
  start(monotonic_now());
  const Time end = monotonic_now() + std::chrono::seconds(20);
  while (apart.is_reading() && monotonic_now() < end) apart.take(take);
  EXPECT_TRUE(taken.empty()) << "there was no time";
  EXPECT_TRUE(comes_true(finish));
  start(end);
  while (apart.is_reading() && monotonic_now() < end) apart.take(take);
  EXPECT_EQ(taken, (std::set<size_t>{1, 2}));
  EXPECT_TRUE(comes_true(finish));
  start(end);
  EXPECT_TRUE(comes_true(finish));
  EXPECT_FALSE(apart.is_reading());
  EXPECT_TRUE(apart.can_read(kUser, AnswersApart::kMostReaders - 2));
  EXPECT_FALSE(apart.can_read(kUser, AnswersApart::kMostReaders - 1));
}

// A file whose last close() does not end: neither who looks nor what others have answered waits for it, again and
// again.
TEST(AnswersApart, WhatCannotBeClosedKeepsNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to hold files";
  std::optional<test::HeldFiles> held(2 * (2 + AnswersApart::kMostKept));
  size_t kept = 0;
  expect_not_held(held, [&] {
    AnswersApart apart;
    const auto look = [&](bool asks_other, size_t wanted) {
      AskedOfUsers asked;
      Asked hostile{7, held->take(), held->take()};
      if (apart.can_read(kUser)) {
        asked[kUser] = list(answered(1, "first"), std::move(hostile), answered(2, "second"));
      } else {
        apart.keep(std::move(hostile));
      }
      if (asks_other) asked[kOtherUser] = list(answered(3, "other"));
      std::set<size_t> taken;
      const Time end = monotonic_now() + std::chrono::seconds(20);
      apart.start(std::move(asked), 1000, end);
      while (taken.size() < wanted && monotonic_now() < end)
        apart.take([&](size_t process, const auto&) { taken.insert(process); });
      EXPECT_TRUE(comes_true([&] {
        apart.finish();
        return apart.can_read(kOtherUser);
      }));
      return taken;
    };
    EXPECT_EQ(look(true, 3), (std::set<size_t>{1, 2, 3}));
    EXPECT_EQ(apart.readers(), 1u);
    EXPECT_EQ(look(true, 1), (std::set<size_t>{3}));
    EXPECT_EQ(apart.readers(), 2u) << "one for all users who cannot have one";
    for (; !apart.keeps_too_many() && kept < 2 * AnswersApart::kMostKept; ++kept) look(false, 0);
    EXPECT_EQ(apart.readers(), 2u);
  });
  EXPECT_EQ(kept, AnswersApart::kMostKept);
}

}  // namespace
}  // namespace uroce::broker
