// SPDX-License-Identifier: BSD-2-Clause
// Any messages to the socket at which a process is asked for captures, with and without descriptors, while packets
// flow and signals are handled; and the same bytes as what a process answers. The real server answers, in its thread.
//
// Checked: whatever comes, the next client that says something sensible is answered, and no descriptor stays open.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "base/passed_descriptors.h"
#include "capture/capture.h"
#include "capture/hub.h"
#include "capture/nameless_socket.h"
#include "capture/protocol.h"
#include "capture/server.h"
#include "engine/io/memory_link.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"

namespace uroce::fuzz {
namespace {

namespace protocol = io::capture_protocol;
using protocol::Kind;
using protocol::Message;

constexpr size_t kMessages = 4;     // of one client at most
constexpr size_t kDescriptors = 3;  // of one message at most
constexpr int kPatientMs = 20000;
constexpr size_t kSpare = 40;  // descriptors of captures that are just ending
constexpr uint32_t kLookEvery = 64;
constexpr itimerval kSignals{{0, 2000}, {0, 2000}};  // us of CPU time

// What belongs to the process: a device whose packets flow, and the server.
class Process {
 public:
  Process() {
    io::CaptureHub::instance().add_tap(tap_);
    io_ = std::make_unique<io::Capture>(io::make_memory_loop(), tap_, [] {});
    io::CaptureServer::start();
    // As in a program that is profiled: calls that wait end with EINTR.
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    sigaction(SIGPROF, &nothing, nullptr);
    setitimer(ITIMER_PROF, &kSignals, nullptr);
  }

  void send_packets(size_t count) {
    static constexpr std::array<uint8_t, 2048> kPayload{};
    wire::Envelope envelope;
    envelope.source = envelope.destination = wire::IpAddress::v4(kPayload.data());
    io::TxPacket packet;
    packet.envelope = &envelope;
    packet.header_size = 12;
    packet.fragments[0] = {kPayload.data(), 1000};
    packet.fragment_count = 1;
    packet.payload_size = 1000;
    for (size_t i = 0; i < count; ++i) io_->send({&packet, 1});
    std::array<io::RxPacket, 16> received;
    while (io_->receive(received) > 0) {
    }
  }

 private:
  std::shared_ptr<io::CaptureTap> tap_ =
      std::make_shared<io::CaptureTap>(io::TapInfo{"eth0", "uroce_eth0", "memory", {}, {}});
  std::unique_ptr<io::Capture> io_;
};

Process& process() {
  static Process* const one = new Process;  // its threads go on until the very end
  return *one;
}

void pause_briefly() {  // 1 ms
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

size_t open_descriptors() {
  DIR* const all = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(all) != nullptr) ++count;
  closedir(all);
  return count;
}

// A message with sensible and senseless fields, or just bytes.
std::vector<uint8_t> make_message(Input& in) {
  if (in.below(4) == 0) {
    std::vector<uint8_t> bytes(in.below(sizeof(Message) + 64));
    in.fill(bytes);
    return bytes;
  }
  Message message;
  if (in.below(16) == 0) message.magic = in.dword();
  message.kind = static_cast<Kind>(in.below(10));
  message.error = static_cast<int32_t>(in.below(200)) - 20;
  message.snap = in.flag() ? 0 : in.word();
  message.max_packets = in.below(8);
  message.file_size = in.flag() ? 0 : in.word();
  message.qpn_count = in.below(protocol::kMaxQpns + 3);
  for (uint32_t& qpn : message.qpns) qpn = in.below(4);
  if (in.flag()) in.fill({reinterpret_cast<uint8_t*>(message.device.data()), message.device.size()});
  if (in.flag()) in.fill({reinterpret_cast<uint8_t*>(message.text.data()), message.text.size()});
  std::vector<uint8_t> bytes(sizeof(message));
  std::memcpy(bytes.data(), &message, sizeof(message));
  return bytes;
}

int make_descriptor(Input& in) {
  int ends[2];
  switch (in.below(5)) {
    case 0:
      return open("/dev/null", O_RDONLY | O_CLOEXEC);
    case 1:
      return open("/dev/full", O_WRONLY | O_CLOEXEC);
    case 2:  // nobody reads it
      if (pipe2(ends, O_CLOEXEC) != 0) return -1;
      close(ends[0]);
      return ends[1];
    case 3:
      return open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    default:
      return open("/dev/null", O_WRONLY | O_CLOEXEC);
  }
}

void send_message(Input& in, int socket, const std::vector<uint8_t>& bytes) {
  std::array<int, kDescriptors> descriptors;
  const size_t count = in.below(kDescriptors + 1);
  for (size_t i = 0; i < count; ++i) descriptors[i] = make_descriptor(in);
  send_with_descriptors(socket, bytes, std::span(descriptors).first(count));
  for (size_t i = 0; i < count; ++i) close(descriptors[i]);
}

// As `uroce capture` reads what a process says.
void read_answer(int socket, int timeout) {
  Message answer;
  int fd = -1;
  if (protocol::receive(socket, answer, &fd, timeout) != 0) return;
  check(answer.qpn_count <= protocol::kMaxQpns, "an array is not longer than it is");
  check(protocol::get_text(answer.text).size() <= answer.text.size(), "a text is not longer than its room");
  for (const char c : protocol::get_text(answer.device)) check(c != 27, "no escape sequence gets to the terminal");
  if (fd >= 0) close(fd);
}

// Where the machine is busy the server's thread may be late, or the kernel short of what a connection needs: then a
// client tries again. What it was told is in the log.
int connect_to_server() {
  int told = 0;
  for (int attempts = 0;; ++attempts) {
    const int socket = io::connect_to_nameless_socket(getpid());
    if (socket >= 0) return socket;
    if (socket != told) std::fprintf(stderr, "fuzz: a client cannot connect: %s\n", std::strerror(-socket));
    told = socket;
    check(attempts < kPatientMs, "the server is there");
    pause_briefly();
  }
}

void as_client(Input& in) {
  const int socket = connect_to_server();
  const size_t messages = 1 + in.below(kMessages);
  for (size_t i = 0; i < messages; ++i) {
    send_message(in, socket, make_message(in));
    process().send_packets(in.below(4));
    read_answer(socket, 0);
  }
  close(socket);
}

void as_process(Input& in) {
  int ends[2];
  check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  send_message(in, ends[0], make_message(in));
  read_answer(ends[1], 0);
  for (const int end : ends) close(end);
}

void server_answers() {
  const int socket = connect_to_server();
  Message message;
  message.kind = Kind::kDescribe;
  check(protocol::send(socket, message) == 0, "it can be asked");
  check(protocol::receive(socket, message, nullptr, kPatientMs) == 0, "it answers");
  check(message.kind == Kind::kDescription, "with its devices");
  close(socket);
}

void nothing_stays_open(size_t at_first) {
  for (int waited = 0; open_descriptors() > at_first + kSpare; ++waited) {
    check(waited < kPatientMs, "descriptors are closed");
    process().send_packets(1);
    pause_briefly();
  }
}

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace uroce::fuzz;
  process();
  static const size_t at_first = open_descriptors();
  static uint32_t count = 0;
  Input in(data, size);
  as_process(in);
  as_client(in);
  if (++count % kLookEvery == 0) {
    server_answers();
    nothing_stays_open(at_first);
  }
  return 0;
}
