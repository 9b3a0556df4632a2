// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/control.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <endian.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

constexpr size_t kHeaderSize = 8;         // type and count, 32 bits each
constexpr uint32_t kMaxWords = 1u << 20;  // a record is never that long

[[noreturn]] void fail_system(const std::string& what) {
  throw Failure(ExitCode::kUsage, fmt::format("{}: {}", what, std::strerror(errno)));
}

int poll_timeout(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

class Socket {  // closes unless released
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Both families on one socket where there is IPv6, else IPv4 alone.
int listening_socket(uint16_t port) {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) continue;
    const int on = 1;
    const int off = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage address{};
    if (family == AF_INET6) {
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
    } else {
      auto& v4 = reinterpret_cast<sockaddr_in&>(address);
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
    }
    const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd.get(), 1) == 0) {
      return fd.release();
    }
    if (errno == EADDRINUSE) break;
  }
  fail_system(fmt::format("cannot listen on TCP port {}", port));
}

uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) fail_system("getsockname");
  // sin_port and sin6_port lie at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void append_be64(std::vector<uint8_t>& out, uint64_t value) {
  const uint64_t wire = htobe64(value);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&wire);
  out.insert(out.end(), bytes, bytes + sizeof wire);
}

uint64_t load_be64(const uint8_t* from) {
  uint64_t wire;
  std::memcpy(&wire, from, sizeof wire);
  return be64toh(wire);
}

}  // namespace

Control Control::serve(uint16_t port, Clock::time_point deadline) {
  Socket listener(listening_socket(port));
  fmt::print("listening on TCP port {}\n", bound_port(listener.get()));
  std::fflush(stdout);
  while (Clock::now() < deadline) {
    pollfd waiting{listener.get(), POLLIN, 0};
    if (poll(&waiting, 1, poll_timeout(deadline)) <= 0) continue;
    const int fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) return Control(fd);
  }
  throw Failure(ExitCode::kTimeout, "no client connected");
}

Control Control::connect(const std::string& host, uint16_t port, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); rc != 0) {
    throw Failure(ExitCode::kUsage, fmt::format("cannot resolve '{}': {}", host, gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(list, &freeaddrinfo);
  int error = 0;
  do {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket fd(socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      if (fd.get() >= 0 && ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return Control(fd.release());
      error = errno;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < deadline);
  throw Failure(ExitCode::kTimeout, fmt::format("cannot connect to {} port {}: {}", host, port, std::strerror(error)));
}

std::pair<Control, Control> Control::local_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) fail_system("socketpair");
  return {Control(fds[0]), Control(fds[1])};
}

Control::Control(int fd) : fd_(fd) {
  if (fcntl(fd_, F_SETFL, O_NONBLOCK) != 0) fail_system("fcntl(O_NONBLOCK)");
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a socket pair, which has no delay
}

Control::Control(Control&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      closed_(other.closed_),
      output_(std::move(other.output_)),
      input_(std::move(other.input_)),
      records_(std::move(other.records_)) {}

Control::~Control() {
  if (fd_ >= 0) close(fd_);
}

void Control::send(RecordType type, std::span<const uint64_t> words) {
  append_be64(output_, static_cast<uint64_t>(type) << 32 | words.size());
  for (const uint64_t word : words) append_be64(output_, word);
  write_output();
}

void Control::write_output() {
  while (!output_.empty() && !closed_) {
    const ssize_t n = ::send(fd_, output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      output_.erase(output_.begin(), output_.begin() + n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      return;  // what the peer said before it went away can still be read, and reading finds the end
    }
  }
}

void Control::read_input() {
  std::array<uint8_t, 16384> buffer;
  while (!closed_) {
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) {
      input_.insert(input_.end(), buffer.begin(), buffer.begin() + n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else if (n == 0 || errno != EINTR) {
      closed_ = true;
    }
  }
}

void Control::parse_input() {
  size_t position = 0;
  while (input_.size() - position >= kHeaderSize) {
    const uint64_t header = load_be64(&input_[position]);
    const auto count = static_cast<uint32_t>(header);
    if (count > kMaxWords) throw Failure(ExitCode::kUsage, "what is at the other end is another program");
    const size_t size = kHeaderSize + count * sizeof(uint64_t);
    if (input_.size() - position < size) break;
    Record record{static_cast<RecordType>(header >> 32), {}};
    for (size_t at = kHeaderSize; at < size; at += sizeof(uint64_t)) {
      record.words.push_back(load_be64(&input_[position + at]));
    }
    records_.push_back(std::move(record));
    position += size;
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(position));
}

void Control::pump() {
  write_output();
  read_input();
  parse_input();
}

std::optional<Record> Control::next() {
  if (records_.empty()) {
    if (closed_) throw Failure(ExitCode::kMismatch, "the other side closed the control connection early");
    return std::nullopt;
  }
  Record record = std::move(records_.front());
  records_.pop_front();
  if (record.type == RecordType::kFailed) {
    const uint64_t code = record.words.empty() ? 0 : record.words[0];
    const bool known =
        code == static_cast<uint64_t>(ExitCode::kUsage) || code == static_cast<uint64_t>(ExitCode::kTimeout);
    throw Failure(known ? static_cast<ExitCode>(code) : ExitCode::kMismatch, "the other side failed and says why",
                  true);
  }
  return record;
}

Record Control::expect_any(Clock::time_point deadline) {
  for (;;) {
    pump();
    if (std::optional<Record> record = next()) return std::move(*record);
    wait(deadline, "the other side says nothing on the control connection");
  }
}

Record Control::expect(RecordType type, size_t min_words, Clock::time_point deadline) {
  Record record = expect_any(deadline);
  if (record.type == type && record.words.size() >= min_words) return record;
  throw Failure(ExitCode::kUsage, fmt::format("unexpected control record {} of {} words",
                                              static_cast<uint32_t>(record.type), record.words.size()));
}

void Control::flush(Clock::time_point deadline) {
  for (write_output(); output_pending() && !closed_; pump()) {
    wait(deadline, "the other side takes nothing from the control connection");
  }
}

void Control::wait(Clock::time_point deadline, const char* what) const {
  if (Clock::now() >= deadline) throw Failure(ExitCode::kTimeout, what);
  pollfd waiting{fd_, static_cast<short>(POLLIN | (output_pending() ? POLLOUT : 0)), 0};
  poll(&waiting, 1, poll_timeout(deadline));
}

}  // namespace uroce::transfer
