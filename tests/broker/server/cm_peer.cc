// SPDX-License-Identifier: BSD-2-Clause
// A process that makes connections by the connection manager of the broker, without QPs and without packets of data:
// for cm_test.py, which runs two brokers, and for measurements.
//
//   cm_peer serve NETDEV LOCAL PORT                    until its standard input ends
//   cm_peer connect NETDEV LOCAL REMOTE PORT COUNT OPEN [hold]
//                                                      COUNT connections, up to OPEN of them at a time; `hold`: opens
//                                                      them all, and ends them at the end of its standard input
//
// Each side brings its connections to the next broker when one ends, and says so. A line for each thing that happens.
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <net/if.h>
#include <poll.h>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>

#include "broker/client/broker_agent.h"

namespace uroce::broker {
namespace {

using std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "cm_peer: %s\n", text.c_str());
  std::exit(1);
}

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

wire::IpAddress address_of(const char* text) {
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, text, bytes.data()) == 1) return wire::IpAddress::v4(bytes.data());
  if (inet_pton(AF_INET6, text, bytes.data()) == 1) return wire::IpAddress::v6(bytes.data());
  fail(std::string("no address: ") + text);
}

// What the agent's thread says, for the one that may ask.
struct Lost {};
struct Returned {};
using News = std::variant<cm::Event, Lost, Returned>;

class Inbox {
 public:
  void put(News news) {
    const std::lock_guard guard(lock_);
    news_.push_back(std::move(news));
    changed_.notify_one();
  }
  // Nothing: in a tenth of a second nothing has come.
  std::optional<News> take() {
    std::unique_lock guard(lock_);
    if (!changed_.wait_for(guard, std::chrono::milliseconds(100), [this] { return !news_.empty(); })) return {};
    News first = std::move(news_.front());
    news_.pop_front();
    return first;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<News> news_;
};

bool input_has_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char byte;
  return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

class Peer {
 public:
  Peer(const char* netdev, const char* local, const char* port)
      : netdev_(if_nametoindex(netdev)), local_(address_of(local)), port_(static_cast<uint16_t>(std::atoi(port))) {
    auto linked = Link::open("", [](uint32_t) { return std::string(); });
    if (const auto* const error = std::get_if<io::IoError>(&linked)) fail(error->text());
    const auto& link = std::get<std::shared_ptr<Link>>(linked);
    if (!link) fail("there is no broker");
    auto opened = BrokerAgent::open(link, {.on_event = [this](const cm::Event& event) { inbox_.put(event); },
                                           .on_loss = [this] { inbox_.put(Lost{}); },
                                           .on_return = [this] { inbox_.put(Returned{}); }});
    if (const auto* const error = std::get_if<io::IoError>(&opened)) fail(error->text());
    agent_ = std::move(std::get<std::unique_ptr<cm::Agent>>(opened));
  }

  int serve() {
    listen();
    say("ready");
    while (!input_has_ended()) {
      const auto news = inbox_.take();
      if (!news) {  // a lull, so that lines which nobody reads do not fill the pipe
        if (established_.empty() && std::exchange(ended_said_, ended_) != ended_) {
          say("all ended: " + std::to_string(ended_));
        }
        if (opening_.empty() && std::exchange(established_said_, all_established_) != all_established_) {
          say("all established: " + std::to_string(all_established_));
        }
        continue;
      }
      if (const auto* const event = std::get_if<cm::Event>(&*news)) serve(*event);
      if (std::holds_alternative<Lost>(*news)) say("lost");
      if (std::holds_alternative<Returned>(*news)) take_up_again();
    }
    say("accepted " + std::to_string(accepted_) + " established " + std::to_string(all_established_) + " ended " +
        std::to_string(ended_) + " open " + std::to_string(established_.size()));
    return 0;
  }

  int connect(const char* remote, uint32_t count, uint32_t most_open, bool holds) {
    remote_ = address_of(remote);
    const auto begin = steady_clock::now();
    bool holding = false, ending = !holds;
    uint32_t begun = 0;
    while (done_ < count) {
      for (; !holding && begun < count && opening_.size() + established_.size() < most_open; ++begun) begin_one();
      if (holds && !holding && established_.size() + done_ == count) {
        holding = true;
        say("open " + std::to_string(established_.size()));
      }
      if (holding && !ending && input_has_ended()) {
        ending = true;
        for (const auto& [id, known] : established_) ask(cm::DisconnectRequest{id, {}});
      }
      const auto news = inbox_.take();
      if (!news) continue;
      if (const auto* const event = std::get_if<cm::Event>(&*news)) follow(*event, ending);
      if (std::holds_alternative<Lost>(*news)) say("lost");
      if (std::holds_alternative<Returned>(*news)) take_up_again();
    }
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    say("connected " + std::to_string(all_established_) + " rejected " + std::to_string(rejected_) + " unreachable " +
        std::to_string(unreachable_) + " rate " + std::to_string(count / took.count()));
    return all_established_ == count ? 0 : 2;
  }

 private:
  struct Known {
    wire::Qpn qpn;
    cm::Id remote_id;
    cm::QpAttributes qp;
  };

  cm::Reply ask(const cm::Request& request) {
    const cm::Reply reply = agent_->ask(request);
    if (reply.error != 0 && reply.error != ENOTCONN) {
      std::fprintf(stderr, "cm_peer: request %zu: %s\n", request.index(), std::strerror(reply.error));
    }
    return reply;
  }

