// SPDX-License-Identifier: BSD-2-Clause
// The socket through which `uroce capture` attaches, driven as that program drives it, and by what is not that program.
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/passed_descriptors.h"
#include "capture/hub.h"
#include "capture/nameless_socket.h"
#include "capture/protocol.h"
#include "capture/server.h"
#include "engine/io/memory_link.h"
#include "tests/capture/capture_rig.h"
#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {
namespace {

namespace protocol = capture_protocol;
using protocol::Kind;
using protocol::Message;

constexpr int kPatientMs = 20000;

// The server belongs to the process, so all tests share one.
class CaptureServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { CaptureServer::start(); }
  static void TearDownTestSuite() {
    CaptureServer::finish();
    CaptureHub::instance().finish();
    EXPECT_EQ(connect_to_nameless_socket(getpid()), -ENOENT) << "can still be found";
  }

  static int connect_to_server() {
    const int fd = connect_to_nameless_socket(getpid());
    EXPECT_GE(fd, 0) << std::strerror(-fd);
    return fd;
  }
};

// A device of this process, and a client that captures from it.
struct Attached {
  explicit Attached(int socket)
      : connection(socket), tap(std::make_shared<CaptureTap>(TapInfo{"eth0", "uroce_eth0", "memory", {}, {}})) {
    CaptureHub::instance().add_tap(tap);
    io = std::make_unique<Capture>(make_memory_loop(), tap, [t = tap] { CaptureHub::instance().remove_tap(*t); });
  }
  ~Attached() { close(connection); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  void start(const std::string& path, uint64_t file_size = 0, uint64_t max_packets = 0) const {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    Message message;
    message.kind = Kind::kStart;
    message.file_size = file_size;
    message.max_packets = max_packets;
    EXPECT_EQ(protocol::send(connection, message, fd), 0);
    close(fd);
    EXPECT_EQ(next().kind, Kind::kStarted);
  }
  Message next() const {
    Message message;
    EXPECT_EQ(protocol::receive(connection, message, nullptr, kPatientMs), 0);
    return message;
  }
  void say(Kind kind, int fd = -1) const {
    Message message;
    message.kind = kind;
    EXPECT_EQ(protocol::send(connection, message, fd), 0);
  }
  void send(uint32_t count) const {
    std::array<RxPacket, 64> received;
    for (uint32_t psn = 0; psn < count; ++psn) {
      TestBurst burst;
      burst.add(envelope_v4(), psn, 1000);
      EXPECT_EQ(io->send(burst.packets()), 1u);
      io->receive(received);
    }
  }

  int connection;
  std::shared_ptr<CaptureTap> tap;
  std::unique_ptr<Capture> io;
};

TEST_F(CaptureServerTest, SaysWhichDevicesThereAre) {
  Attached attached(connect_to_server());
  attached.say(Kind::kDescribe);
  const Message reply = attached.next();
  EXPECT_EQ(reply.kind, Kind::kDescription);
  EXPECT_EQ(protocol::get_text(reply.text),
            std::string(program_invocation_short_name) + "\nuroce_eth0 (eth0): memory\n");
}

TEST_F(CaptureServerTest, AttachesAndDetaches) {
  TemporaryDirectory files;
  Attached attached(connect_to_server());
  attached.start(files / "x.pcapng");
  attached.send(30);
  attached.say(Kind::kStop);
  const Message ended = attached.next();
  EXPECT_EQ(ended.kind, Kind::kEnded);
  EXPECT_EQ(ended.captured, 30u);
  EXPECT_EQ(ended.dropped, 0u);
  EXPECT_EQ(ended.error, 0);
  EXPECT_FALSE(attached.tap->listening());
  EXPECT_EQ(read_capture(files / "x.pcapng").records.size(), 30u);
}

TEST_F(CaptureServerTest, AClientThatIsGoneEndsItsCapture) {
  TemporaryDirectory files;
  Attached attached(connect_to_server());
  attached.start(files / "x.pcapng");
  attached.send(1);
  EXPECT_TRUE(attached.tap->listening());
  close(attached.connection);
  const auto deadline = std::chrono::steady_clock::now() + kPatient;
  while (attached.tap->listening() && std::chrono::steady_clock::now() < deadline) sched_yield();
  EXPECT_FALSE(attached.tap->listening());
  attached.connection = -1;
}

TEST_F(CaptureServerTest, AsksForTheNextFile) {
  TemporaryDirectory files;
  Attached attached(connect_to_server());
  attached.start(files / "0", 10000, 25);
  attached.send(40);
  size_t count = 0, packets = 0;
  while (true) {
    const Message message = attached.next();
    if (message.kind == Kind::kEnded) {
      EXPECT_EQ(message.error, 0);
      break;
    }
    ASSERT_EQ(message.kind, Kind::kNextFile);
    const int fd = open((files / std::to_string(++count)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    attached.say(Kind::kFile, fd);
    close(fd);
  }
  EXPECT_GE(count, 2u);
  for (size_t i = 0; i <= count; ++i) packets += read_capture(files / std::to_string(i)).records.size();
  EXPECT_EQ(packets, 25u);
}

// The wish to stop crosses the wish for another file.
TEST_F(CaptureServerTest, StopsWhileItAsksForAFile) {
  TemporaryDirectory files;
  Attached attached(connect_to_server());
  attached.start(files / "0", 10000);
  attached.send(15);
  EXPECT_EQ(attached.next().kind, Kind::kNextFile);
  attached.say(Kind::kStop);
  const int fd = open((files / "1").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  attached.say(Kind::kFile, fd);
  close(fd);
  const Message ended = attached.next();
  EXPECT_EQ(ended.kind, Kind::kEnded);
  EXPECT_EQ(ended.error, 0);
  EXPECT_EQ(ended.captured, 15u);
  EXPECT_EQ(read_capture(files / "0").records.size() + read_capture(files / "1").records.size(), 15u);
}

// And more packets have come meanwhile than the file that it was then given holds.
TEST_F(CaptureServerTest, StopsThoughTheNextFileIsFullToo) {
  TemporaryDirectory files;
  Attached attached(connect_to_server());
  attached.start(files / "0", 10000);
  attached.send(15);
  EXPECT_EQ(attached.next().kind, Kind::kNextFile);
  attached.send(60);
  attached.say(Kind::kStop);
  const int fd = open((files / "1").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  attached.say(Kind::kFile, fd);
  close(fd);
  const Message ended = attached.next();
  EXPECT_EQ(ended.kind, Kind::kEnded);
  EXPECT_EQ(ended.error, 0);
  EXPECT_GT(ended.captured, 15u);
}

TEST_F(CaptureServerTest, NonsenseIsTurnedAway) {
  for (const size_t size : {size_t{1}, sizeof(Message) - 1, sizeof(Message), sizeof(Message)}) {
    const int fd = connect_to_server();
    std::vector<char> garbage(size, 'x');
    ASSERT_EQ(::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), static_cast<ssize_t>(size));
    Message reply;
    EXPECT_EQ(protocol::receive(fd, reply, nullptr, kPatientMs), ECONNRESET);
    close(fd);
  }
  Attached attached(connect_to_server());
  attached.say(Kind::kStart);  // without a descriptor
  EXPECT_EQ(attached.next().kind, Kind::kRefused);
  const int other = connect_to_server();
  Message message;
  message.kind = Kind::kStart;
  message.qpn_count = 17;
  ASSERT_EQ(protocol::send(other, message, STDERR_FILENO), 0);
  EXPECT_EQ(protocol::receive(other, message, nullptr, kPatientMs), ECONNRESET);
  close(other);
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// A message with two descriptors: none of them stays open where it was received. One that is too long is none.
TEST(CaptureProtocol, NothingStaysOfDescriptorsThatAreTooMany) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Message message;
  std::array<uint8_t, sizeof(Message) + 1> bytes{};
  std::memcpy(bytes.data(), &message, sizeof(message));
  constexpr std::array<int, 2> kTwo{STDERR_FILENO, STDERR_FILENO};
  const size_t before = open_descriptors();
  ASSERT_EQ(send_with_descriptors(ends[0], std::span(bytes).first(sizeof(message)), kTwo), 0);
  int fd = -1;
  EXPECT_EQ(protocol::receive(ends[1], message, &fd, kPatientMs), 0);
  close(fd);
  EXPECT_EQ(open_descriptors(), before);
  ASSERT_EQ(send_with_descriptors(ends[0], bytes, kTwo), 0);
  EXPECT_EQ(protocol::receive(ends[1], message, &fd, kPatientMs), EPROTO);
  EXPECT_EQ(open_descriptors(), before);
  for (const int end : ends) close(end);
}

// poll() is not restarted after a handler, whatever SA_RESTART says.
TEST(CaptureProtocol, SignalsThatAreHandledDoNotEndTheWaiting) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  static std::atomic<int> signals;
  static int sender;
  signals = 0;
  sender = ends[0];
  struct sigaction handle {};
  handle.sa_handler = [](int) {
    static const Message answer{};
    if (++signals == 10) [[maybe_unused]]
      const ssize_t sent = ::send(sender, &answer, sizeof(answer), 0);
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &handle, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  Message message;
  EXPECT_EQ(protocol::receive(ends[1], message, nullptr, kPatientMs), 0);
  EXPECT_EQ(protocol::receive(ends[1], message, nullptr, 20), ETIMEDOUT);
  const int counted = signals;
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GE(counted, 10);
  for (const int end : ends) close(end);
}

TEST(CaptureProtocol, TextIsFitForATerminal) {
  std::array<char, 16> text;
  protocol::put_text(text, "a\x1b[2J\x7f\n\r\xc2\x9b");
  EXPECT_EQ(protocol::get_text(text), "a?[2J?\n???") << "0x9b begins a command on some";
  text.fill('x');
  EXPECT_EQ(protocol::get_text(text), std::string(16, 'x')) << "not ended";
}

// A child has neither the socket nor the captures of its parent, and does not take them away at its end.
TEST_F(CaptureServerTest, AForkedChildLeavesItAlone) {
  TemporaryDirectory files;
  Attached attached(connect_to_server());
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  Message message;
  message.kind = Kind::kStart;
  ASSERT_EQ(protocol::send(attached.connection, message, pipe_ends[1]), 0);
  close(pipe_ends[1]);
  ASSERT_EQ(attached.next().kind, Kind::kStarted);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(hold[1]);
    CaptureServer::finish();
    CaptureHub::instance().finish();
    char byte;
    [[maybe_unused]] const ssize_t n = read(hold[0], &byte, 1);  // lives until the parent has looked
    _exit(0);
  }
  close(hold[0]);
  attached.send(3);
  attached.say(Kind::kStop);
  EXPECT_EQ(attached.next().captured, 3u);
  // The stream ends although the child lives: it has no copy of its other end.
  size_t bytes = 0;
  std::array<char, 4096> buffer;
  pollfd readable{pipe_ends[0], POLLIN, 0};
  ssize_t got = 1;
  while (got > 0 && poll(&readable, 1, kPatientMs) > 0) {
    got = read(pipe_ends[0], buffer.data(), buffer.size());
    bytes += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  EXPECT_EQ(got, 0) << "no end of the stream";
  EXPECT_GT(bytes, 3000u);
  close(hold[1]);
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  const int again = connect_to_nameless_socket(getpid());
  EXPECT_GE(again, 0) << "the child has taken it away";
  close(again);
}

// Each process has its own.
TEST_F(CaptureServerTest, AForkedChildCanHaveOneToo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no threads in the children";
#endif
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (connect_to_nameless_socket(getpid()) != -ENOENT) _exit(1);
    CaptureServer::start();
    _exit(connect_to_nameless_socket(getpid()) >= 0 ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace uroce::io::test
