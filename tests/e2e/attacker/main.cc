// SPDX-License-Identifier: BSD-2-Clause
// A user of the host who does to its broker, and to the processes that use it, what he can: each attack goes on until
// the program is ended. `hello` is no attack: it prints how long a broker that is attacked takes to answer, at most.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/bell.h"
#include "base/clock.h"
#include "broker/protocol/address.h"
#include "broker/protocol/protocol.h"
#include "cm/codec.h"
#include "engine/io/same_host/peer_memory.h"

namespace uroce::broker {
namespace {

using std::chrono::milliseconds;

constexpr int kPatience = 2000;  // ms, as clients have
constexpr uint32_t kRanges = 1022;

struct Where {
  std::string address;
  int ifindex = 0;
};

// A TCP socket whose last close() waits for an hour, unless the process that closes it ends.
int slow_socket() {
  static int listener = -1;
  static sockaddr_in address{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (listener < 0) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, generic, size) != 0 || listen(listener, 128) != 0) return -1;
    getsockname(listener, generic, &size);
  }
  const int sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(sender, generic, sizeof(address)) != 0) return -1;
  accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);  // and reads nothing, for good
  const std::vector<char> data(1 << 20);
  while (::send(sender, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  const linger hour{.l_onoff = 1, .l_linger = 3600};
  setsockopt(sender, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
  return sender;
}

class Client {
 public:
  explicit Client(const Where& where, Kind greeting = Kind::kHello) : where_(where) {
    if (connect_to(where.address, socket) != 0) return;
    Message hello = make_message(greeting, "attacker");
    hello.network_namespace = own_network_namespace();
    good = ask(hello).kind == Kind::kWelcome;
    reports = std::move(came[0]);
  }
  Message ask(const Message& message) {
    Message answer;
    if (send(socket.get(), message) != 0 || receive(socket.get(), answer, came, kPatience) != 0) answer = {};
    return answer;
  }
  uint32_t lease() {
    Message request = lease_request();
    const Message answer = ask(request);
    return answer.kind == Kind::kGranted ? answer.range : 0;
  }
  Message lease_request() const {
    Message request = make_message(Kind::kLease, "roce0");
    request.ifindex = where_.ifindex;
    return request;
  }
  // Null: refused.
  UniqueFd open_cm() { return ask(make_message(Kind::kCm)).kind == Kind::kGranted ? std::move(came[0]) : UniqueFd(); }
  void meet(uint32_t own, uint32_t other) {
    Message message = make_message(Kind::kMeet);
    message.range = own;
    message.other = other;
    send(socket.get(), message);
  }

  void say_sealed(const Message& memory) {
    Message message = make_message(Kind::kSealed);
    message.range = memory.range;
    message.other = memory.other;
    send(socket.get(), message);
  }

  UniqueFd socket, reports;
  Descriptors came;
  bool good = false;

 private:
  Where where_;
};

// Whether it was asked; the reply is read and dropped.
bool ask_cm(const UniqueFd& cm, const cm::Request& request) {
  std::array<uint8_t, cm::Encoded::kMost> reply;
  const auto encoded = cm::encode(request);
  pollfd wait{cm.get(), POLLIN, 0};
  if (send_message(cm.get(), encoded.bytes()) != 0) return false;
  if (poll(&wait, 1, kPatience) <= 0) return false;
  const ssize_t size = recv(cm.get(), reply.data(), reply.size(), MSG_DONTWAIT);
  if (size <= 0) return false;
  const auto answer = cm::decode_answer(std::span(reply).first(static_cast<size_t>(size)));
  const auto* const said = answer ? std::get_if<cm::Reply>(&*answer) : nullptr;
  return said != nullptr && said->error == 0;
}

cm::Request listen_for(uint64_t service, uint64_t mask = UINT64_MAX) {
  cm::ListenRequest request;
  request.listen.service = wire::ServiceId{service};
  request.listen.service_mask = mask;
  request.listen.ip = false;
  return request;
}

constexpr uint64_t kServices = uint64_t{0x10} << 56;  // no port stands for them

// Listeners, as many as there may be, and leaves them behind.
void listeners(const Where& where) {
  std::vector<Client> clients;
  std::vector<UniqueFd> connections;
  for (int i = 0; i < 4; ++i) connections.push_back(clients.emplace_back(where).open_cm());
  for (uint64_t number = 0, refused = 0; number < 65536 && refused < 4; ++number) {
    refused = ask_cm(connections[number % 4], listen_for(kServices + number)) ? 0 : refused + 1;
  }
}

void masks(const Where& where) {
  Client client(where);
  const UniqueFd cm = client.open_cm();
  for (uint64_t number = 1; number < 16384; ++number) {
    if (!ask_cm(cm, listen_for(kServices, ~number))) break;
  }
  std::this_thread::sleep_for(milliseconds(100));
}

// All ids, and keeps them.
void ids(const Where& where) {
  static std::vector<Client> clients;
  static std::vector<UniqueFd> connections;
  if (clients.size() < 16) connections.push_back(clients.emplace_back(where).open_cm());
  static uint64_t number = 0;
  while (connections.back() && ask_cm(connections.back(), listen_for(kServices + number))) ++number;
  std::this_thread::sleep_for(milliseconds(10));
}

// One port, that everybody shares.
void binds(const Where& where) {
  static std::vector<Client> clients;
  static std::vector<UniqueFd> connections;
  if (clients.size() < 64) connections.push_back(clients.emplace_back(where).open_cm());
  cm::BindRequest request;
  request.bind.port = 7471;
  request.bind.reuse_address = true;
  while (connections.back() && ask_cm(connections.back(), request)) continue;
}

// Answers that stay where they are, with their descriptors.
void unread(const Where& where) {
  static std::vector<Client> clients;
  Client& client = clients.emplace_back(where);
  for (int i = 0; i < 200 && send(client.socket.get(), client.lease_request()) == 0; ++i) continue;
  Client& looks = clients.emplace_back(where, Kind::kLook);
  for (int i = 0; i < 200 && send(looks.socket.get(), make_message(Kind::kIds)) == 0; ++i) continue;
  if (!client.good) std::this_thread::sleep_for(milliseconds(1));
}

// Costly questions, from as many as may ask.
void looks(const Where& where) {
  static std::vector<Client> clients;
  while (clients.size() < 700 && (clients.empty() || clients.back().good)) clients.emplace_back(where, Kind::kLook);
  for (Client& client : clients) send(client.socket.get(), make_message(Kind::kIds));
  for (Client& client : clients) {
    Message answer;
    receive(client.socket.get(), answer, client.came, kPatience);
  }
}

// Everybody is to meet him, many times; he never says that he is ready, or takes the memory away that they have, and
// rings and writes to what connects them.
void meet(const Where& where) {
  std::vector<Client> clients;
  std::vector<std::pair<size_t, uint32_t>> leases;
  for (size_t i = 0; i < 32; ++i) {
    clients.emplace_back(where);
    for (int k = 0; k < 16; ++k) {
      if (const uint32_t range = clients.back().lease(); range != 0) leases.emplace_back(i, range);
    }
  }
  const int slow = slow_socket();
  std::vector<std::unique_ptr<io::PeerMemory>> own;
  for (const auto& [client, range] : leases) {
    for (uint32_t other = 1; other <= kRanges; ++other) clients[client].meet(range, other);
    Message said;
    Descriptors came;
    while (receive(clients[client].reports.get(), said, came, 1) == 0) {
      if (said.kind == Kind::kMemory && client % 2 == 0) {
        own.push_back(io::PeerMemory::for_writing(came[0].get(), true));
        clients[client].say_sealed(said);
      }
      for (const UniqueFd& fd : came) {
        if (!fd) continue;
        fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
        for (int i = 0; i < 100; ++i) ring_bell(fd.get());
        send_message(fd.get(), std::array<uint8_t, 1>{}, std::array{slow});
      }
    }
  }
}

// What closes slowly, in every place where something can be sent. In a process that ends: whoever has the last of these
// sockets waits, but not who ends.
void linger(const Where& where) {
  const pid_t child = fork();
  if (child > 0) waitpid(child, nullptr, 0);
  if (child != 0) return;
  const std::array descriptors{slow_socket(), slow_socket(), slow_socket()};
  Client client(where), claims(where), stays(where);
  send(client.socket.get(), make_message(Kind::kReturn), descriptors);
  send(claims.socket.get(), make_message(Kind::kClaim), descriptors);
  const UniqueFd cm = stays.open_cm();
  send_message(cm.get(), std::array<uint8_t, 1>{}, descriptors);
  send_message(stays.reports.get(), std::array<uint8_t, 1>{}, descriptors);
  Message question;
  if (receive(stays.reports.get(), question, stays.came, 50) == 0) {
    for (const UniqueFd& fd : stays.came) {
      if (fd) send_message(fd.get(), std::array<uint8_t, 1>{}, descriptors);
    }
  }
  _exit(0);
}

// Comes and goes.
void reconnect(const Where& where) {
  for (int i = 0; i < 100; ++i) Client(where).lease();
}

int hello(const Where& where, int seconds) {
  int64_t longest = 0, count = 0, failed = 0;
  for (const Time end = monotonic_now() + std::chrono::seconds(seconds); monotonic_now() < end; ++count) {
    const Time begin = monotonic_now();
    Client client(where);
    failed += client.good ? 0 : 1;
    longest = std::max<int64_t>(longest,
                                std::chrono::duration_cast<std::chrono::microseconds>(monotonic_now() - begin).count());
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::printf("%lld of %lld answered, after %.1f ms at most\n", static_cast<long long>(count - failed),
              static_cast<long long>(count), static_cast<double>(longest) / 1000);
  return failed == 0 ? 0 : 1;
}

const std::map<std::string_view, void (*)(const Where&)> kAttacks{
    {"listeners", listeners}, {"masks", masks}, {"ids", ids},       {"binds", binds},        {"unread", unread},
    {"looks", looks},         {"meet", meet},   {"linger", linger}, {"reconnect", reconnect}};

int run(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: attacker ADDRESS IFINDEX ATTACK, or hello SECONDS\n", stderr);
    return 2;
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::signal(SIGPIPE, SIG_IGN);
  const Where where{argv[1], std::atoi(argv[2])};
  if (std::string_view(argv[3]) == "hello") return hello(where, argc > 4 ? std::atoi(argv[4]) : 5);
  const auto attack = kAttacks.find(argv[3]);
  if (attack == kAttacks.end()) return 2;
  for (bool said = false;; said = true) {
    attack->second(where);
    if (!said) std::puts("attacks");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace uroce::broker

int main(int argc, char** argv) {
  return uroce::broker::run(argc, argv);
}
