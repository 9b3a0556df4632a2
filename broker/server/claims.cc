// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/claims.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/close_all.h"
#include "base/message_socket.h"
#include "broker/protocol/protocol.h"
#include "broker/server/bounds.h"
#include "cm/shares.h"

namespace uroce::broker {

namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(100);

}  // namespace

// What a process says: first that it has begun, then what it has read. It was forked from this one, so the address of a
// text is enough.
struct Claims::Report {
  bool begins = false;
  bool objects = false;
  bool has_all = false;
  Staging::Staged staged;
  Staging::Objection objection{};
};

// It closes what others wait for at the end of a broker (its addresses, its port) before anything can make it wait.
void Claims::run(const Staging& staging, const Claim& claim, uint32_t place, int pipe) {
  std::array kept{claim.socket, pipe, staging.descriptor_to_stage()};
  close_all_but(kept);
  for (const int standard : {0, 1, 2}) close(standard);
  Report report;
  report.begins = true;
  if (send(pipe, &report, sizeof(report), MSG_NOSIGNAL) < 0) _exit(1);
  report.begins = false;
  Descriptors came;
  const int error = peek_descriptors(claim.socket, came);
  report.has_all = error == 0 && came.front();
  const PortSockets sockets = sockets_from(came, claim.has_v6);
  const auto result = error == 0 ? staging.stage(place, sockets) : Staging::Objection{error, nullptr};
  if (const auto* const objection = std::get_if<Staging::Objection>(&result)) {
    report.objects = true;
    report.objection = *objection;
  } else {
    report.staged = std::get<Staging::Staged>(result);
  }
  send(pipe, &report, sizeof(report), MSG_NOSIGNAL);
  char end;
  while (recv(pipe, &end, 1, 0) < 0 && errno == EINTR) continue;
  _exit(0);
}

// A process that waits for what a client has cannot be killed, and has nothing of the broker's open. The others end
// soon and are waited for, so that who comes after this broker finds its addresses and ports free.
Claims::~Claims() {
  const auto last = std::chrono::steady_clock::now() + kLetGo;
  for (Process& process : processes_) kill(process.pid, SIGKILL);
  for (Process& process : processes_) {
    hear(process);
    while (waitpid(process.pid, nullptr, WNOHANG) == 0 && !process.has_begun &&
           std::chrono::steady_clock::now() < last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

Claims::Begun Claims::begin(const Claim& claim, Time now) {
  reap();
  const auto of_user = [&claim](const Process& each) { return each.user == claim.user; };
  const auto of_this_user = std::count_if(processes_.begin(), processes_.end(), of_user);
  const auto read_now = std::count_if(processes_.begin(), processes_.end(),
                                      [&](const Process& each) { return of_user(each) && is_read(each); });
  if (read_now >= (claim.of_owner ? kMostOfOwner : 1)) return Begun::kNotYet;
  const cm::Account account{cm::UserId{claim.user}, claim.of_owner};
  if (!cm::Shares::leaves_enough(Staging::kStages, processes_.size(), static_cast<size_t>(of_this_user), account)) {
    return Begun::kNever;
  }
  const std::optional<uint32_t> place = free_place();
  if (!place) return Begun::kNever;
  staging_.clear(*place);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return Begun::kNever;
  UniqueFd here(pair[0]);
  const UniqueFd there(pair[1]);
  const pid_t pid = fork();
  if (pid < 0) return Begun::kNever;
  if (pid == 0) run(staging_, claim, *place, there.get());
  processes_.push_back({claim.client, claim.user, *place, pid, std::move(here), now + kPatience});
  return Begun::kYes;
}

bool Claims::has_starting_child() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const Process& each) { return !each.has_begun; });
}

std::optional<uint32_t> Claims::free_place() const {
  for (uint32_t place = 0; place < Staging::kStages; ++place) {
    const auto has_it = [place](const Process& each) { return each.place == place; };
    if (std::none_of(processes_.begin(), processes_.end(), has_it)) return place;
  }
  return std::nullopt;
}

bool Claims::is_reading(uint64_t client) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [client](const Process& each) { return each.client == client; });
}

void Claims::forget(uint64_t client) {
  for (Process& process : processes_) {
    if (process.client != client) continue;
    kill(process.pid, SIGKILL);
    process.client = 0;
  }
}

void Claims::add_waits(std::vector<pollfd>& waits) const {
  for (const Process& process : processes_) waits.push_back({process.pipe.get(), POLLIN, 0});
}

Time Claims::deadline(Time now) const {
  Time next = kNever;
  for (const Process& process : processes_) {
    next = std::min(next, process.client != 0 ? process.ends : now + kLookAgain);
  }
  return next;
}

void Claims::work(Time now, const Done& done) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    if (!process.pipe) continue;
    const std::optional<Read> read = hear(process);
    const bool ended = !process.pipe;  // or it ends now
    if (process.client == 0 || !(read || ended || now >= process.ends)) continue;
    const uint64_t client = std::exchange(process.client, 0);
    if (!read) kill(process.pid, SIGKILL);
    const UniqueFd pipe = std::move(process.pipe);  // closed when the message has gone
    done(client, read);
  }
  reap();
}

// What it has read, if it has by now. Without pipe: it has ended, or ends.
std::optional<Claims::Read> Claims::hear(Process& process) const {
  Report report;
  while (true) {
    const ssize_t size = recv(process.pipe.get(), &report, sizeof(report), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return std::nullopt;
    if (size != static_cast<ssize_t>(sizeof(report))) {
      process.pipe.reset();
      return std::nullopt;
    }
    process.has_begun = true;
    if (report.begins) continue;
    if (report.objects) return Read{process.place, report.has_all, report.objection};
    return Read{process.place, report.has_all, report.staged};
  }
}

void Claims::reap() {
  std::erase_if(processes_,
                [](const Process& each) { return each.client == 0 && waitpid(each.pid, nullptr, WNOHANG) != 0; });
}

}  // namespace uroce::broker
