// SPDX-License-Identifier: BSD-2-Clause
// A broker and what several clients of several users make of it: connections, messages in any order, wrong ones, and
// descriptors that nobody asked for; and what they ask of its connection manager. The real server answers, turn by turn
// and in time that passes as the input says; steering is a fake one that has UDP sockets without a port, and remembers
// over the broker's end whose they are.
//
// The input: seven settings (Broker::Broker), then steps (step()), each with what it reads.
//
// Checked: no range is leased to two; a client has kMostLeases at most, a user no more than are left for others; a
// request has one answer at most, of its own kind; what the connection manager says is well-formed, and it answers no
// more than it was asked; a newcomer is served whatever the others do; and at the end all descriptors are closed, but
// for those that may not be (client_socket.h).
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <list>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "base/passed_descriptors.h"
#include "broker/protocol/address.h"
#include "broker/protocol/port_sockets.h"
#include "broker/protocol/protocol.h"
#include "broker/server/server.h"
#include "broker/steering/steering.h"
#include "engine/io/same_host/peer_memory.h"
#include "tests/broker/server/fake_view.h"
#include "tests/broker/server/kept_leases.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/cm_client.h"
#include "tests/fuzz/input.h"

namespace uroce::fuzz {
namespace {

using broker::Kind;
using broker::LeaseRange;
using broker::Message;
using broker::Plane;
using broker::PortSockets;
using broker::Server;

constexpr size_t kMostClients = 20;
constexpr size_t kMostSteps = 400;
constexpr uid_t kUsers[] = {0, 65533, 65532, 65531};

Time now{};
Time current_time() {
  return now;
}

std::string own_address() {
  return "@uroced-fuzz-" + std::to_string(getpid());
}

std::set<int> open_descriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  std::set<int> all;
  while (const dirent* const entry = readdir(directory)) all.insert(std::atoi(entry->d_name));
  all.erase(dirfd(directory));
  closedir(directory);
  return all;
}

void say_what_is_open(const std::set<int>& before, const std::set<int>& after) {
  for (const int descriptor : after) {
    if (before.contains(descriptor)) continue;
    std::array<char, 100> target{};
    const std::string name = "/proc/self/fd/" + std::to_string(descriptor);
    if (readlink(name.c_str(), target.data(), target.size() - 1) < 0) continue;  // closed meanwhile
    std::fprintf(stderr, "fuzz: %d is open: %s\n", descriptor, target.data());
  }
}

// What a client has got with a lease, and may keep when it has returned it.
struct Held {
  uint32_t range;
  PortSockets sockets;
};

UniqueFd udp_socket() {
  return UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

// 0: any port.
bool bind_to(int fd, in_port_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port;
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

in_port_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return address.sin_port;
}

// What outlives brokers.
struct Kernel : broker::KeptLeases {
  uint32_t last_number = 1;
  std::string isolation_obstacle;
  int start_error = 0;
  bool inherits = false;
  std::map<uint32_t, in_port_t> ports;  // of the IPv4 sockets of ranges, by which it is seen that they are open
  std::list<Held> held;                 // of all clients
  std::map<int, std::string> xdp_programs;

  // Also where nobody has read them yet.
  bool has_holder(uint32_t range) const {
    const auto port = ports.find(range);
    return port != ports.end() && !bind_to(udp_socket().get(), port->second);
  }
};

class FakeSteering final : public broker::Steering, private broker::Staging {
 public:
  explicit FakeSteering(Kernel& kernel) : kernel_(kernel), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    kernel_.steered.clear();
  }
  const std::string& isolation_obstacle() const override { return kernel_.isolation_obstacle; }
  uint32_t last_number() const override { return kernel_.last_number; }
  bool inherits() const override { return kernel_.inherits; }
  std::optional<io::IoError> start() override {
    if (kernel_.start_error != 0) return io::IoError{kernel_.start_error, "cannot start", "try"};
    started_ = true;
    return std::nullopt;
  }
  std::variant<PortSockets, io::IoError> admit(LeaseRange range, bool) override {
    check(started_, "nobody is admitted before the start");
    check(range.number >= LeaseRange::kFirstNumber && range.number <= kernel_.last_number, "a range is one of these");
    check(!kernel_.steered.contains(range.number), "a range is leased to one");
    check(!kernel_.has_holder(range.number), "and not while somebody has its sockets");
    PortSockets sockets{udp_socket(), udp_socket(), {}};
    if (!isolates()) sockets.kept.reset(eventfd(0, EFD_CLOEXEC));
    check(bind_to(sockets.v4.get(), 0), "there are ports");
    kernel_.ports[range.number] = port_of(sockets.v4.get());
    kernel_.steered[range.number] = ++kernel_.last_serial;
    kernel_.leases[broker::socket_cookie(sockets.v4.get())] = {range, kernel_.last_serial};
    return sockets;
  }
  std::variant<LeaseRange, io::IoError> readmit(PortSockets sockets) override {
    return readmit(0, {{}, broker::socket_cookie(sockets.v4.get())});
  }
  broker::Staging* staging() override { return isolates() ? this : nullptr; }
  void dismiss(LeaseRange range) override {
    check(kernel_.steered.erase(range.number) == 1, "who is dismissed was admitted");
  }
  bool is_free(LeaseRange range, Time) const override { return !kernel_.has_holder(range.number); }
  int own_socket(int) const override { return -1; }
  int descriptor() const override { return event_.get(); }
  void work() override {}

 private:
  std::variant<Staged, Objection> stage(uint32_t, const PortSockets& sockets) const override {
    if (!sockets.v4) return Objection{EINVAL, "no socket"};
    return Staged{{}, broker::socket_cookie(sockets.v4.get())};
  }
  int descriptor_to_stage() const override { return -1; }
  void clear(uint32_t) override {}
  std::variant<LeaseRange, io::IoError> readmit(uint32_t, const Staged& staged) override {
    return kernel_.readmit(staged);
  }

  Kernel& kernel_;
  const UniqueFd event_;
  bool started_ = false;
};

struct Request {
  std::optional<Kind> kind;  // none: it is no message
  uint64_t serial = 0;       // of the lease that is claimed
};
struct Leased {
  uint64_t serial;
  bool claimed;
};

struct Client {
  UniqueFd socket, asides;
  uid_t user = 0;
  bool reads = true;
  std::deque<Request> asked;  // that have no answer yet
  std::map<uint32_t, Leased> leases;
  CmClient connections{};
};

// One that is a message to the other side.
std::optional<Kind> kind_of(std::span<const uint8_t> bytes) {
  Message message;
  if (bytes.size() != sizeof(message)) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof(message));
  const bool sound = message.magic == broker::kMagic && message.version == broker::kProtocolVersion &&
                     message.text.back() == '\0' && message.plane <= broker::kLastPlane;
  return sound ? std::optional(message.kind) : std::nullopt;
}

