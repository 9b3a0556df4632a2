// SPDX-License-Identifier: BSD-2-Clause
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

#include "bench/kv_src/kv.h"

namespace uroce::kv {
namespace {

class Tcp final : public Connection {
 public:
  Tcp(Loop& loop, UniqueFd socket, OnMessage on_message, OnEnd on_end)
      : loop_(loop), socket_(std::move(socket)), on_message_(std::move(on_message)), on_end_(std::move(on_end)) {
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    loop_.add(socket_.get(), EPOLLIN, [this](uint32_t events) { on_ready(events); });
  }
  ~Tcp() override { loop_.remove(socket_.get()); }

  void send(const Message& message, std::span<const uint8_t> value) override {
    const auto* const head = reinterpret_cast<const uint8_t*>(&message);
    size_t sent = 0;
    if (left_.empty()) {
      std::array<iovec, 2> parts{
          {{const_cast<uint8_t*>(head), sizeof message}, {const_cast<uint8_t*>(value.data()), value.size()}}};
      msghdr what{};
      what.msg_iov = parts.data();
      what.msg_iovlen = parts.size();
      const ssize_t n = sendmsg(socket_.get(), &what, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) throw Ended(std::strerror(errno));
      sent = n < 0 ? 0 : static_cast<size_t>(n);
      if (sent == sizeof message + value.size()) return;
      loop_.change(socket_.get(), EPOLLIN | EPOLLOUT);
    }
    if (sent < sizeof message) left_.insert(left_.end(), head + sent, head + sizeof message);
    const size_t of_value = sent < sizeof message ? 0 : sent - sizeof message;
    left_.insert(left_.end(), value.begin() + static_cast<ptrdiff_t>(of_value), value.end());
  }

 private:
  void on_ready(uint32_t events) {
    const OnEnd on_end = on_end_;  // it may destroy this
    try {
      if (events & EPOLLOUT) send_left();
      if (events & ~uint32_t{EPOLLOUT}) receive();
    } catch (const Ended& why) {
      on_end(why.what());
    }
  }

  void send_left() {
    const ssize_t n = ::send(socket_.get(), left_.data(), left_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) throw Ended(std::strerror(errno));
    left_.erase(left_.begin(), left_.begin() + n);
    if (left_.empty()) loop_.change(socket_.get(), EPOLLIN);
  }

  void receive() {
    while (true) {
      in_.resize(std::max(filled_ + 65536, in_.size()));
      const size_t room = in_.size() - filled_;
      const ssize_t n = recv(socket_.get(), in_.data() + filled_, room, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) throw Ended(std::strerror(errno));
      if (n == 0) throw Ended("closed");
      filled_ += static_cast<size_t>(n);
      hand_out();
      if (static_cast<size_t>(n) < room) return;
    }
  }

  void hand_out() {
    size_t at = 0;
    Message message;
    while (filled_ - at >= sizeof message) {
      std::memcpy(&message, in_.data() + at, sizeof message);
      if (message.bytes > kMostValue) throw Ended("a message is too long");
      if (filled_ - at < sizeof message + message.bytes) break;
      on_message_(message, {in_.data() + at + sizeof message, message.bytes});
      at += sizeof message + message.bytes;
    }
    std::memmove(in_.data(), in_.data() + at, filled_ - at);
    filled_ -= at;
  }

  Loop& loop_;
  UniqueFd socket_;
  OnMessage on_message_;
  OnEnd on_end_;
  std::vector<uint8_t> left_;  // to be sent
  std::vector<uint8_t> in_;
  size_t filled_ = 0;  // of in_
};

class OverTcp final : public Transport {
 public:
  explicit OverTcp(Loop& loop) : loop_(loop) {}
  std::unique_ptr<Connection> make(UniqueFd socket, Connection::OnMessage on_message,
                                   Connection::OnEnd on_end) override {
    return std::make_unique<Tcp>(loop_, std::move(socket), std::move(on_message), std::move(on_end));
  }

 private:
  Loop& loop_;
};

}  // namespace

std::unique_ptr<Transport> over_tcp(Loop& loop) {
  return std::make_unique<OverTcp>(loop);
}

}  // namespace uroce::kv