  void listen() {
    const cm::Reply bound = ask(cm::BindRequest{{.v4 = false, .port = port_}});
    if (bound.error != 0) fail(std::string("bind: ") + std::strerror(bound.error));
    const cm::Reply listening = ask(
        cm::ListenRequest{bound.binding, {.service = wire::service_id(wire::PortSpace::kTcp, port_), .backlog = 4096}});
    if (listening.error != 0) fail(std::string("listen: ") + std::strerror(listening.error));
  }

  void take_up_again() {
    if (remote_.is_unspecified()) listen();
    size_t adopted = 0;
    for (const auto& [id, known] : established_) {
      adopted += ask(cm::AdoptRequest{.id = id,
                                      .remote_id = known.remote_id,
                                      .service = wire::service_id(wire::PortSpace::kTcp, port_),
                                      .local_qpn = known.qpn,
                                      .qp = known.qp})
                             .error == 0
                     ? 1
                     : 0;
    }
    say("adopted " + std::to_string(adopted));
  }

  // --- serve
  void serve(const cm::Event& event) {
    switch (event.kind) {
      case cm::EventKind::kConnectRequest: {
        const wire::Qpn qpn(next_qpn_++);
        ask(cm::TakeRequest{event.id});
        if (ask(cm::AcceptRequest{event.id, {.parameters = {.qpn = qpn}, .data = event.data}}).error == 0) ++accepted_;
        opening_[event.id] = {qpn, event.remote_id, event.qp};
        break;
      }
      case cm::EventKind::kEstablished:
        ++all_established_;
        established_.insert(opening_.extract(event.id));
        break;
      case cm::EventKind::kDisconnected:
        ++ended_;
        ask(cm::DisconnectRequest{event.id, {}});
        [[fallthrough]];
      case cm::EventKind::kRejected:
      case cm::EventKind::kUnreachable:
        end(event.id);
        break;
      default:
        break;
    }
  }

  // --- connect
  void begin_one() {
    const wire::Qpn qpn(next_qpn_++);
    const uint32_t number = next_qpn_;
    std::array<uint8_t, 4> data;
    std::memcpy(data.data(), &number, sizeof(number));
    const cm::Reply reply = ask(cm::ConnectRequest{
        {.service = wire::service_id(wire::PortSpace::kTcp, port_),
         .names = wire::CmaHeader{.v4 = local_.is_v4(), .source_port = 1, .source = local_, .destination = remote_},
         .path = {.netdev = netdev_, .local = local_, .remote = remote_},
         .parameters = {.qpn = qpn, .retry_count = 7, .rnr_retry = 7},
         .data = cm::PrivateData(data)}});
    if (reply.error != 0) fail(std::string("connect: ") + std::strerror(reply.error));
    opening_[reply.id] = {qpn, {}, {}};
    sent_[reply.id] = number;
  }

  void follow(const cm::Event& event, bool ends_at_once) {
    switch (event.kind) {
      case cm::EventKind::kConnectResponse: {
        uint32_t number = 0;
        std::memcpy(&number, event.data.bytes().data(), sizeof(number));
        if (number != sent_[event.id]) fail("private data of another connection");
        if (ask(cm::ConfirmRequest{event.id, {}}).error != 0) return lose(event.id);
        ++all_established_;
        auto known = opening_.extract(event.id);
        known.mapped().remote_id = event.remote_id;
        known.mapped().qp = event.qp;
        established_.insert(std::move(known));
        if (ends_at_once) ask(cm::DisconnectRequest{event.id, {}});
        break;
      }
      case cm::EventKind::kRejected:
        ++rejected_;
        return lose(event.id);
      case cm::EventKind::kUnreachable:
        ++unreachable_;
        return lose(event.id);
      case cm::EventKind::kDisconnected:
        ask(cm::DisconnectRequest{event.id, {}});
        return lose(event.id);
      default:
        break;
    }
  }

  void lose(cm::Id id) {
    ++done_;
    end(id);
  }
  void end(cm::Id id) {
    ask(cm::DestroyRequest{id});
    opening_.erase(id);
    established_.erase(id);
    sent_.erase(id);
  }

  const uint32_t netdev_;
  const wire::IpAddress local_;
  wire::IpAddress remote_{};
  const uint16_t port_;
  Inbox inbox_;
  std::unique_ptr<cm::Agent> agent_;
  std::map<cm::Id, Known> opening_, established_;
  std::map<cm::Id, uint32_t> sent_;
  uint32_t next_qpn_ = 0x100;
  uint32_t accepted_ = 0, all_established_ = 0, ended_ = 0, done_ = 0, rejected_ = 0, unreachable_ = 0;
  uint32_t ended_said_ = 0, established_said_ = 0;
};

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "serve" && argc == 5) return Peer(argv[2], argv[3], argv[4]).serve();
  if (role == "connect" && argc >= 8) {
    return Peer(argv[2], argv[3], argv[5])
        .connect(argv[4], static_cast<uint32_t>(std::atoi(argv[6])), static_cast<uint32_t>(std::atoi(argv[7])),
                 argc > 8);
  }
  fail("see the top of cm_peer.cc");
}

}  // namespace
}  // namespace uroce::broker

int main(int argc, char** argv) {
  return uroce::broker::main(argc, argv);
}
