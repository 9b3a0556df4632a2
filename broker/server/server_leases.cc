// SPDX-License-Identifier: BSD-2-Clause
// Who has which QP numbers, and which DPDK port.
#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/concat.h"
#include "base/message_socket.h"
#include "broker/server/answers.h"
#include "broker/server/server.h"
#include "broker/steering/error.h"
#include "cm/shares.h"
#include "engine/io/af_xdp/error.h"

namespace uroce::broker {

namespace {

constexpr uid_t kUnknownUser = static_cast<uid_t>(-1);  // is nobody's

}  // namespace

bool Server::grant(Client& client, const Message& request) {
  const ClientSocket& socket = client.socket;
  std::optional<std::string> text = objection(client);
  if (!text) text = who_is_in_the_way(request);
  if (text) return socket.send(refusal(EBUSY, *text)) == 0;
  const std::optional<uint32_t> number = ranges_.take(client.peer.uid);
  if (!number) return socket.send(refusal(ENOSPC, "all QP numbers are leased; end other programs")) == 0;
  const LeaseRange range{*number + LeaseRange::kFirstNumber};
  give(client, range.number, {request.ifindex, request.plane});
  log(client, concat("leases QP numbers from ", range.first(), " on, netdev ", text_of(request)));
  auto admitted = steering_->admit(range, request.plane == Plane::kDpdk);
  if (const auto* const error = std::get_if<io::IoError>(&admitted)) {
    end_lease(client, range.number);
    return socket.send(refusal(error->code, error->text())) == 0;
  }
  PortSockets& sockets = std::get<PortSockets>(admitted);
  Message answer = granted(range.number);
  answer.has_v6 = sockets.v6 ? 1 : 0;
  const int error = socket.send(answer, SocketList(sockets).span());
  for (UniqueFd* const each : {&sockets.v4, &sockets.v6, &sockets.kept}) leave_to(client.peer.uid, std::move(*each));
  return error == 0;
}

// The broker only knows who has it: opening the port takes rights that it neither gives nor asks for.
bool Server::hold(Client& client, const std::string& port) const {
  const ClientSocket& socket = client.socket;
  if (const auto text = who_has(port, client)) return socket.send(refusal(EBUSY, *text)) == 0;
  if (client.ports.size() >= kMostPorts && !client.ports.contains(port)) {
    return socket.send(refusal(EBUSY, concat("one process can have ", kMostPorts, " DPDK ports at most"))) == 0;
  }
  client.ports.insert(port);
  log(client, concat("has DPDK port ", port));
  return socket.send(granted(0)) == 0;
}

// To say that one has a port takes no privilege, and so keeps neither root nor the owner from it.
std::optional<std::string> Server::who_has(const std::string& port, const Client& asking) const {
  for (const Client& other : clients_) {
    if (&other == &asking || !other.ports.contains(port)) continue;
    if (is_owner(asking.peer.uid) && !is_owner(other.peer.uid)) continue;
    return concat("process ", other.peer.pid, " (", other.program,
                  ") has this DPDK port, which one process at a time can use: ", port);
  }
  return std::nullopt;
}

// Null: nobody.
const Server::Client* Server::holder(uint32_t range) const {
  const auto found = holders_.find(range);
  return found == holders_.end() ? nullptr : found->second;
}

void Server::give(Client& client, uint32_t range, const LeaseOf& lease) {
  client.leases[range] = lease;
  holders_[range] = &client;
}

void Server::end_lease(Client& client, uint32_t range) {
  const auto lease = client.leases.find(range);
  if (lease == client.leases.end()) return;
  steering_->dismiss(LeaseRange{range});
  take_away(client, range);
  if (is_free(range, now_())) {
    ranges_.release(range - LeaseRange::kFirstNumber, client.peer.uid);
  } else {
    kept_.emplace(range, client.peer.uid);
  }
  log(client, concat("returns QP numbers from ", LeaseRange{range}.first(), " on"));
}

// Somebody has come with a later lease of the range.
void Server::forget_lease(uint32_t range) {
  kept_.erase(range);
  const auto had_it = holders_.find(range);
  if (had_it == holders_.end()) return;
  Client& client = *had_it->second;
  take_away(client, range);
  log(client, concat("loses QP numbers from ", LeaseRange{range}.first(), " on"));
}

// What the client had of the broker before this one. The message stays in the queue until it is read.
bool Server::claim(Client& client, const Message& request, bool brings) {
  if (!client.greeted || client.observes || client.stays) return false;
  if (!is_owner(client.peer.uid) && now_() >= claims_end_) {
    client.socket.send(
        refusal(EPERM, "of other users it takes nothing over but in the first minute after an earlier broker"));
    return false;
  }
  if (!brings) {
    client.socket.drop();
    return client.socket.send(refusal(EINVAL, "sockets of an earlier lease: none came")) == 0;
  }
  if (!claims_) return take_over_from_owner(client, request);
  client.claim = request;
  return begin_claim(client);
}

bool Server::take_over_from_owner(Client& client, const Message& request) {
  Descriptors descriptors;
  const int error = peek_descriptors(client.socket.get(), descriptors);
  client.socket.drop();
  if (error != 0) return false;
  return take_over(client, request, [&] { return steering_->readmit(sockets_from(descriptors, request.has_v6 != 0)); });
}

bool Server::begin_claim(Client& client) {
  const uid_t user = client.peer.uid;
  const auto begun = claims_->begin(
      {client.number, user, client.socket.get(), client.claim->has_v6 != 0, is_owner(client.peer.uid)}, now_());
  if (begun != Claims::Begun::kNever) return true;
  client.socket.send(refusal(EAGAIN, "sockets of an earlier lease: there is no process that could look at them now"));
  return false;
}

// Those that wait for one of the same user are begun when that has ended.
void Server::work_on_claims() {
  claims_->work(now_(), [this](uint64_t number, const auto& read) { end_claim(number, read); });
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool waits = client->claim && !claims_->is_reading(client->number) && has_time(client->peer.uid, now_());
    const Duration begin = waits ? spent() : Duration{};  // to ask the clock for each would take as long as all else
    const bool goes_on = !waits || begin_claim(*client);
    if (waits) charge(client->peer.uid, begin);
    client = goes_on ? std::next(client) : end_client(client);
  }
}