bool has_answer(Kind kind) {
  return kind != Kind::kReturn && kind != Kind::kMeet && kind != Kind::kSealed && kind != Kind::kRelease;
}

bool answers(Kind answer, const std::optional<Kind>& request) {
  switch (answer) {
    case Kind::kRefused:
      return true;
    case Kind::kWelcome:
      return request == Kind::kHello || request == Kind::kLook;
    case Kind::kGranted:
      return request == Kind::kLease || request == Kind::kClaim || request == Kind::kCm || request == Kind::kHold ||
             request == Kind::kIds;
    case Kind::kProcess:
    case Kind::kNoMore:
      return request == Kind::kNext;
    default:
      return false;
  }
}

class Broker {
 public:
  explicit Broker(Input& in) : in_(in), stop_(eventfd(0, EFD_CLOEXEC)), is_root_(geteuid() == 0) {
    now = Time(std::chrono::hours(1));
    kernel_.last_number = in.one_of({4u, 1u, 9u, 40u, LeaseRange::kLastNumber});
    kernel_.isolation_obstacle = in.below(4) == 1 ? "there is one" : "";
    kernel_.start_error = in.below(8) == 1 ? EBUSY : 0;
    kernel_.inherits = in.flag();
    policy_.owner = is_root_ ? in.one_of(kUsers) : geteuid();
    policy_.memory_between_users = true;
    if (in.below(4) == 1) policy_.group = gid_t{0};
    if (in.below(4) == 1) policy_.linger = std::chrono::seconds(1);
    start();
  }

