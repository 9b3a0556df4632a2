// SPDX-License-Identifier: BSD-2-Clause
// Answers of processes, as who looks has them (broker/client/answers_apart.h), and files that cannot be closed.
#pragma once

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/bell.h"
#include "broker/client/answers_apart.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/held_files.h"

namespace uroce::broker {

// What a process has written that has ended its bell.
inline Asked answered(size_t process, const std::string& text) {
  UniqueFd file(memfd_create("answer", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return {process, std::move(file), std::move(make_bell().back())};
}

// Runs `steps` in a thread that has to end while the files are held.
inline void expect_not_held(std::optional<test::HeldFiles>& held, const std::function<void()>& steps) {
  std::atomic<bool> done{false};
  std::thread thread([&] {
    steps();
    done = true;
  });
  EXPECT_TRUE(comes_true([&] { return done.load(); })) << "it waits for a file to be closed";
  held.reset();
  thread.join();
}

}  // namespace uroce::broker