void Server::end_claim(uint64_t number, const std::optional<Claims::Read>& read) {
  const Duration begin = spent();
  const auto client =
      std::find_if(clients_.begin(), clients_.end(), [number](const Client& each) { return each.number == number; });
  const Message request = *std::exchange(client->claim, std::nullopt);
  bool goes_on = false;
  if (read && !read->has_all) {  // it stays in the queue, or what nobody has a copy of would be closed here
    client->socket.send(refusal(EPROTO, "sockets of an earlier lease: those are more than there are"));
  } else if (read) {
    client->socket.drop();
    goes_on = take_over(*client, request, [&] { return readmit(*read); });
  } else {
    client->socket.send(refusal(ETIMEDOUT, "sockets of an earlier lease: they cannot be looked at"));
  }
  charge(client->peer.uid, begin);
  if (!goes_on) end_client(client);
}

std::variant<LeaseRange, io::IoError> Server::readmit(const Claims::Read& read) {
  const auto* const objection = std::get_if<Staging::Objection>(&read.what);
  if (objection == nullptr) return steering_->staging()->readmit(read.place, std::get<Staging::Staged>(read.what));
  return refused(objection->error,
                 objection->text != nullptr ? objection->text : std::generic_category().message(objection->error));
}

bool Server::take_over(Client& client, const Message& request, const Readmit& readmit) {
  const ClientSocket& socket = client.socket;
  if (const auto text = too_many_leases(client)) return socket.send(refusal(EBUSY, *text)) == 0;
  const auto readmitted = readmit();
  if (const auto* const error = std::get_if<io::IoError>(&readmitted)) {
    return socket.send(refusal(error->code, error->text())) == 0;
  }
  const LeaseRange range = std::get<LeaseRange>(readmitted);
  if (!ranges_.take_this(range.number - LeaseRange::kFirstNumber)) forget_lease(range.number);
  give(client, range.number, {request.ifindex, request.plane});
  log(client, concat("keeps QP numbers from ", range.first(), " on"));
  return socket.send(granted(range.number)) == 0;
}