  // False: the broker has ended.
  bool step() {
    const uint8_t what = in_.byte();
    switch (what & 15) {
      case 0:
        connect();
        break;
      case 1:
      case 2:
      case 3:
      case 4:
        if (Client* const client = some_client()) say_what_makes_sense(*client);
        break;
      case 5:
        if (Client* const client = some_client()) say_anything(*client);
        break;
      case 6:
        if (Client* const client = some_client())
          clients_.remove_if([&](const Client& each) { return &each == client; });
        break;
      case 7:
        now += std::chrono::milliseconds(in_.one_of({1, 100, 499, 1000, 5000, 61000}));
        break;
      case 8:
        if (!kernel_.held.empty()) kernel_.held.erase(std::next(kernel_.held.begin(), in_.below(some(kernel_.held))));
        break;
      case 9:
        if (Client* const client = some_client()) client->reads = !client->reads;
        break;
      case 10:
        kernel_.xdp_programs[static_cast<int>(in_.below(3))] =
            in_.one_of({"", "uroce_steer", "uroce_steer_qpn", "other"});
        break;
      case 11:
        kernel_.start_error = 0;
        break;
      case 12:
        restart();
        break;
      case 13:
        if (Client* const client = some_client()) client->connections.say_what_makes_sense(in_);
        break;
      case 14:
        if (Client* const client = some_client()) client->connections.say_anything(in_);
        break;
      default:
        break;
    }
    return (what & 16) != 0 || turn();
  }

  // Whatever there is, who comes now is served.
  void serve_a_newcomer() {
    kernel_.start_error = 0;
    for (Client& client : clients_) client.reads = true;
    now += Server::kInheritance + std::chrono::seconds(1);
    if (!turn()) return;
    Client& newcomer = connect_as(0);
    for (const Kind kind : {Kind::kHello, Kind::kLease}) {
      Message message = broker::make_message(kind, "newcomer");
      message.network_namespace = broker::own_network_namespace();
      message.ifindex = 77;
      say(newcomer, message, {});
      for (int i = 0; i < 40 && !newcomer.asked.empty(); ++i) check(turn(), "it does not end while somebody is there");
      check(newcomer.asked.empty(), "a newcomer is answered");
    }
  }

 private:
  void start() {
    std::vector<UniqueFd> listeners(1);
    check(broker::listen_at(own_address(), listeners.front()) == 0, "the address is free");
    const auto xdp_program_of = [this](int ifindex) -> std::optional<io::AttachedProgram> {
      const auto found = kernel_.xdp_programs.find(ifindex);
      if (found == kernel_.xdp_programs.end() || found->second.empty()) return std::nullopt;
      return io::AttachedProgram{.id = 7, .name = found->second};
    };
    server_ = std::make_unique<Server>(std::move(listeners), std::make_unique<FakeSteering>(kernel_), policy_, false,
                                       xdp_program_of, current_time);
    server_->manage_connections(std::make_unique<broker::FakeView>());
  }

  void restart() {
    if (++restarts_ > 4) return;
    server_.reset();
    clients_.clear();
    kernel_.inherits = true;
    start();
  }

  bool turn() {
    bool goes_on = server_->turn(stop_.get(), false);
    while (goes_on && server_->reads_claims()) goes_on = server_->turn(stop_.get(), true);  // by processes
    for (Client& client : clients_) {
      if (client.reads) listen(client);
    }
    check_counts();
    return goes_on;
  }

  static uint32_t some(const std::list<Held>& all) { return static_cast<uint32_t>(std::min<size_t>(all.size(), 256)); }

  Client* some_client() {
    if (clients_.empty()) return nullptr;
    return &*std::next(clients_.begin(), in_.below(static_cast<uint32_t>(clients_.size())));
  }

  void connect() {
    const uid_t user = is_root_ ? in_.one_of(kUsers) : geteuid();
    if (clients_.size() < kMostClients) connect_as(user);
  }

  Client& connect_as(uid_t user) {
    Client& client = clients_.emplace_back();
    client.user = is_root_ ? user : geteuid();
    if (is_root_) check(seteuid(client.user) == 0, "root becomes somebody else");
    check(broker::connect_to(own_address(), client.socket) == 0, "the broker listens");
    if (is_root_) check(seteuid(0) == 0, "and itself");
    return client;
  }

  uint32_t range_of(const Client& client) {
    if (client.leases.empty() || in_.below(4) == 3) return in_.below(kernel_.last_number + 2);
    return std::next(client.leases.begin(), in_.below(static_cast<uint32_t>(client.leases.size())))->first;
  }

