// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/cm_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "base/clock.h"
#include "base/random.h"

namespace uroce::broker {
namespace {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

std::string address_text(const wire::IpAddress& address) {
  return address.is_unspecified() ? std::string() : address.text();
}

const char* transport_text(cm::Transport transport) {
  constexpr std::array kTexts{"rc", "uc", "ud", "xrc"};
  return kTexts[static_cast<size_t>(transport)];
}

template <class Counter, class Counters>
void add_counters(const std::string& prefix, const Counters& counters, ConnectionsStatistics& statistics) {
  for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
    const auto counter = static_cast<Counter>(i);
    statistics.counters[prefix + counter_name(Counters::enumerator(counter))] = counters.get(counter);
  }
}

}  // namespace

CmServer::CmServer(std::unique_ptr<net::NetView> view, const std::optional<io::FaultSpec>& faults,
                   const cm::Limits& limits, Clients& clients, size_t most_unread, PortsOf ports_of)
    : others_(clients),
      most_unread_(most_unread),
      ports_of_(std::move(ports_of)),
      view_(std::move(view)),
      host_(*view_),
      capture_(*view_),
      gsi_(host_, capture_, faults,
           [this](const cm::Datagram& datagram, Time now) {
             now_ = now;
             service_.on_datagram(datagram, now);
           }),
      service_(limits, engine::secure_random, *this, *this) {}

CmServer::~CmServer() {
  end_rest();
  for (auto& [id, client] : clients_) others_.close_later(std::move(client.socket), client.account);
}

UniqueFd CmServer::open(cm::ClientId client, Time now) {
  close(client, now);
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) return {};
  clients_.emplace(client,
                   Client{ClientSocket(UniqueFd(ends[0])), others_.is_root(client), others_.account_of(client), {}});
  return UniqueFd(ends[1]);
}

void CmServer::close(cm::ClientId client, Time now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  others_.close_later(std::move(found->second.socket), found->second.account);
  clients_.erase(found);
  now_ = now;
  lost_.erase(client);
  service_.end_client(client, now);
}

void CmServer::end_rest() {
  while (service_.is_ending()) service_.on_timer(now_);
}

// --- a turn ----------------------------------------------------------------------------------------------------------

void CmServer::add_waits(std::vector<pollfd>& waits) {
  waits.push_back({host_.descriptor(), POLLIN, 0});
  waiting_.clear();
  for (const auto& [id, client] : clients_) {
    waiting_.push_back(id);
    const int socket = others_.has_time_for(client.account) ? client.socket.get() : -1;
    waits.push_back({socket, static_cast<short>(client.unread.empty() ? POLLIN : POLLOUT), 0});
  }
}

// `waits`: what add_waits() has added. Clients may have come and gone since.
void CmServer::work(std::span<const pollfd> waits, Time now) {
  now_ = now;
  if (waits[0].revents != 0 || host_.due() <= now) host_.follow();
  capture_.follow();
  for (size_t i = 0; i < waiting_.size() && i + 1 < waits.size(); ++i) {
    const auto client = clients_.find(waiting_[i]);
    if (waits[i + 1].revents == 0 || client == clients_.end()) continue;
    if (!others_.has_time_for(client->second.account)) continue;  // any more
    write_unread(client->first, client->second);
    answer_requests(client->first, client->second, now);
  }
  service_.on_timer(now);
  gsi_.work(now);
  end_lost(now);
}

Time CmServer::deadline() const {
  return std::min({service_.deadline(), gsi_.deadline(), host_.due()});
}

cm::PortRange CmServer::port_range() {
  if (now_ >= ports_stay_until_) {
    const net::LocalPorts ports = ports_of_();
    ports_ = {ports.first, ports.last};
    ports_stay_until_ = now_ + kPortsStay;
  }
  return ports_;
}

void CmServer::end_lost(Time now) {
  while (!lost_.empty()) close(*lost_.begin(), now);
}

// --- clients ---------------------------------------------------------------------------------------------------------

void CmServer::answer_requests(cm::ClientId id, Client& client, Time now) {
  for (size_t i = 0; i < kRequestsInATurn && client.unread.empty() && !lost_.contains(id); ++i) {
    if (!others_.has_time_for(client.account) || !answer_request(id, client, now)) return;
  }
}

