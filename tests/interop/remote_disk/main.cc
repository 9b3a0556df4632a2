// SPDX-License-Identifier: BSD-2-Clause
// An initiator that compares all that it reads; the target is Linux's in the interoperability tests
// (tests/interop/storage_cases.py).
//   write URL SEED   logs in, writes, reads and compares
//   read URL SEED    logs in, reads what an earlier one has written
//   hold URL SEED    the same, then keeps commands running until the session ends; then logs in as soon as the target
//                    accepts it, and compares everything
#include <cstdio>
#include <exception>
#include <malloc.h>
#include <memory>
#include <string>
#include <thread>

#include "tests/interop/remote_disk/exercise.h"
#include "tests/interop/remote_disk/iser.h"
#include "tests/interop/remote_disk/nvme.h"

namespace {

using namespace uroce::remote_disk;
using std::chrono::steady_clock;

constexpr auto kLoginPatience = std::chrono::seconds(60);

std::string since(steady_clock::time_point start) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start).count()) +
         " ms";
}

void say(const std::string& words) {
  std::puts(words.c_str());
  std::fflush(stdout);
}

// A new session. Throws Lost when the target does not accept it.
std::unique_ptr<Disk> login(const std::string& url) {
  if (url.starts_with("nvme://")) return std::make_unique<NvmeDisk>(url);
  return std::make_unique<IserDisk>(url);
}

void write_and_compare(const std::string& url, uint64_t seed) {
  const auto disk = login(url);
  say(std::to_string(disk->blocks()) + " blocks");
  const size_t written = write(*disk, kKept, seed);
  const size_t compared = read(*disk, kKept, {&seed, 1});
  disk->logout();
  say("ok: " + std::to_string(written) + " writes, " + std::to_string(compared) + " reads");
}

void compare(const std::string& url, uint64_t seed) {
  const auto disk = login(url);
  const size_t compared = read(*disk, kKept, {&seed, 1});
  disk->logout();
  say("ok: " + std::to_string(compared) + " reads");
}

// The region gets the next seed each time that it is written, so that old data shows. Returns the last one with which
// it was written whole; some blocks may have the next one.
uint64_t keep_busy(Disk& disk, uint64_t seed) {
  write(disk, kBusy, seed);
  say("busy");
  const auto start = steady_clock::now();
  try {
    for (;; ++seed) {
      read(disk, kBusy, {&seed, 1});
      write(disk, kBusy, seed + 1);
    }
  } catch (const Lost& lost) {
    say("lost after " + since(start) + ": " + lost.what());
  }
  return seed;
}

std::unique_ptr<Disk> login_again(const std::string& url) {
  const auto start = steady_clock::now();
  for (int refused = 0;; ++refused) {
    try {
      auto disk = login(url);
      say("back after " + since(start) + ", refused " + std::to_string(refused) + " times");
      return disk;
    } catch (const Lost& lost) {
      if (steady_clock::now() - start > kLoginPatience) throw Wrong(std::string("no new session: ") + lost.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  }
}

void hold(const std::string& url, uint64_t seed) {
  uint64_t last = seed + 1;
  {
    const auto disk = login(url);
    write(*disk, kKept, seed);
    last = keep_busy(*disk, last);
  }
  const auto disk = login_again(url);
  read(*disk, kKept, {&seed, 1});
  const uint64_t possible[] = {last, last + 1};
  read(*disk, kBusy, possible);
  disk->logout();
  say("ok: all data is there");
}

}  // namespace

int main(int count, char** words) {
  // libiscsi 1.19 takes the memory of an iSER connection to be zeros, which only malloc's first is. This makes all of
  // it so.
  mallopt(M_PERTURB, 0xff);
  const std::string what = count == 4 ? words[1] : "";
  const auto run = what == "write" ? write_and_compare : what == "read" ? compare : what == "hold" ? hold : nullptr;
  if (run == nullptr) {
    std::fputs("usage: remote_disk write | read | hold URL SEED\n", stderr);
    return 2;
  }
  try {
    run(words[2], std::stoull(words[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "remote_disk: %s\n", error.what());
    return 1;
  }
  return 0;
}