  void say_what_makes_sense(Client& client) {
    constexpr Kind kKinds[] = {Kind::kHello, Kind::kLease, Kind::kReturn, Kind::kClaim, Kind::kMeet,
                               Kind::kLook,  Kind::kNext,  Kind::kCm,     Kind::kHold,  Kind::kRelease};
    Message message = broker::make_message(in_.one_of(kKinds), "fuzz");
    const bool of_port = message.kind == Kind::kHold || message.kind == Kind::kRelease;
    if (of_port) message = broker::make_message(message.kind, std::string(1, static_cast<char>('a' + in_.below(20))));
    message.ifindex = static_cast<int32_t>(in_.below(3));
    message.plane = in_.one_of({Plane::kSockets, Plane::kSockets, Plane::kSockets, Plane::kAfXdp, Plane::kDpdk});
    message.network_namespace = broker::own_network_namespace();
    if (message.kind == Kind::kReturn || message.kind == Kind::kMeet) message.range = range_of(client);
    if (message.kind == Kind::kMeet) message.other = in_.below(kernel_.last_number + 1);
    if (message.kind == Kind::kNext) message.client = in_.below(64);
    if (message.kind == Kind::kReturn) client.leases.erase(message.range);
    if (message.kind != Kind::kClaim || kernel_.held.empty()) return say(client, message, {});
    const Held& held = *std::next(kernel_.held.begin(), in_.below(some(kernel_.held)));
    message.has_v6 = 1;
    say(client, message, broker::SocketList(held.sockets).span(), serial_of(held.sockets));
  }

