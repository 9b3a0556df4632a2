// SPDX-License-Identifier: BSD-2-Clause
#include "broker/client/broker_agent.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/fork.h"
#include "base/message_socket.h"
#include "base/passed_descriptors.h"
#include "base/thread.h"
#include "cm/codec.h"

namespace uroce::broker {
namespace {

constexpr int kLookAgainMs = 100;  // between two looks whether there is a broker again

void close_here(int fd) {
  ForkGuard().close(fd);
}

}  // namespace

// What the agent and its thread share. The thread may outlive the agent in a child, which has no such thread.
class BrokerAgent::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Link> link, Handler handler)
      : link_(std::move(link)), handler_(std::move(handler)), stop_(eventfd(0, EFD_CLOEXEC)) {}
  // Not in a child, where somebody else may have the numbers.
  ~Connection() {
    if (is_own_process()) close_here(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::optional<io::IoError> start() {
    auto opened = link_->open_cm();
    if (auto* const error = std::get_if<io::IoError>(&opened)) return std::move(*error);
    socket_ = std::get<UniqueFd>(opened).release();
    try {
      start_thread("uroce cm", [self = shared_from_this()] { self->run(); }).detach();
    } catch (const std::system_error& error) {
      return io::IoError{error.code().value(), "no thread for the connection manager", "raise the limit: ulimit -u"};
    }
    return std::nullopt;
  }

  // Waits until no function of the handler is called any more.
  void stop() {
    if (!is_own_process()) return;
    eventfd_write(stop_.get(), 1);
    std::unique_lock guard(lock_);
    ended_.wait(guard, [this] { return has_ended_; });
  }

  cm::Reply ask(const cm::Request& request) {
    const cm::Encoded bytes = cm::encode(request);
    if (!cm::decode_request(bytes.bytes())) return {.error = EINVAL};  // which the broker would take for hostile
    if (!is_own_process()) return {.error = ENOTCONN};
    const auto question = std::make_shared<Question>();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    std::unique_lock guard(lock_);
    if (const int error = send(bytes.bytes()); error != 0) return {.error = error};
    questions_.push_back(question);
    if (!answered_.wait_until(guard, end, [&] { return question->done; })) return {.error = ETIMEDOUT};
    return question->reply;
  }

 private:
  struct Question {
    bool done = false;
    cm::Reply reply;
  };

  bool is_own_process() const { return process_ == process_generation(); }

  // Caller holds lock_, so that answers come in the order of questions. The broker reads nothing from who does not
  // read, which the thread does.
  int send(std::span<const uint8_t> bytes) {
    for (const Time end = monotonic_now() + std::chrono::milliseconds(kPatience); socket_ >= 0;) {
      const int error = send_message(socket_, bytes);
      if (error == EPIPE || error == ECONNRESET) return ENOTCONN;
      if (error != EAGAIN) return error;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - monotonic_now()).count();
      if (left <= 0) return ETIMEDOUT;
      pollfd room{socket_, POLLOUT, 0};
      poll(&room, 1, static_cast<int>(left));
    }
    return ENOTCONN;
  }

  // --- the thread
  void run() {
    while (listen()) {
      lose();
      if (!find_next()) break;
    }
    const std::lock_guard guard(lock_);
    has_ended_ = true;
    ended_.notify_all();
  }

  // False: it is to stop. True: the connection has ended.
  bool listen() {
    const int socket = socket_;  // which only this thread changes
    std::array<pollfd, 2> waits{{{stop_.get(), POLLIN, 0}, {socket, POLLIN, 0}}};
    while (true) {
      if (poll(waits.data(), waits.size(), -1) < 0) continue;
      if (waits[0].revents != 0) return false;
      std::array<uint8_t, cm::Encoded::kMost> bytes;
      const ReceivedBytes received = receive_with_descriptors(socket, bytes, {}, MSG_DONTWAIT);
      if (received.error == EAGAIN || received.error == EINTR) continue;
      const bool whole = received.error == 0 && received.size > 0 && !received.bytes_lost;
      const auto answer = whole ? cm::decode_answer(std::span(bytes).first(received.size)) : std::nullopt;
      if (!answer || !take(*answer)) return true;
    }
  }

  // False: nobody has asked.
  bool take(const cm::Answer& answer) {
    if (const auto* const event = std::get_if<cm::Event>(&answer)) {
      if (handler_.on_event) handler_.on_event(*event);
      return true;
    }
    const std::lock_guard guard(lock_);
    if (questions_.empty()) return false;
    questions_.front()->reply = std::get<cm::Reply>(answer);
    questions_.front()->done = true;
    questions_.pop_front();
    answered_.notify_all();
    return true;
  }

  void lose() {
    {
      const std::lock_guard guard(lock_);
      close_here(std::exchange(socket_, -1));
      for (const auto& question : questions_) {
        question->reply = {.error = ENOTCONN};
        question->done = true;
      }
      questions_.clear();
      answered_.notify_all();
    }
    if (handler_.on_loss) handler_.on_loss();
  }

  // False: it is to stop.
  bool find_next() {
    while (true) {
      pollfd wait{stop_.get(), POLLIN, 0};
      if (poll(&wait, 1, kLookAgainMs) > 0) return false;
      auto opened = link_->open_cm();
      if (std::holds_alternative<io::IoError>(opened)) continue;
      {
        const std::lock_guard guard(lock_);
        socket_ = std::get<UniqueFd>(opened).release();
      }
      if (handler_.on_return) handler_.on_return();
      return true;
    }
  }

  const uint32_t process_ = process_generation();
  const std::shared_ptr<Link> link_;
  const Handler handler_;
  const UniqueFd stop_;
  std::mutex lock_;
  std::condition_variable answered_, ended_;
  std::deque<std::shared_ptr<Question>> questions_;  // in the order in which they were sent
  int socket_ = -1;                                  // closed in children (ForkGuard)
  bool has_ended_ = false;
};

io::IoResult<cm::Agent> BrokerAgent::open(std::shared_ptr<Link> link, Handler handler) {
  const auto connection = std::make_shared<Connection>(std::move(link), std::move(handler));
  if (auto error = connection->start()) return std::move(*error);
  return std::unique_ptr<cm::Agent>(new BrokerAgent(connection));
}

BrokerAgent::BrokerAgent(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

BrokerAgent::~BrokerAgent() {
  connection_->stop();
}

cm::Reply BrokerAgent::ask(const cm::Request& request) {
  return connection_->ask(request);
}

}  // namespace uroce::broker
