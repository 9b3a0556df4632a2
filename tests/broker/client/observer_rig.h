// SPDX-License-Identifier: BSD-2-Clause
// Processes that a broker knows, and one that looks at them.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "broker/client/link.h"
#include "broker/client/observer.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/broker/server/server_rig.h"

namespace uroce::broker {

inline std::string report_of(const std::string& device) {
  ProcessStatistics statistics;
  statistics.time = 1;
  statistics.devices.push_back({.name = device, .netdev = "e", .packet_io = "udp"});
  return format_statistics(statistics);
}

// A client that answers as it likes.
class RawProcess {
 public:
  explicit RawProcess(const std::string& address) {
    EXPECT_EQ(connect_to(address, socket_), 0);
    Message hello = make_message(Kind::kHello, "ra\x1b[2Jw");
    hello.network_namespace = own_network_namespace();
    Message welcome;
    Descriptors came;
    EXPECT_EQ(send(socket_.get(), hello), 0);
    EXPECT_EQ(receive(socket_.get(), welcome, came, 20'000), 0);
    EXPECT_EQ(welcome.kind, Kind::kWelcome);
    reports_ = std::move(came.front());
    EXPECT_TRUE(reports_);
  }
  struct Question {
    UniqueFd file, bell;
  };
  Question question() {
    Message question;
    Descriptors came;
    EXPECT_EQ(receive(reports_.get(), question, came, 20'000), 0);
    EXPECT_EQ(question.kind, Kind::kReport);
    return {std::move(came[0]), std::move(came[1])};
  }
  void answer(const std::string& text) {
    const Question asked = question();
    EXPECT_EQ(pwrite(asked.file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  int reports() const { return reports_.get(); }

 private:
  UniqueFd socket_, reports_;
};

class ObserverTest : public testing::Test {
 protected:
  std::optional<Observer> open() {
    auto opened = Observer::open(address_);
    if (auto* const error = std::get_if<io::IoError>(&opened)) ADD_FAILURE() << error->text();
    auto* const observer = std::get_if<Observer>(&opened);
    return observer == nullptr ? std::nullopt : std::optional<Observer>(std::move(*observer));
  }
  std::shared_ptr<Link> link(const std::string& device) {
    auto opened = Link::open(address_, [device](uint32_t) { return report_of(device); });
    return std::get<std::shared_ptr<Link>>(opened);
  }
  static std::vector<Process> look(Observer& observer, uint32_t most_qps = 0) {
    auto looked = observer.look(most_qps);
    if (auto* const error = std::get_if<io::IoError>(&looked)) ADD_FAILURE() << error->text();
    auto* const processes = std::get_if<std::vector<Process>>(&looked);
    return processes == nullptr ? std::vector<Process>() : *processes;
  }
  // While `answers` run in a thread.
  template <class F>
  std::vector<Process> look_while(F&& answers) {
    std::thread thread(answers);
    auto observer = open();
    std::vector<Process> processes = look(*observer);
    thread.join();
    return processes;
  }

  Kernel kernel_;
  const std::string address_ = unique_address();
};

}  // namespace uroce::broker
