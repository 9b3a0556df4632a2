// SPDX-License-Identifier: BSD-2-Clause
#include "capture/server.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/fork.h"
#include "base/thread.h"
#include "capture/hub.h"
#include "capture/protocol.h"

namespace uroce::io {

using capture_protocol::Kind;
using capture_protocol::Message;

// The server of a process, if it has one.
struct CaptureServerSlot {
  std::mutex lock;
  CaptureServer server;
  bool tried = false;
};

namespace {

// A client that has connected and says nothing is not waited for longer. On a busy machine one may lose its core in
// between.
constexpr int kRequestTimeout = 5000;   // ms
constexpr int kNextFileTimeout = 5000;  // ms

bool is_allowed(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid();
}

// The client of a capture: its wishes, and where its files come from. Owns the connection.
class RemoteClient {
 public:
  RemoteClient(int connection, int file, uint64_t file_size)
      : connection_(connection), file_(file), file_size_(file_size) {}
  ~RemoteClient() {
    ForkGuard guard;
    guard.close(file_);
    guard.close(connection_);
  }
  RemoteClient(const RemoteClient&) = delete;
  RemoteClient& operator=(const RemoteClient&) = delete;

  int descriptor() const { return connection_; }
  uint64_t file_size() const { return file_size_; }
  void tell(Kind kind, int error, uint64_t captured, uint64_t dropped) const {
    Message message;
    message.kind = kind;
    message.error = error;
    message.captured = captured;
    message.dropped = dropped;
    capture_protocol::send(connection_, message);
  }

  // Whatever the client says now, or that it is gone, means the end.
  bool stop_requested() const {
    Message message;
    return capture_protocol::receive(connection_, message, nullptr, 0) != ETIMEDOUT;
  }

  // A descriptor, or a negative errno value; ECANCELED when the client has asked for the end.
  int next_file() {
    if (file_ >= 0) return std::exchange(file_, -1);
    if (stopped_) return -ECANCELED;  // full again, before the end has been noticed
    tell(Kind::kNextFile, 0, 0, 0);
    while (true) {
      Message message;
      const int fd = receive_file(message);
      if (fd == -ECANCELED && message.kind == Kind::kStop) {
        stopped_ = true;  // said before it knew of the full file; that is still answered
        continue;
      }
      if (fd >= 0 && stopped_) shutdown(connection_, SHUT_RD);  // so that stop_requested() knows
      return fd;
    }
  }

 private:
  int receive_file(Message& message) const {
    pollfd ready{connection_, POLLIN, 0};
    poll(&ready, 1, kNextFileTimeout);
    ForkGuard guard;
    int fd = -1;
    const int error = capture_protocol::receive(connection_, message, &fd, 0);
    guard.close_in_children(fd);
    if (error != 0) return -error;
    if (fd < 0) return message.error != 0 ? -message.error : -ECANCELED;
    return fd;
  }

  const int connection_;
  std::atomic<bool> stopped_{false};  // the client has said so while it was asked for a file
  int file_;                          // -1: has been given out
  const uint64_t file_size_;
};

class RemoteOutput final : public CaptureOutput {
 public:
  explicit RemoteOutput(std::shared_ptr<RemoteClient> client) : client_(std::move(client)) {}
  int open_next() override { return client_->next_file(); }
  uint64_t size_limit() const override { return client_->file_size(); }

 private:
  std::shared_ptr<RemoteClient> client_;
};

class RemoteControl final : public CaptureControl {
 public:
  explicit RemoteControl(std::shared_ptr<RemoteClient> client) : client_(std::move(client)) {}
  int descriptor() const override { return client_->descriptor(); }
  bool stop_requested() override { return client_->stop_requested(); }
  void on_end(uint64_t captured, uint64_t dropped, int error) override {
    client_->tell(Kind::kEnded, error == ECANCELED ? 0 : error, captured, dropped);
    shutdown(client_->descriptor(), SHUT_RDWR);
  }

 private:
  std::shared_ptr<RemoteClient> client_;
};

void describe(int connection) {
  Message reply;
  reply.kind = Kind::kDescription;
  capture_protocol::put_text(reply.text,
                             std::string(program_invocation_short_name) + "\n" + CaptureHub::instance().description());
  capture_protocol::send(connection, reply);
}

// Takes over both descriptors.
void start_capture(const Message& request, int connection, int file) {
  CaptureSettings settings;
  settings.filter.snap = request.snap;
  settings.filter.qpns.assign(request.qpns.begin(), request.qpns.begin() + request.qpn_count);
  settings.device = capture_protocol::get_text(request.device);
  settings.max_packets = request.max_packets;
  const auto client = std::make_shared<RemoteClient>(connection, file, request.file_size);
  if (file < 0) return client->tell(Kind::kRefused, EBADF, 0, 0);
  const int error = CaptureHub::instance().start(std::move(settings), std::make_unique<RemoteOutput>(client),
                                                 std::make_unique<RemoteControl>(client));
  client->tell(error == 0 ? Kind::kStarted : Kind::kRefused, error, 0, 0);
}

}  // namespace

void CaptureServer::run() {
  while (true) {
    pollfd ready{socket_.socket, POLLIN, 0};
    if (poll(&ready, 1, -1) < 0 && errno != EINTR) return;
    int connection;
    {
      ForkGuard guard;
      connection = accept4(socket_.socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      guard.close_in_children(connection);
    }
    if (connection >= 0) {
      answer(connection);
    } else if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
      const timespec pause{0, 100'000'000};  // no descriptors or no memory: not in a hurry
      nanosleep(&pause, nullptr);
    }
  }
}

void CaptureServer::answer(int connection) {
  Message request;
  int file = -1;
  bool good = false;
  if (is_allowed(connection)) {
    pollfd ready{connection, POLLIN, 0};
    poll(&ready, 1, kRequestTimeout);
    ForkGuard guard;
    good = capture_protocol::receive(connection, request, &file, 0) == 0;
    guard.close_in_children(file);
  }
  if (good && request.kind == Kind::kStart) return start_capture(request, connection, file);
  if (good && request.kind == Kind::kDescribe) describe(connection);
  ForkGuard guard;
  guard.close(file);
  guard.close(connection);
}

void CaptureServer::start() {
  CaptureServerSlot& slot = per_process<CaptureServerSlot>();
  std::lock_guard guard(slot.lock);
  if (std::exchange(slot.tried, true) || open_nameless_socket(slot.server.socket_) != 0) return;
  try {
    start_thread("uroce attach", [server = &slot.server] { server->run(); }).detach();  // until the process ends
  } catch (const std::system_error&) {
    ForkGuard().close(std::exchange(slot.server.socket_.handle, -1));
    ForkGuard().close(std::exchange(slot.server.socket_.socket, -1));
  }
}

void CaptureServer::finish() {
  CaptureServerSlot& slot = per_process<CaptureServerSlot>();
  std::lock_guard guard(slot.lock);
  ForkGuard().close(std::exchange(slot.server.socket_.handle, -1));
}

}  // namespace uroce::io
