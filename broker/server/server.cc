// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/bell.h"
#include "base/concat.h"
#include "base/random.h"
#include "broker/server/answers.h"
#include "cm/shares.h"

namespace uroce::broker {

namespace {

constexpr Duration kOneLook = std::chrono::milliseconds(100);
constexpr Duration kTryAgain = std::chrono::seconds(1);
constexpr Duration kAcceptAgain = std::chrono::milliseconds(100);
constexpr size_t kMostOfName = 15;  // as the kernel has names of programs

std::vector<gid_t> groups_of(int socket, const Peer& peer) {
  std::vector<gid_t> groups(64);
  socklen_t size = 0;
  while (true) {
    size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) break;
    if (errno != ERANGE) {
      size = 0;
      break;
    }
    groups.resize(size / sizeof(gid_t));
  }
  groups.resize(size / sizeof(gid_t));
  groups.push_back(peer.gid);
  return groups;
}

// What a client does not read of what it is asked or told costs no more than this.
void shrink_send_buffer(int socket) {
  const int least = 0;  // the kernel's own least is taken: a few messages
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
}

// Two ends; none of them if there are no descriptors left.
std::array<UniqueFd, 2> message_sockets() {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) return {};
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

Server::Server(std::vector<UniqueFd> listeners, std::unique_ptr<Steering> steering, Policy policy, bool verbose,
               XdpProgramOf xdp_program_of, Clock clock)
    : steering_(std::move(steering)),
      listeners_(std::move(listeners)),
      policy_(policy),
      verbose_(verbose),
      xdp_program_of_(std::move(xdp_program_of)),
      now_(clock),
      ranges_(steering_->last_number(), engine::secure_random),
      closer_(policy_.enough_to_close),
      starts_at_(steering_->inherits() ? now_() + kInheritance : now_()),
      starts_latest_(starts_at_ + kMoreInheritance),
      claims_end_(steering_->inherits() ? starts_at_ + kClaimTime : starts_at_),
      empty_since_(now_()) {
  if (Staging* const staging = steering_->staging()) claims_.emplace(*staging);
}

// The addresses are the next broker's before anything that may take long. Then what asks the others of time and
// accounts while its connections end.
Server::~Server() {
  for (const UniqueFd& listener : listeners_) accept_rest(listener.get());
  listeners_.clear();
  cm_.reset();
  leave_given();
  for (Client& client : clients_) let_go(client.socket, client.reports, client.peer.uid);
  for (Leaving& leaving : leaving_) let_go(leaving.socket, leaving.reports, leaving.user);
}

void Server::manage_connections(std::unique_ptr<net::NetView> view, const std::optional<io::FaultSpec>& faults,
                                const cm::Limits& limits) {
  cm_.reset(new CmServer(std::move(view), faults, limits, *this));  // a private base
  steering_->read_own_with([this](int socket) { return cm_->receive(socket, now_()); });
}

bool Server::turn(int stop, bool waits_for_work) {
  const Time now = now_();
  start_when_due(now);
  release_ranges(now);
  if (policy_.linger && is_idle() && now - empty_since_ >= *policy_.linger) return false;
  waits_.clear();
  waits_.push_back({stop, POLLIN, 0});
  waits_.push_back({started_ ? steering_->descriptor() : -1, POLLIN, 0});
  for (const UniqueFd& listener : listeners_) waits_.push_back({accepts(now) ? listener.get() : -1, POLLIN, 0});
  const size_t others = waits_.size();
  // Whoever waits for an answer is not listened to, only whether it is still there; whose user has no time, not at all.
  for (const Client& client : clients_) {
    const int socket = has_time(client.peer.uid, now) ? client.socket.get() : -1;
    waits_.push_back({socket, static_cast<short>(client.postponed || client.claim ? 0 : POLLIN), 0});
  }
  if (claims_) claims_->add_waits(waits_);
  const size_t of_cm = waits_.size();
  if (cm_) cm_->add_waits(waits_);
  if (poll(waits_.data(), waits_.size(), waits_for_work ? patience(now) : 0) < 0) return true;
  if (waits_[0].revents != 0) return false;
  auto wait = waits_.begin() + static_cast<ptrdiff_t>(others);
  served_.clear();
  for (auto client = clients_.begin(); client != clients_.end(); ++wait) {
    const bool served = wait->revents != 0 && has_time(client->peer.uid, now_()) && has_its_turn(*client);
    const bool goes_on = served ? serve_on_account(*client) : !is_silent(*client, now);
    client = goes_on ? std::next(client) : end_client(client);
  }
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (waits_[others - listeners_.size() + i].revents != 0) accept_clients(listeners_[i].get());
  }
  if (claims_) work_on_claims();
  if (started_) steering_->work();  // what was given out is made anew before it is asked for
  if (cm_) cm_->work(std::span(waits_).subspan(of_cm), now_());
  close_some();
  return true;
}