std::optional<std::string> Server::too_many_leases(const Client& client) {
  if (client.leases.size() < kMostLeases) return std::nullopt;
  return concat("one process can use ", kMostLeases, " netdevs at most");
}

// Why the client cannot have another lease.
std::optional<std::string> Server::objection(const Client& client) const {
  if (auto text = too_many_leases(client)) return text;
  if (has_too_many(client.peer.uid)) {
    return concat("user ", client.peer.uid, " has as many leases as are left for all others; end other programs");
  }
  return std::nullopt;
}

// Who keeps the client from what it asks for. A process without broker takes all packets of the netdev (to be seen by
// who may look at programs of others). The AF_XDP queues are whose XDP program is attached: to have leased them takes
// no privilege, and so keeps nobody from them.
std::optional<std::string> Server::who_is_in_the_way(const Message& request) const {
  const std::optional<io::AttachedProgram> program = xdp_program_of_(request.ifindex);
  if (!program) return std::nullopt;
  if (program->takes_all()) return io::program_present_error(text_of(request), *program).text();
  if (request.plane != Plane::kAfXdp) return std::nullopt;
  for (const Client& other : clients_) {
    for (const auto& [range, lease] : other.leases) {
      if (lease.ifindex != request.ifindex || lease.plane != Plane::kAfXdp) continue;
      return concat(
          "process ", other.peer.pid, " (", other.program,
          ") uses AF_XDP on the netdev, which one process can at a time; others use UDP sockets (UROCE_IO=udp)");
    }
  }
  return std::nullopt;
}

// So the numbers do not end before the users do.
bool Server::has_too_many(uid_t user) const {
  size_t all = kept_.size(), own = 0;
  for (const auto& [range, had_it] : kept_) own += had_it == user ? 1 : 0;
  for (const Client& client : clients_) {
    all += client.leases.size();
    own += client.peer.uid == user ? client.leases.size() : 0;
  }
  const bool is_bounded = user != 0 && user != policy_.owner;
  return is_bounded && !cm::Shares::leaves_enough(steering_->last_number(), all, own, {cm::UserId{user}, false});
}

// What clients of an earlier broker may have who have not come back.
void Server::hold_back(Time now) {
  for (uint32_t number = LeaseRange::kFirstNumber; number <= steering_->last_number(); ++number) {
    if (steering_->is_free(LeaseRange{number}, now)) continue;
    if (ranges_.take_this(number - LeaseRange::kFirstNumber)) kept_.emplace(number, kUnknownUser);
  }
}

bool Server::is_free(uint32_t range, Time now) const {
  return !partings_.are_of(range) && steering_->is_free(LeaseRange{range}, now);
}

void Server::release_ranges(Time now) {
  if (now < look_at_kept_) return;
  look_at_kept_ = now + kLookAgain;
  pending_.release(now);
  partings_.look(
      now, [this](uint32_t other) { return has_read(other); },
      [this](uint32_t other, uint32_t range) { return tell_of_parting(other, range); });
  std::erase_if(kept_, [&](const auto& kept) {
    const bool free = is_free(kept.first, now);
    const auto& [range, had_it] = kept;
    const auto user = had_it == kUnknownUser ? std::nullopt : std::optional(had_it);
    if (free) ranges_.release(range - LeaseRange::kFirstNumber, user);
    return free;
  });
}

}  // namespace uroce::broker
