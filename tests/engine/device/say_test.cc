// SPDX-License-Identifier: BSD-2-Clause
// What a device tells people on stderr, when nobody reads that: set-up calls go on.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/concat.h"
#include "base/unique_fd.h"
#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

// A full pipe in the place of stderr, until the object ends.
class UnreadStderr {
 public:
  UnreadStderr() : stderr_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    reader_.reset(ends[0]);
    const UniqueFd writer(ends[1]);
    const std::string dots(4096, '.');
    while (write(writer.get(), dots.data(), dots.size()) > 0) continue;
    while (write(writer.get(), dots.data(), 1) > 0) continue;
    EXPECT_EQ(fcntl(writer.get(), F_SETFL, 0), 0);
    EXPECT_EQ(dup2(writer.get(), STDERR_FILENO), STDERR_FILENO);
  }
  ~UnreadStderr() { dup2(stderr_.get(), STDERR_FILENO); }
  UnreadStderr(const UnreadStderr&) = delete;
  UnreadStderr& operator=(const UnreadStderr&) = delete;

  // True: the text came behind what nobody had read.
  bool reads(const std::string& text) {
    std::string all;
    return eventually([&] {
      std::array<char, 4096> piece;
      const ssize_t size = read(reader_.get(), piece.data(), piece.size());
      if (size > 0) all.append(piece.data(), static_cast<size_t>(size));
      return all.find(text) != std::string::npos;
    });
  }

 private:
  const UniqueFd stderr_;
  UniqueFd reader_;
};

// A thread of this process is in write() to stderr.
bool writes_to_stderr(pid_t thread) {
  std::ifstream file(concat("/proc/self/task/", thread, "/syscall"));
  std::string number, descriptor;
  file >> number >> descriptor;
  return number == std::to_string(SYS_write) && descriptor == "0x2";
}

// What a thread says while it opens the device, and what the background thread says later.
enum class Says { kFailure, kIntroduction, kReport };

class DeviceStderr : public testing::TestWithParam<Says> {
 protected:
  std::variant<OpenedIo, io::IoError> open(const net::Netdev& netdev) {
    if (GetParam() == Says::kFailure && !failed_.exchange(true)) return io::IoError{EBUSY, "the line", ""};
    auto result = open_nothing(netdev);
    auto& opened = std::get<OpenedIo>(result);
    if (GetParam() == Says::kIntroduction) opened.introduction = "the line";
    if (GetParam() == Says::kReport) {
      opened.report = [this](uint64_t) {
        if (background_ != 0) return std::vector<std::string>();
        background_ = gettid();
        return std::vector<std::string>{"the line"};
      };
    }
    return result;
  }

  std::atomic<bool> failed_{false};
  std::atomic<pid_t> background_{0};
};

TEST_P(DeviceStderr, WhoDoesNotReadItStopsNoSetUpCalls) {
  std::atomic<pid_t> opening{0};
  std::thread first;
  std::future<void> others;
  auto engine = make_engine(1, [this](const net::Netdev& netdev) { return open(netdev); });
  {
    UnreadStderr unread;
    first = std::thread([&] {
      opening = gettid();
      CompletionQueue cq(16, nullptr);
      QpInit init;
      init.pd = 1;
      init.send_cq = init.recv_cq = &cq;
      Qp* qp = nullptr;  // the first one opens the device
      const int error = engine->create_qp(init, qp);
      EXPECT_EQ(error, GetParam() == Says::kFailure ? EBUSY : 0);
      if (qp != nullptr) engine->destroy_qp(qp);
    });
    const std::atomic<pid_t>& writer = GetParam() == Says::kReport ? background_ : opening;
    EXPECT_TRUE(eventually([&] { return writes_to_stderr(writer); }));
    others = std::async(std::launch::async, [&] { const Connection connection(*engine); });
    EXPECT_EQ(others.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    EXPECT_TRUE(unread.reads("uroce: test0: the line"));
    first.join();
    others.wait();
  }
}

std::string name_of(const testing::TestParamInfo<Says>& says) {
  constexpr std::array kNames{"Failure", "Introduction", "Report"};
  return kNames[static_cast<size_t>(says.param)];
}
INSTANTIATE_TEST_SUITE_P(Of, DeviceStderr, testing::Values(Says::kFailure, Says::kIntroduction, Says::kReport),
                         name_of);

}  // namespace
}  // namespace uroce::engine::test