// It has not said who it is in time. To end it costs time of its user.
bool Server::is_silent(const Client& client, Time now) const {
  return !client.greeted && now >= client.greeting_ends && has_time(client.peer.uid, now_());
}

// Milliseconds until something is to be done without cause from outside; -1: never.
int Server::patience(Time now) const {
  Time next = kNever;
  if (!started_) next = std::min(next, starts_at_);
  if (!kept_.empty() || partings_.any()) next = std::min(next, look_at_kept_);
  if (!leaving_.empty()) next = std::min(next, closes_more_ ? now : now + kLookAgain);
  if (closer_.is_busy()) next = std::min(next, closer_.is_starting() ? now + kMoment : now + kLookAgain);
  if (!given_.empty()) next = std::min(next, given_since_ + kGivenTime);
  if (claims_) next = std::min(next, claims_->deadline(now));
  if (cm_) next = std::min(next, cm_->deadline());
  if (accepts_at_ > now) next = std::min(next, accepts_at_);
  if (policy_.linger && is_idle()) next = std::min(next, empty_since_ + *policy_.linger);
  for (const Client& client : clients_) {
    if (!client.greeted && has_time(client.peer.uid, now)) next = std::min(next, client.greeting_ends);
    if (!has_time(client.peer.uid, now)) next = std::min(next, budget_.again(client.peer.uid, now));
  }
  if (next == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

bool Server::is_idle() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const Client& client) { return client.observes; });
}

// A range that is still looked at must not be leased to somebody else.
bool Server::is_claimed_from() const {
  return std::any_of(clients_.begin(), clients_.end(), [](const Client& client) { return client.claim.has_value(); });
}

// Whoever has asked for numbers before gets an answer now.
void Server::start_when_due(Time now) {
  if (started_ || now < starts_at_) return;
  if (now < starts_latest_ && is_claimed_from()) {
    starts_at_ = std::min(now + kLookAgain, starts_latest_);
    return;
  }
  const std::optional<io::IoError> problem = steering_->start();
  started_ = !problem;
  starts_at_ = now + kTryAgain;
  if (started_) hold_back(now);
  if (started_ && cm_) cm_->use(steering_->own_socket(AF_INET), steering_->own_socket(AF_INET6));
  for (auto client = clients_.begin(); client != clients_.end();) {
    const std::optional<Message> request = std::exchange(client->postponed, std::nullopt);
    bool goes_on = true;
    if (request && started_) goes_on = request->kind == Kind::kCm ? open_cm(*client) : grant(*client, *request);
    if (request && !started_) goes_on = client->socket.send(refusal(problem->code, problem->text())) == 0;
    client = goes_on ? std::next(client) : end_client(client);
  }
}