  UniqueFd any_descriptor() {
    int ends[2];
    switch (in_.below(5)) {
      case 0:
        return udp_socket();
      case 1:
        return UniqueFd(eventfd(0, EFD_CLOEXEC));
      case 2:
        return UniqueFd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      case 3:
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
        close(ends[1]);
        return UniqueFd(ends[0]);
      default:
        return UniqueFd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
  }

  // A message with some bytes changed, longer or shorter, and with descriptors.
  void say_anything(Client& client) {
    Message message =
        broker::make_message(static_cast<Kind>(in_.below(static_cast<uint32_t>(broker::kLastKind) + 2)), "any");
    message.network_namespace = broker::own_network_namespace();
    std::vector<uint8_t> bytes(sizeof(message));
    std::memcpy(bytes.data(), &message, sizeof(message));
    for (size_t i = in_.below(4); i > 0; --i) {
      // The fields but the text, most of the time.
      const uint32_t at = in_.flag() ? in_.below(sizeof(message)) : (200 + in_.below(96)) % sizeof(message);
      bytes[at] = in_.byte();
    }
    if (in_.below(8) == 7) bytes.resize(1 + in_.below(sizeof(message) + 64));
    std::vector<UniqueFd> descriptors(
        in_.one_of({size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{5}, size_t{253}}));
    std::vector<int> numbers;
    const UniqueFd one = any_descriptor();
    for (UniqueFd& descriptor : descriptors) {
      if (descriptors.size() < 6) descriptor = any_descriptor();
      numbers.push_back(descriptor ? descriptor.get() : one.get());
    }
    if (kind_of(bytes) == Kind::kReturn) {
      std::memcpy(&message, bytes.data(), sizeof(message));
      client.leases.erase(message.range);
    }
    say(client, bytes, numbers);
  }

  uint64_t serial_of(const PortSockets& sockets) const {
    return kernel_.leases.at(broker::socket_cookie(sockets.v4.get())).serial;
  }

  static void say(Client& client, const Message& message, std::span<const int> descriptors, uint64_t serial = 0) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&message);
    say(client, std::span(bytes, sizeof(message)), descriptors, serial);
  }
  static void say(Client& client, std::span<const uint8_t> bytes, std::span<const int> descriptors,
                  uint64_t serial = 0) {
    const std::optional<Kind> kind = kind_of(bytes);
    if (send_with_descriptors(client.socket.get(), bytes, descriptors) != 0) return;
    if (!kind || has_answer(*kind)) client.asked.push_back({kind, serial});
  }

  void seal(Client& client, const Message& said, const UniqueFd& memory) {
    check(io::PeerMemory::for_writing(memory.get(), true) != nullptr, "what is to be written to has not been sealed");
    Message message = broker::make_message(Kind::kSealed);
    message.range = said.range;
    message.other = said.other;
    say(client, message, {});
  }

  // Everything that has come.
  void listen(Client& client) {
    Message said;
    Descriptors came;
    while (broker::receive(client.asides.get(), said, came, 0) == 0) {
      const bool is_memory = said.kind == Kind::kMemory, is_peer = said.kind == Kind::kPeer;
      const bool parts = said.kind == Kind::kPart;
      check(said.kind == Kind::kReport || is_memory || is_peer || parts, "what is no answer");
      check(static_cast<bool>(came[0]) == !parts, "what comes with descriptors");
      check(static_cast<bool>(came[1]) == (!parts && !is_memory), "what comes with two of them");
      if (is_peer) check(io::PeerMemory::is_sealed(came[0].get()), "what is to be read has been sealed");
      if (is_memory && in_.flag()) seal(client, said, came[0]);
    }
    while (broker::receive(client.socket.get(), said, came, 0) == 0) take_answer(client, said, came);
    client.connections.listen();
  }

  void take_answer(Client& client, const Message& answer, Descriptors& came) {
    Request request;
    if (client.asked.empty()) {
      check(answer.kind == Kind::kRefused, "nobody is answered without having asked, but refused");
    } else {
      request = client.asked.front();
      client.asked.pop_front();
    }
    check(answers(answer.kind, request.kind), "an answer is to its question");
    if (answer.kind == Kind::kWelcome && request.kind == Kind::kHello) client.asides = std::move(came.front());
    if (answer.kind != Kind::kGranted) return;
    if (request.kind == Kind::kCm) {
      check(static_cast<bool>(came.front()), "a socket comes for the connection manager");
      client.connections = CmClient(std::move(came.front()));
      return;
    }
    if (request.kind == Kind::kHold) return check(!came.front(), "a DPDK port is a name only");
    if (request.kind == Kind::kIds) return check(!came.front(), "what the connection manager is about is text only");
    check(answer.range >= LeaseRange::kFirstNumber && answer.range <= kernel_.last_number, "a range is granted");
    const bool claimed = request.kind == Kind::kClaim;
    check(claimed != static_cast<bool>(came.front()), "sockets come with a lease");
    for (Client& other : clients_) other.leases.erase(answer.range);
    if (!claimed) {
      kernel_.held.push_back({answer.range, broker::sockets_from(came, answer.has_v6 != 0)});
      request.serial = serial_of(kernel_.held.back().sockets);
    }
    client.leases[answer.range] = {request.serial, claimed};
  }

  void check_counts() const {
    std::map<uid_t, size_t> leases;  // of users, without those that they have brought back
    for (const Client& client : clients_) {
      size_t own = 0;
      for (const auto& [range, lease] : client.leases) {
        const auto current = kernel_.steered.find(range);
        if (current == kernel_.steered.end() || current->second != lease.serial) continue;  // it has lost it
        ++own;
        leases[client.user] += lease.claimed ? 0 : 1;
      }
      check(own <= broker::kMostLeases, "a client has not more leases than it may");
    }
    check(kernel_.steered.size() <= kernel_.last_number, "there are not more leases than ranges");
    if (restarts_ > 0) return;  // a new broker does not know whose kept sockets are
    for (const auto& [user, count] : leases) {
      if (user == 0 || user == policy_.owner) continue;
      check(count <= (kernel_.last_number + 1) / 2, "a user leaves leases for others");
    }
  }

  Input& in_;
  const UniqueFd stop_;
  const bool is_root_;
  Kernel kernel_;
  broker::Policy policy_;
  std::unique_ptr<Server> server_;
  std::list<Client> clients_;
  int restarts_ = 0;
};

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace uroce::fuzz;
  const std::set<int> before = open_descriptors();
  {
    Input in(data, size);
    Broker broker(in);
    bool lives = true;
    for (size_t steps = 0; lives && !in.empty() && steps < kMostSteps; ++steps) lives = broker.step();
    if (lives) broker.serve_a_newcomer();
  }
  // The processes that close slowly outlive their broker. Without numbers for others there are none.
  while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
  const std::set<int> after = open_descriptors();
  if (after.size() > before.size()) say_what_is_open(before, after);
  check(after.size() <= before.size(), "all descriptors are closed");
  return 0;
}