// False: there is none. To read costs as much as there are waiters at the other end, like to answer.
bool CmServer::answer_request(cm::ClientId id, Client& client, Time now) {
  const Duration begin = others_.spent();
  std::array<uint8_t, cm::Encoded::kMost> bytes;
  size_t size = 0;
  const int error = client.socket.receive(bytes, size);
  const auto request = error == 0 ? cm::decode_request(std::span(bytes).first(size)) : std::nullopt;
  if (request) {
    tell(id, client, cm::encode(service_.ask(id, *request, now)));
  } else if (error != EAGAIN) {
    lost_.insert(id);
  }
  others_.charge(client.account, begin);
  return request.has_value();
}

void CmServer::on_event(const cm::Event& event) {
  const auto client = clients_.find(event.client);
  if (client != clients_.end()) tell(client->first, client->second, cm::encode(event));
}

// What waits already goes first.
void CmServer::tell(cm::ClientId id, Client& client, const cm::Encoded& message) {
  if (client.unread.size() >= most_unread_) {
    lost_.insert(id);
    return;
  }
  client.unread.push_back(message);
  if (client.unread.size() == 1) write_unread(id, client);
}

// To send takes as long as there are waiters at the other end, so it is on the receiver's account, and nothing goes
// while his user has no time.
void CmServer::write_unread(cm::ClientId id, Client& client) {
  while (!client.unread.empty() && others_.has_time_for(client.account)) {
    const Duration begin = others_.spent();
    const int error = send_message(client.socket.get(), client.unread.front().bytes());
    others_.charge(client.account, begin);
    if (error == EAGAIN) return;
    if (error != 0) {
      lost_.insert(id);
      return;
    }
    client.unread.pop_front();
  }
}

// --- for who looks on ------------------------------------------------------------------------------------------------

// What all may be told of: how many ids there are. The counters are whoever's who sees all.
std::vector<std::string> CmServer::head(const std::optional<cm::UserId>& viewer) const {
  ConnectionsStatistics statistics;
  const cm::ConnectionManager& manager = service_.manager();
  statistics.ids = viewer ? manager.ids_of(*viewer) : manager.size();
  if (!viewer) {
    add_counters<cm::Counter>("", manager.counters(), statistics);
    add_counters<GsiCounter>("gsi_", gsi_.counters(), statistics);
  }
  return format_head(statistics);
}

// Ids that nobody has any more are shown without a client.
std::optional<std::string> CmServer::line_of(const cm::Listing& listing, const std::optional<cm::UserId>& viewer) {
  if (viewer && *viewer != listing.user) return std::nullopt;
  return format_id({.client = listing.abandoned ? 0 : static_cast<uint64_t>(listing.client),
                    .id = static_cast<uint32_t>(listing.id),
                    .state = lower_case(listing.state),
                    .transport = transport_text(listing.transport),
                    .service = static_cast<uint64_t>(listing.service),
                    .local = address_text(listing.local),
                    .remote = address_text(listing.remote),
                    .local_qpn = listing.local_qpn.value(),
                    .remote_qpn = listing.remote_qpn.value(),
                    .remote_id = static_cast<uint32_t>(listing.remote_id)});
}

// A place is the number of a line of the head, or kIds and a place in the list of ids.
CmServer::Page CmServer::page(uint64_t place, const std::optional<cm::UserId>& viewer, size_t room) const {
  constexpr uint64_t kIds = uint64_t{1} << 40;
  Page page;
  const auto add = [&page, room](const std::string& line) {
    if (!page.lines.empty() && page.lines.size() + line.size() + 1 > room) return false;
    page.lines += line + kLineEnd;
    return true;
  };
  if (place < kIds) {
    const std::vector<std::string> lines = head(viewer);
    while (place < lines.size() && add(lines[place])) ++place;
    page.next = place < lines.size() ? place : kIds;
    return page;
  }
  size_t seen = 0;
  const auto visit = [&](const cm::Listing& listing) {
    if (++seen > kMostSeen) return false;
    const std::optional<std::string> line = line_of(listing, viewer);
    return !line || add(*line);
  };
  const uint64_t next = service_.manager().list(place & (kIds - 1), visit);
  page.next = next == 0 ? 0 : kIds | next;
  return page;
}

}  // namespace uroce::broker
