// SPDX-License-Identifier: BSD-2-Clause
#include "broker/client/link.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/concat.h"
#include "base/fork.h"
#include "base/thread.h"
#include "broker/protocol/address.h"
#include "broker/protocol/statistics.h"

namespace uroce::broker {

namespace {

constexpr int kAnswerTimeout = 2000;  // ms
// Between two looks whether there is a broker again.
constexpr std::chrono::milliseconds kLookAgain{100};

const char* message_of(int error) {
  return std::strerror(error);  // NOLINT(concurrency-mt-unsafe): glibc's is thread-safe for known values
}

io::IoError no_answer(const std::string& broker, int error) {
  if (error == EMFILE) {
    return {error, concat("what the broker (", broker, ") sends cannot be taken: ", message_of(error)),
            io::remedy_for(error, "")};
  }
  return {error, concat("the broker (", broker, ") does not answer: ", message_of(error)),
          "see whether it runs; after its end, start the program again, or run it without broker (--alone)"};
}

// With what is known of them for children.
void close_all(Descriptors& descriptors) {
  ForkGuard forks;
  for (UniqueFd& descriptor : descriptors) forks.close(descriptor.release());
}

void write_whole(int file, std::string_view text) {
  for (off_t at = 0; !text.empty();) {
    const ssize_t written = pwrite(file, text.data(), text.size(), at);
    if (written <= 0) return;  // no memory
    at += written;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void close_all(PortSockets& sockets) {
  Descriptors descriptors{std::move(sockets.v4), std::move(sockets.v6), std::move(sockets.kept)};
  close_all(descriptors);
}

// Copies of descriptors, for a thread that waits while another one may close them: from then on their numbers may be
// other files'.
class Copies {
 public:
  Copies() = default;
  ~Copies() { close_all(all_); }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  // The copy's number; less than 0: there are no descriptors left, or no memory.
  int copy(int fd) {
    ForkGuard forks;
    UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    try {
      forks.close_in_children(own.get());
    } catch (const std::bad_alloc&) {
      return -1;
    }
    return (all_.at(count_++) = std::move(own)).get();
  }

 private:
  Descriptors all_;
  size_t count_ = 0;
};

}  // namespace

// The descriptors that come with a message, which may be more than were asked for. They are closed in children, and
// those that nobody has taken at the end here.
struct Link::Came {
  Descriptors all;

  Came() = default;
  ~Came() { close_all(all); }
  Came(const Came&) = delete;
  Came& operator=(const Came&) = delete;
  // As broker::receive().
  int receive(int socket, Message& message, int timeout_ms) {
    if (const int error = wait_for_message(socket, timeout_ms); error != 0) return error;
    ForkGuard forks;
    const int error = broker::receive(socket, message, all, 0);
    for (const UniqueFd& descriptor : all) forks.close_in_children(descriptor.get());
    return error;
  }
};

Link::Link(std::string address, Report report)
    : address_(std::move(address)), report_(std::move(report)), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

// Without shutdown(): programs may have the connection (keep_for_programs()).
Link::~Link() {
  ForkGuard forks;
  forks.close(socket_);
  forks.close(reports_);
}

std::variant<std::shared_ptr<Link>, io::IoError> Link::open(const std::string& address, Report report) {
  if (address == "none") return nullptr;
  std::shared_ptr<Link> link(new Link(address, std::move(report)));
  const std::lock_guard guard(link->lock_);
  auto connected = link->connect_patiently();
  if (auto* const error = std::get_if<io::IoError>(&connected)) {
    if (address.empty() && error->code == ENOENT) return nullptr;
    return std::move(*error);
  }
  if (!link->report_) return link;
  try {
    start_thread("uroce broker", [link] { link->watch(); }).detach();
  } catch (const std::system_error&) {  // no more threads: no statistics, and no leases from another broker
  }
  return link;
}

// A broker that is busy answers soon, one that has just ended may be followed by another.
std::variant<std::monostate, io::IoError> Link::connect_patiently() {
  constexpr Duration kPatience = std::chrono::seconds(1);
  for (const Time end = monotonic_now() + kPatience;;) {
    auto connected = connect();
    const auto* const error = std::get_if<io::IoError>(&connected);
    const bool passes =
        error != nullptr && (error->code == EAGAIN || error->code == ECONNRESET || error->code == EPIPE);
    if (!passes || monotonic_now() > end) return connected;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Caller holds lock_.
std::variant<std::monostate, io::IoError> Link::connect() {
  UniqueFd socket;
  int error;
  {
    ForkGuard forks;  // connecting does not wait
    error = find_broker(address_, socket);
    forks.close_in_children(socket.get());
  }
  if (error == EMFILE || error == ENFILE) {
    return io::IoError{error, concat("no socket to ask the broker with: ", message_of(error)),
                       io::remedy_for(error, "")};
  }
  if (error != 0 && !address_.empty()) {
    return io::IoError{error, concat("no broker at ", address_, ": ", message_of(error)),
                       "start uroced there, or run the program without broker (--alone)"};
  }
  if (error == EAGAIN) return no_answer("uroced", error);
  if (error != 0) return io::IoError{ENOENT, "there is no broker", "start uroced"};
  const std::optional<Peer> peer = peer_of(socket.get());
  broker_ = concat("uroced, process ", peer ? peer->pid : 0);
  auto greeted = greet(socket.get());
  if (std::holds_alternative<io::IoError>(greeted)) {
    ForkGuard().close(socket.release());
  } else {
    socket_ = socket.release();
    ++connections_;
  }
  return greeted;
}

std::variant<std::monostate, io::IoError> Link::greet(int socket) {
  Message hello = make_message(Kind::kHello, program_invocation_short_name);
  hello.network_namespace = own_network_namespace();
  Message answer;
  Came came;
  int error = send(socket, hello);
  // Who has too many programs is told so without being asked.
  if (error == 0 || error == EPIPE) error = came.receive(socket, answer, kAnswerTimeout);
  const bool welcome = error == 0 && answer.kind == Kind::kWelcome;
  if (welcome && report_) reports_ = came.all.front().release();
  if ((error == 0 && answer.kind == Kind::kRefused) || error == ENOTSUP) {
    return io::IoError{error != 0 ? error : answer.error,
                       concat("the broker (", broker_, ") refuses: ", text_of(answer)),
                       "without broker (--alone) the program needs a netdev that no other process uses"};
  }
  if (!welcome) return no_answer(broker_, error != 0 ? error : EPROTO);
  broker_ = text_of(answer);
  return std::monostate{};
}

// One request and its answer; what comes with it is closed in children. Caller holds lock_. On an error the connection
// is of no use any more.
std::variant<Message, io::IoError> Link::ask(const Message& request, std::span<const int> descriptors, Came& came) {
  Message answer;
  int error = socket_ < 0 ? ENOTCONN : send(socket_, request, descriptors);
  if (error == 0) error = came.receive(socket_, answer, kAnswerTimeout);
  if (error == 0 && answer.kind != Kind::kGranted && answer.kind != Kind::kRefused) error = EPROTO;
  if (error == 0) return answer;
  disconnect();
  return no_answer(broker_, error);
}

std::variant<std::shared_ptr<Lease>, io::IoError> Link::lease(int ifindex, const std::string& netdev, Plane plane) {
  std::shared_ptr<Lease> lease;  // ends without the lock
  const std::lock_guard guard(lock_);
  if (auto problem = reconnect()) return std::move(*problem);
  Message request = make_message(Kind::kLease, netdev);
  request.ifindex = ifindex;
  request.plane = plane;
  Came came;
  auto asked = ask(request, {}, came);
  if (auto* const error = std::get_if<io::IoError>(&asked)) return std::move(*error);
  const Message& answer = std::get<Message>(asked);
  if (answer.kind == Kind::kRefused) {
    return io::IoError{answer.error, text_of(answer),
                       concat("see uroced(8), or run the program without broker (--alone); it is ", broker_)};
  }
  const LeaseRange range{answer.range};
  const bool usable = range.number >= LeaseRange::kFirstNumber && range.number <= LeaseRange::kLastNumber;
  if (!usable || !came.all.front()) return no_answer(broker_, EPROTO);
  PortSockets sockets = sockets_from(came.all, answer.has_v6 != 0);
  lease.reset(new Lease(shared_from_this(), ifindex, plane, range, std::move(sockets)));
  leases_.push_back(lease.get());
  return lease;
}

std::variant<std::shared_ptr<const void>, io::IoError> Link::hold(const std::string& port) {
  const std::lock_guard guard(lock_);
  if (auto problem = reconnect()) return std::move(*problem);
  const Message request = make_message(Kind::kHold, port);
  Came none;
  auto asked = ask(request, {}, none);
  if (auto* const error = std::get_if<io::IoError>(&asked)) return std::move(*error);
  const Message& answer = std::get<Message>(asked);
  if (answer.kind == Kind::kRefused) {
    return io::IoError{answer.error, text_of(answer),
                       concat("end it, or use another port; it is ", broker_, " who says so")};
  }
  ports_.push_back(port);
  const auto give_back = [link = shared_from_this()](const std::string* name) {
    link->release(*name);
    delete name;
  };
  return std::shared_ptr<const std::string>(new std::string(port), give_back);
}

std::variant<UniqueFd, io::IoError> Link::open_cm() {
  const std::lock_guard guard(lock_);
  if (auto problem = reconnect()) return std::move(*problem);
  Came came;
  auto asked = ask(make_message(Kind::kCm), {}, came);
  if (auto* const error = std::get_if<io::IoError>(&asked)) return std::move(*error);
  const Message& answer = std::get<Message>(asked);
  if (answer.kind == Kind::kRefused) return io::IoError{answer.error, text_of(answer), concat("it is ", broker_)};
  if (!came.all.front()) return no_answer(broker_, EPROTO);
  return std::move(came.all.front());
}

// Where the broker has ended since, and the watching thread, if there is one, has not found the next one yet.
std::optional<io::IoError> Link::reconnect() {
  if (socket_ >= 0 && wait_for_message(socket_, 0) == 0) disconnect();  // it says nothing unless asked: its end
  if (socket_ >= 0) return std::nullopt;
  auto connected = connect_patiently();
  if (auto* const error = std::get_if<io::IoError>(&connected)) return std::move(*error);
  if (!claim_leases()) return no_answer(broker_, ECONNRESET);
  return std::nullopt;
}

// They may be another user's: so nothing can be asked over it any more.
void Link::keep_for_programs() {
  constexpr int kOutOfTheWay = 500;  // of shells and of programs that count on low numbers
  const std::lock_guard guard(lock_);
  if (socket_ < 0 || send(socket_, make_message(Kind::kStay)) != 0) return;
  if (fcntl(socket_, F_DUPFD, kOutOfTheWay) >= 0) return;
  fcntl(socket_, F_SETFD, 0);
  ForkGuard().forget(std::exchange(socket_, -1));
}

std::string Link::description() const {
  const std::lock_guard guard(lock_);
  return broker_;
}

// --- the watching thread: what the broker says by itself, and what follows its end ----------------------------------

void Link::watch() {
  do {
    listen_until_end();
  } while (take_up_again());
}

void Link::listen_until_end() {
  Copies copies;
  std::array<pollfd, 3> waits{};
  uint64_t connection = 0;
  {
    const std::lock_guard guard(lock_);
    if (socket_ < 0) return;
    waits = {{{copies.copy(socket_), 0, 0}, {copies.copy(reports_), POLLIN, 0}, {event_.get(), POLLIN, 0}}};
    connection = connections_;
    if (waits[0].fd < 0 || (reports_ >= 0 && waits[1].fd < 0)) return;  // take_up_again() comes back
  }
  while (waits[0].revents == 0) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[1].revents != 0 && !listen(connection)) waits[1].fd = -1;
    if (waits[2].revents != 0) look_after_leases();
  }
  const std::lock_guard guard(lock_);
  if (connections_ == connection) disconnect();
}

// False: nothing more comes. Under the lock, as whoever ends the connection closes its descriptors, and their numbers
// may be others' from then on.
bool Link::listen(uint64_t connection) {
  Message message;
  Came came;
  std::unique_lock guard(lock_);
  if (connections_ != connection || reports_ < 0) return false;
  const int error = came.receive(reports_, message, 0);
  guard.unlock();
  Descriptors& all = came.all;
  if (error == 0 && message.kind == Kind::kReport && all[1]) report(all[0].get(), message.most_qps);
  if (error == 0 && message.kind == Kind::kMemory && all[0]) prepare(message, all[0]);
  if (error == 0 && message.kind == Kind::kPeer && all[1]) hand_over(message, all);
  if (error == 0 && message.kind == Kind::kPart) part(message);
  return error == 0 || error == ETIMEDOUT;
}

// Writes the process's statistics. That it is done is seen when the bell that came along is closed.
void Link::report(int file, uint32_t most_qps) const {
  try {
    write_whole(file, report_(std::min(most_qps, kMostQps)));
  } catch (const std::bad_alloc&) {  // no answer
  }
}

// The watching thread sees the end of what it has waited for, and then whether there is another one. Caller holds
// lock_.
void Link::disconnect() {
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
  ForkGuard forks;
  forks.close(std::exchange(socket_, -1));
  forks.close(std::exchange(reports_, -1));
}

// False: nobody has the link but the watching thread.
bool Link::take_up_again() {
  while (weak_from_this().use_count() > 1) {
    std::this_thread::sleep_for(kLookAgain);
    const std::lock_guard guard(lock_);
    if (socket_ >= 0) return true;  // somebody needed it sooner
    const auto connected = connect();
    if (const auto* const error = std::get_if<io::IoError>(&connected)) {
      if (error->code == EACCES || error->code == ENOTSUP || error->code == EXDEV) say_once(error->text());
    } else if (claim_leases()) {
      return true;
    }
  }
  return false;
}

void Link::say_once(const std::string& text) {
  if (std::exchange(said_, text) != text) std::fputs(concat("uroce: ", text, "\n").c_str(), stderr);
}

// False: the broker has gone again. Leases that it refuses are lost.
bool Link::claim_leases() {
  for (Lease* const lease : leases_) {
    lease->prepared_.clear();
    if (lease->part_) lease->part_(std::nullopt);
  }
  for (auto next = leases_.begin(); next != leases_.end();) {
    const Lease* const lease = *next;
    Message request = make_message(Kind::kClaim);
    request.ifindex = lease->ifindex_;
    request.plane = lease->plane_;
    request.range = lease->range_.number;
    request.has_v6 = lease->sockets_.v6 ? 1 : 0;
    const SocketList sockets(lease->sockets_);
    Came none;
    auto asked = ask(request, sockets.span(), none);
    if (std::holds_alternative<io::IoError>(asked)) return false;
    const Message& answer = std::get<Message>(asked);
    if (answer.kind == Kind::kRefused && (answer.error == ETIMEDOUT || answer.error == EAGAIN)) {
      disconnect();  // it has had no time to look at them, and has hung up
      return false;
    }
    const bool kept = answer.kind == Kind::kGranted;
    if (!kept) {
      say_once(concat(broker_, " does not take over QP numbers of this process: ", text_of(answer),
                      "; its connections may end"));
    }
    next = kept ? next + 1 : leases_.erase(next);
  }
  return claim_ports();
}

// Likewise. A port that somebody else says he has is used on.
bool Link::claim_ports() {
  for (auto next = ports_.begin(); next != ports_.end();) {
    Came none;
    auto asked = ask(make_message(Kind::kHold, *next), {}, none);
    if (std::holds_alternative<io::IoError>(asked)) return false;
    const Message& answer = std::get<Message>(asked);
    const bool kept = answer.kind == Kind::kGranted;
    if (!kept) say_once(concat(broker_, ": ", text_of(answer)));
    next = kept ? next + 1 : ports_.erase(next);
  }
  return true;
}

void Link::release(const std::string& port) {
  const std::lock_guard guard(lock_);
  const auto known = std::find(ports_.begin(), ports_.end(), port);
  if (known == ports_.end()) return;
  ports_.erase(known);
  if (socket_ >= 0) send(socket_, make_message(Kind::kRelease, port));
}

// --- leases ----------------------------------------------------------------------------------------------------------

Lease::Lease(std::shared_ptr<Link> link, int ifindex, Plane plane, LeaseRange range, PortSockets sockets)
    : link_(std::move(link)), ifindex_(ifindex), plane_(plane), range_(range), sockets_(std::move(sockets)) {}

Lease::~Lease() {
  link_->end(*this);
}

void Lease::take_peers(TakePeer take, PartFrom part, std::function<void()> tend) {
  const std::lock_guard guard(link_->lock_);
  take_peer_ = std::move(take);
  part_ = std::move(part);
  tend_ = std::move(tend);
}

void Lease::meet(uint32_t range) {
  if (range / 64 >= wishes_.size()) return;
  const uint64_t bit = uint64_t{1} << range % 64;
  if ((wishes_[range / 64].fetch_or(bit) & bit) == 0) eventfd_write(link_->event_.get(), 1);
}

void Lease::ask_to_tend() {
  if (!to_tend_.exchange(true)) eventfd_write(link_->event_.get(), 1);
}

// The sockets are closed before the numbers go back.
void Link::end(Lease& lease) {
  const std::lock_guard guard(lock_);
  const bool known = std::erase(leases_, &lease) != 0;
  close_all(lease.sockets_);
  if (socket_ < 0 || !known) return;
  Message message = make_message(Kind::kReturn);
  message.range = lease.range_.number;
  send(socket_, message);
}

}  // namespace uroce::broker