void Server::accept_clients(int listener) {
  for (size_t i = 0; i < kMostAccepted && has_room(); ++i) {
    const Duration begin = spent();
    ClientSocket socket(UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (socket.get() < 0) {
      if (errno != EAGAIN) accepts_at_ = now_() + kAcceptAgain;  // too many open files
      return;
    }
    const std::optional<Peer> peer = peer_of(socket.get());
    if (!peer) continue;
    if (may_connect(*peer)) {
      clients_.emplace_back(std::move(socket), *peer, ++last_number_, now_() + kGreetingTime);
    } else {
      turn_away(std::move(socket), peer->uid);
    }
    charge(peer->uid, begin);
  }
}

bool Server::may_connect(const Peer& peer) const {
  if (is_owner(peer.uid)) return true;
  const auto clients = std::count_if(clients_.begin(), clients_.end(),
                                     [&peer](const Client& client) { return client.peer.uid == peer.uid; });
  const auto leaving =
      std::count_if(leaving_.begin(), leaving_.end(), [&peer](const Leaving& each) { return each.user == peer.uid; });
  const auto own = static_cast<size_t>(clients + leaving);
  return cm::Shares::leaves_enough(policy_.most_clients, connections_now(), own, {cm::UserId{peer.uid}, false});
}

// One message. False: the connection is of no use any more.
bool Server::serve(Client& client) {
  if (client.socket.unread()) return false;
  if (client.claim) return false;  // it has hung up: it is not listened to
  Message message;
  bool brings = false;
  const int error = client.socket.peek(message, brings);
  if (error == ETIMEDOUT) return client.greeted || now_() < client.greeting_ends;
  if (error == ENOTSUP) {
    const std::string text = concat("it speaks version ", kProtocolVersion, " and this program version ",
                                    message.version, ": install the same uroce for both, or end uroced (kill ",
                                    getpid(), ") so that the program starts its own");
    client.socket.send(refusal(ENOTSUP, text));
    return false;
  }
  if (error != 0) return false;
  if (message.kind == Kind::kClaim) return claim(client, message, brings);
  if (brings) return false;
  client.socket.drop();
  return client.greeted ? answer(client, message) : answer_first(client, message);
}

bool Server::answer_first(Client& client, const Message& message) {
  if (message.kind != Kind::kHello && message.kind != Kind::kLook) return false;
  client.observes = message.kind == Kind::kLook;
  // Until now it counted as somebody who needs the broker, which may be due to end: one look is answered before that.
  // No more, as there are some who look again and again until it has ended (cli/start_broker.cc).
  const Time now = now_();
  if (client.observes && policy_.linger && is_idle() && now - empty_since_ >= *policy_.linger) {
    empty_since_ = now - *policy_.linger + kOneLook;
  }
  client.program = text_of(message).substr(0, kMostOfName);
  const uint64_t ours = own_network_namespace();
  if (!client.observes && message.network_namespace != ours && ours != 0) {
    client.socket.send(refusal(EXDEV, message.network_namespace != 0
                                          ? "it serves another network namespace; start an uroced in this one"
                                          : "your network namespace is not known; mount /proc"));
    return false;
  }
  if (!may_use(client)) {
    const std::string text = steering_->isolates()
                                 ? concat("it serves a group that user ", client.peer.uid,
                                          " is not in; root can start it so that it does: uroced --group GROUP")
                                 : concat("it serves nobody but user ", policy_.owner,
                                          ", since it cannot keep users apart: ", steering_->isolation_obstacle());
    client.socket.send(refusal(EACCES, text));
    return false;
  }
  return welcome(client);
}

bool Server::welcome(Client& client) {
  client.greeted = true;
  const Message message = make_message(Kind::kWelcome, concat("uroced " UROCE_VERSION ", process ", getpid()));
  if (client.observes) return client.socket.send(message) == 0;
  auto [own, theirs] = message_sockets();
  shrink_send_buffer(own.get());
  shutdown(own.get(), SHUT_RD);  // nothing comes that would be closed with it (client_socket.h)
  client.reports = std::move(own);
  const std::array descriptors{theirs.get()};
  const int error = client.socket.send(message, std::span(descriptors).first(theirs ? 1 : 0));
  leave_to(client.peer.uid, std::move(theirs));
  return error == 0;
}

bool Server::may_use(const Client& client) const {
  const Peer& peer = client.peer;
  if (is_owner(peer.uid)) return true;
  if (!steering_->isolates()) return false;
  if (!policy_.group) return true;
  const std::vector<gid_t> groups = groups_of(client.socket.get(), peer);
  return std::find(groups.begin(), groups.end(), *policy_.group) != groups.end();
}

// Root and the owner see all, others what is theirs.
bool Server::may_see(const Client& observer, const Client& client) const {
  return is_owner(observer.peer.uid) || observer.peer.uid == client.peer.uid;
}

// The next client that the observer may see, and the file that this one writes to, which both have: neither can make
// the other wait. A client that does not read what it is asked is shown without one; a connection that only keeps the
// broker there (cli/start_broker.h) is not shown.
bool Server::introduce(const Client& observer, const Message& request) {
  Message question = make_message(Kind::kReport);
  question.most_qps = request.most_qps;
  for (Client& client : clients_) {
    if (client.number <= request.client || !client.reports || !client.greeted || client.observes ||
        !may_see(observer, client))
      continue;
    UniqueFd file(memfd_create("uroce statistics", MFD_CLOEXEC));
    auto [client_end, observer_end] = make_bell();
    const std::array asks{file.get(), client_end.get()}, tells{file.get(), observer_end.get()};
    const bool keeps_too_much = kept_of(client.peer.uid) >= kMostKeptOfUser;
    const int error = file && client_end && !keeps_too_much ? tell(client, question, asks) : EMFILE;
    if (error == EPIPE || error == ECONNRESET) {
      client.reports.reset();  // for good
      continue;
    }
    Message answer = make_message(Kind::kProcess, client.program);
    answer.client = client.number;
    answer.pid = client.peer.pid;
    answer.uid = client.peer.uid;
    const int failed = observer.socket.send(answer, std::span(tells).first(error == 0 ? 2 : 0));
    if (error != 0) return failed == 0;  // nobody else has them
    // Who closes an end wakes all that wait at the other one.
    for (UniqueFd* const each : {&file, &client_end, &observer_end}) leave_to(client.peer.uid, std::move(*each));
    return failed == 0;
  }
  return observer.socket.send(make_message(Kind::kNoMore)) == 0;
}

// A page for each question, however long it is: nothing is kept for who asks.
bool Server::list_connections(const Client& observer, const Message& request) {
  Message answer = granted(0);
  if (cm_) {
    std::optional<cm::UserId> viewer;
    if (!is_owner(observer.peer.uid)) viewer = cm::UserId{observer.peer.uid};
    const CmServer::Page page = cm_->page(request.client, viewer, answer.text.size() - 1);
    answer = make_message(Kind::kGranted, page.lines);
    answer.client = page.next;
  }
  return observer.socket.send(answer) == 0;
}

bool Server::answer(Client& client, const Message& message) {
  if (client.observes && message.kind == Kind::kIds) return list_connections(client, message);
  if (client.observes) return message.kind == Kind::kNext && introduce(client, message);
  if (client.stays) return false;
  switch (message.kind) {
    case Kind::kLease:
    case Kind::kCm:
      if (started_) return message.kind == Kind::kCm ? open_cm(client) : grant(client, message);
      client.postponed = message;
      return true;
    case Kind::kMeet:
    case Kind::kSealed:
      meet(client, message);
      return true;
    case Kind::kStay:
      client.stays = true;
      return true;
    case Kind::kReturn:
      end_lease(client, message.range);
      return true;
    case Kind::kHold:
      return hold(client, text_of(message));
    case Kind::kRelease:
      client.ports.erase(text_of(message));
      return true;
    default:
      return false;
  }
}

bool Server::open_cm(const Client& client) {
  if (!cm_) {
    return client.socket.send(refusal(EOPNOTSUPP, "this broker makes no connections (rdma_cm)")) == 0;
  }
  if (!may_connect(client.peer)) {  // another one ends, and counts until its client has read what it was sent
    return client.socket.send(
               refusal(EBUSY, concat("user ", client.peer.uid, " has as many connections as are left"))) == 0;
  }
  UniqueFd end = cm_->open(cm::ClientId{client.number}, now_());
  if (!end) return client.socket.send(refusal(EMFILE, "the broker has too many open files")) == 0;
  log(client, "uses the connection manager");
  const int error = client.socket.send(granted(0), std::array{end.get()});
  leave_to(client.peer.uid, std::move(end));
  return error == 0;
}

bool Server::is_others_qpn(cm::ClientId client, wire::Qpn qpn) {
  const Client* const other = holder(qpn.value() >> LeaseRange::kBits);
  return other != nullptr && cm::ClientId{other->number} != client;
}

bool Server::is_root(cm::ClientId client) {
  return std::any_of(clients_.begin(), clients_.end(), [client](const Client& each) {
    return cm::ClientId{each.number} == client && each.peer.uid == 0;
  });
}

cm::Account Server::account_of(cm::ClientId client) {
  for (const Client& each : clients_) {
    if (cm::ClientId{each.number} == client) return {cm::UserId{each.peer.uid}, is_owner(each.peer.uid)};
  }
  return {.has_reserve = false};
}

Server::Clients::iterator Server::end_client(Clients::iterator client) {
  const Duration begin = spent();
  while (!client->leases.empty()) end_lease(*client, client->leases.begin()->first);
  if (cm_) cm_->close(cm::ClientId{client->number}, now_());
  const bool observed = client->observes;
  if (client->claim && claims_) claims_->forget(client->number);
  client->socket.hang_up();
  leaving_.push_back({std::move(client->socket), std::move(client->reports), client->peer.uid});
  charge(client->peer.uid, begin);
  const auto next = clients_.erase(client);
  if (!observed && is_idle()) empty_since_ = now_();
  return next;
}

void Server::log(const Client& client, const std::string& text) const {
  if (!verbose_) return;
  std::fputs(
      concat("uroced: process ", client.peer.pid, " (", client.program, ", user ", client.peer.uid, ") ", text, "\n")
          .c_str(),
      stderr);
}

}  // namespace uroce::broker
