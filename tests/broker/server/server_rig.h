// SPDX-License-Identifier: BSD-2-Clause
// What the tests of broker/server/server.h share: a client that says exactly what a test wants, and other users.
#pragma once

#include <array>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "broker/server/server.h"
#include "engine/io/same_host/peer.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/engine/io/veth_pair.h"
#include "tests/slow_socket.h"

namespace uroce::broker {

// A client that says exactly what the test wants.
class RawClient {
 public:
  explicit RawClient(const std::string& address) { EXPECT_EQ(connect_to(address, socket_), 0); }

  int say(const Message& message, std::span<const int> descriptors = {}) {
    return send(socket_.get(), message, descriptors);
  }
  // The other side has the only descriptor of it.
  void say_with_slow_socket(const Message& message) {
    const UniqueFd slow = test::slow_socket();
    EXPECT_EQ(say(message, std::array{slow.get()}), 0);
  }
  void say_nothing_with_slow_socket() {
    const UniqueFd slow = test::slow_socket();
    EXPECT_EQ(send_message(socket_.get(), {}, std::array{slow.get()}), 0);
  }
  Message listen() {
    Message answer;
    error_ = receive(socket_.get(), answer, descriptors_, 20'000);
    return answer;
  }
  Message ask(const Message& message, std::span<const int> descriptors = {}) {
    EXPECT_EQ(say(message, descriptors), 0);
    return listen();
  }
  Message greet() {
    EXPECT_EQ(say(hello()), 0);
    return welcome();
  }
  // The answer to hello().
  Message welcome() {
    const Message answer = listen();
    asides_ = std::move(descriptors_.front());
    return answer;
  }
  // As greet(), where it may be refused before it has said a word.
  bool is_welcome() {
    say(hello());
    return listen().kind == Kind::kWelcome;
  }
  // What the broker says by itself.
  Message hear(int timeout_ms = 20'000) {
    Message said;
    error_ = receive(asides_.get(), said, descriptors_, timeout_ms);
    return said;
  }
  // Maps and seals the memory that has just been heard of.
  std::unique_ptr<io::PeerMemory> seal() { return io::PeerMemory::for_writing(descriptors_[0].get(), true); }
  // Likewise, and says so.
  std::unique_ptr<io::PeerMemory> prepare(const Message& heard) {
    EXPECT_EQ(heard.kind, Kind::kMemory);
    auto own = seal();
    EXPECT_NE(own, nullptr);
    say(sealed(heard));
    return own;
  }
  static Message sealed(const Message& heard) {
    Message message = make_message(Kind::kSealed);
    message.range = heard.range;
    message.other = heard.other;
    return message;
  }
  Message lease(int ifindex, Plane plane = Plane::kSockets) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = ifindex;
    request.plane = plane;
    return ask(request);
  }
  static Message hello() {
    Message message = make_message(Kind::kHello, "raw");
    message.network_namespace = own_network_namespace();
    return message;
  }
  bool hung_up() {
    listen();
    return error_ == ECONNRESET;
  }
  int error() const { return error_; }
  int socket() const { return socket_.get(); }
  void leave() { socket_.reset(); }
  void stop_listening() { asides_.reset(); }
  Descriptors& descriptors() { return descriptors_; }

 private:
  UniqueFd socket_, asides_;
  Descriptors descriptors_;
  int error_ = 0;
};

class ServerTest : public testing::Test {
 protected:
  void attach(int ifindex, const std::string& program) {
    const std::lock_guard guard(kernel_.lock);
    kernel_.xdp_programs[ifindex] = program;
  }

  // A broker whose turns the test makes.
  std::unique_ptr<Server> server(Server::Clock clock = monotonic_now, size_t most_clients = kMostClients) {
    std::vector<UniqueFd> listeners(1);
    EXPECT_EQ(listen_at(address_, listeners.front()), 0);
    return std::make_unique<Server>(std::move(listeners), std::make_unique<FakeSteering>(kernel_),
                                    Policy{.owner = geteuid(),
                                           .group = {},
                                           .memory_between_users = true,
                                           .linger = {},
                                           .most_clients = most_clients,
                                           .enough_to_close = most_clients},
                                    false, io::attached_xdp_program, clock);
  }

  Kernel kernel_;
  const std::string address_ = unique_address();
};

// Passes as the test says.
inline Time silent_time{};
inline Time silent_clock() {
  return silent_time;
}

// What another user does. The kernel knows users of threads, the C library does not.
inline constexpr uid_t kUser = 65533, kOtherUser = 65532;
inline void as_user(uid_t user, const std::function<void()>& steps) {
  std::thread([&] {
    ASSERT_EQ(syscall(SYS_setgroups, 0, nullptr), 0);
    ASSERT_EQ(syscall(SYS_setresgid, user, user, user), 0);
    ASSERT_EQ(syscall(SYS_setresuid, user, user, user), 0);
    steps();
  }).join();
}

inline Message meet(uint32_t range, uint32_t other) {
  Message message = make_message(Kind::kMeet);
  message.range = range;
  message.other = other;
  return message;
}

// Maps what has just been heard.
inline std::unique_ptr<io::Peer> peer_of(RawClient& client, std::unique_ptr<io::PeerMemory> own) {
  return io::Peer::open(0, {std::move(own), std::move(client.descriptors()[0]), std::move(client.descriptors()[1])});
}

}  // namespace uroce::broker
