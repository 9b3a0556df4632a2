// SPDX-License-Identifier: BSD-2-Clause
// A broker that answers what the test says: of another version, or hostile.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "broker/protocol/address.h"
#include "broker/protocol/protocol.h"

namespace uroce::broker {

class ScriptedBroker {
 public:
  struct Answer {
    Message message;
    size_t descriptors = 0;
    std::shared_ptr<std::vector<UniqueFd>> passed{};  // instead; who asks has the only ones then
  };

  // One answer for each message that wants one; then it says no more.
  ScriptedBroker(const std::string& address, std::deque<Answer> answers)
      : answers_(std::move(answers)), stop_(eventfd(0, EFD_CLOEXEC)) {
    EXPECT_EQ(listen_at(address, listener_), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedBroker() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  size_t answered() const { return answered_; }

 private:
  void serve() {
    while (waits_for(listener_.get())) {
      const UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      while (waits_for(client.get()) && answer(client.get())) continue;
    }
  }
  bool waits_for(int fd) const {
    std::array<pollfd, 2> waits{{{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    while (poll(waits.data(), waits.size(), -1) < 0) continue;
    return waits[1].revents == 0;
  }
  bool answer(int client) {
    Message asked;
    Descriptors came;
    if (receive(client, asked, came, 0) != 0) return false;
    const bool wants_none = asked.kind == Kind::kReturn || asked.kind == Kind::kMeet || asked.kind == Kind::kSealed ||
                            asked.kind == Kind::kRelease;
    if (wants_none || answers_.empty()) return true;
    std::vector<int> numbers(answers_.front().descriptors, stop_.get());
    if (const auto& passed = answers_.front().passed) {
      for (const UniqueFd& each : *passed) numbers.push_back(each.get());
    }
    EXPECT_EQ(send(client, answers_.front().message, numbers), 0);
    answers_.pop_front();
    ++answered_;
    return true;
  }

  std::atomic<size_t> answered_{0};
  std::deque<Answer> answers_;  // the thread's
  const UniqueFd stop_;
  UniqueFd listener_;
  std::thread thread_;
};

// As the versions before and after this one say that they do not know this one.
inline Message refusal_of_version(uint16_t version) {
  Message refusal =
      make_message(Kind::kRefused, "it speaks version " + std::to_string(version) + " and this program version " +
                                       std::to_string(kProtocolVersion) + ": install the same uroce for both");
  refusal.version = version;
  refusal.error = 5;  // it may mean something else there
  refusal.plane = static_cast<Plane>(9);
  return refusal;
}

}  // namespace uroce::broker
