// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/slots.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "broker/steering/descriptors.h"
#include "broker/steering/error.h"
#include "broker/steering/holders.h"
#include "broker/steering/memberships.h"
#include "engine/io/udp/socket.h"

namespace uroce::broker {
namespace {

using io::IoError;

constexpr const char* kLimits = "raise the limit of open files: ulimit -n 4096";

// It sees packets from the BTH on. Everything beyond the last slot, and what is too short, goes to place 0.
int attach_program(int fd) {
  constexpr uint32_t kQpnOffset = 4, kQpnBits24 = 0xffffff;
  std::array<sock_filter, 6> instructions{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kQpnOffset),
                                           BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kQpnBits24),
                                           BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, LeaseRange::kBits),
                                           BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SlotSteering::kSlots, 0, 1),
                                           BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_A, 0)}};
  const sock_fprog program{instructions.size(), instructions.data()};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) == 0 ? 0 : errno;
}

UniqueFd duplicate(const UniqueFd& fd) {
  return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
}

// Tells the next broker, in the socket itself, whether a client has it. A UDP socket has no other use for this number.
constexpr int kFree = 1, kLeased = 2;
void mark(int fd, int value) {
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
}
bool is_marked_leased(int fd) {
  int value = kFree;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, &length) == 0 && value == kLeased;
}

// For the next client. 0 or an errno value.
int clean(int fd, int family) {
  leave_all_groups(fd, family);
  if (const int error = io::reset_group_member(fd, family)) return error;
  constexpr int kMost = 32;  // times 1024: more than fit into its buffer
  for (int i = 0; i < kMost && discard_packets(fd) > 0; ++i) {
  }
  return 0;
}

}  // namespace

io::IoResult<Steering> SlotSteering::open(bool inherits) {
  std::unique_ptr<SlotSteering> steering(new SlotSteering(inherits));
  steering->events_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!steering->events_) return failed(errno, "epoll", kLimits);
  return steering;
}

const std::string& SlotSteering::isolation_obstacle() const {
  static const std::string kReason = "the broker has no privileges";
  return kReason;
}

std::optional<IoError> SlotSteering::start() {
  if (slots_.empty()) {
    if (const auto holders = port_holders(); inherits_ && holders && !holders->empty()) return port_taken(*holders);
    if (auto error = make_slots()) return error;
  }
  inherits_ = false;
  for (const Slot& slot : slots_) {
    if (!slot.leased && !watch(slot)) return failed(errno, "epoll", kLimits);
  }
  return std::nullopt;
}

std::optional<IoError> SlotSteering::make_slots() {
  std::vector<Slot> slots(kSlots + 1);
  bool v6 = true;
  for (uint32_t number = 0; number < slots.size(); ++number) {
    for (const int family : {AF_INET, AF_INET6}) {
      if (family == AF_INET6 && !v6) break;
      auto result = io::open_group_member(family);
      if (auto* const error = std::get_if<IoError>(&result)) {
        if (family == AF_INET || error->code != EAFNOSUPPORT) return std::move(*error);
        v6 = false;
        break;
      }
      UniqueFd& socket = family == AF_INET ? slots[number].v4 : slots[number].v6;
      socket = std::move(std::get<UniqueFd>(result));
      const int error = number == kOwn ? attach_program(socket.get()) : lock_to(socket.get(), {{number}});
      if (error != 0) return failed(error, "filter of a socket", "Linux 5.15 or later");
    }
  }
  slots_ = std::move(slots);
  return park();
}

std::optional<IoError> SlotSteering::park() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return failed(errno, "UNIX sockets", kLimits);
  parked_.reset(pair[0]);
  const UniqueFd writer(pair[1]);
  std::vector<int> members;
  for (const Slot& slot : slots_) {
    members.push_back(slot.v4.get());
    if (slot.v6) members.push_back(slot.v6.get());
  }
  for (size_t next = 0; next < members.size(); next += kMostPassedDescriptors) {
    const std::span<const int> some =
        std::span(members).subspan(next, std::min(kMostPassedDescriptors, members.size() - next));
    if (const int error = send_descriptors(writer.get(), some, "members"))
      return failed(error, "descriptors on the way", kLimits);
  }
  return std::nullopt;
}

// What is wrong with what a client has kept, or nothing. It is looked at and stays where it is, so that this broker may
// be killed as well.
std::string SlotSteering::take_over(int kept) {
  const int begin = 0;
  if (setsockopt(kept, SOL_SOCKET, SO_PEEK_OFF, &begin, sizeof(begin)) != 0) return "without what a client keeps";
  std::vector<UniqueFd> members;
  for (size_t messages = 0; messages <= 2 * (kSlots + 1) / kMostPassedDescriptors; ++messages) {
    auto message = receive_descriptors(kept, MSG_PEEK | MSG_DONTWAIT);
    if (!message) break;
    for (UniqueFd& fd : message->descriptors) members.push_back(std::move(fd));
  }
  const size_t each = members.size() / (kSlots + 1);
  if (each < 1 || each > 2 || members.size() != each * (kSlots + 1)) return "without the members of the group";
  std::vector<Slot> slots(kSlots + 1);
  for (size_t i = 0; i < members.size(); ++i) {
    const int family = i % each == 0 ? AF_INET : AF_INET6;
    if (const char* const why = not_a_member(members[i].get(), family)) return why;
    const size_t number = i / each;
    if (locked_lease(members[i].get()).value_or(LeaseId{{kOwn}}) != LeaseId{{static_cast<uint32_t>(number)}})
      return "not in the order of their places";
    (family == AF_INET ? slots[number].v4 : slots[number].v6) = std::move(members[i]);
  }
  slots_ = std::move(slots);
  absence_ends_ = monotonic_now() + kAbsence;
  parked_.reset(fcntl(kept, F_DUPFD_CLOEXEC, 0));
  return {};
}

std::variant<PortSockets, IoError> SlotSteering::admit(LeaseRange range, bool) {
  assert(!inherits_ && range.number >= LeaseRange::kFirstNumber && range.number <= kSlots);
  Slot& slot = slots_[range.number];
  assert(!slot.leased);
  PortSockets sockets{duplicate(slot.v4), slot.v6 ? duplicate(slot.v6) : UniqueFd(), duplicate(parked_)};
  if (!sockets.v4 || !sockets.kept || (slot.v6 && !sockets.v6)) return failed(EMFILE, "sockets for a client", kLimits);
  if (const int error = clean(slot.v4.get(), AF_INET)) return failed(error, "socket options", kLimits);
  if (const int error = slot.v6 ? clean(slot.v6.get(), AF_INET6) : 0) return failed(error, "socket options", kLimits);
  forget(slot);
  mark(slot.v4.get(), kLeased);
  slot.leased = true;
  return sockets;
}

std::variant<LeaseRange, IoError> SlotSteering::readmit(PortSockets sockets) {
  if (slots_.empty()) {
    if (const std::string error = take_over(sockets.kept.get()); !error.empty()) return refused(EINVAL, error);
  }
  const std::optional<LeaseId> lease = locked_lease(sockets.v4.get());
  if (!lease || lease->range.number > kSlots) return refused(EINVAL, "not those of a lease");
  Slot& slot = slots_[lease->range.number];
  const auto same = [](const UniqueFd& a, const UniqueFd& b) {
    return socket_cookie(a.get()) == socket_cookie(b.get());
  };
  if (!same(slot.v4, sockets.v4) || !same(slot.v6, sockets.v6)) return refused(EINVAL, "not of this group");
  if (slot.leased) return refused(EADDRINUSE, "another client has their QPNs now");
  if (!inherits_) forget(slot);
  slot.leased = true;
  return lease->range;
}

void SlotSteering::dismiss(LeaseRange range) {
  Slot& slot = slots_[range.number];
  slot.leased = false;
  mark(slot.v4.get(), kFree);
  leave_all_groups(slot.v4.get(), AF_INET);
  if (slot.v6) leave_all_groups(slot.v6.get(), AF_INET6);
  if (!inherits_) watch(slot);
}

// Everybody has all sockets. Who had this one under an earlier broker goes on to read from it, if it lives.
bool SlotSteering::is_free(LeaseRange range, Time now) const {
  return now >= absence_ends_ || !is_marked_leased(slots_[range.number].v4.get());
}

void SlotSteering::work() {
  std::array<epoll_event, 64> ready{};
  const int count = epoll_wait(events_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = ready[static_cast<size_t>(i)].data.fd;
    const bool own = fd == own_socket(AF_INET) || fd == own_socket(AF_INET6);
    unclaimed_ += own ? read_own_(fd) : discard_packets(fd);
  }
}

int SlotSteering::own_socket(int family) const {
  if (slots_.empty()) return -1;
  return (family == AF_INET ? slots_[kOwn].v4 : slots_[kOwn].v6).get();
}

bool SlotSteering::watch(const Slot& slot) {
  for (const UniqueFd* const socket : {&slot.v4, &slot.v6}) {
    if (!*socket) continue;
    epoll_event event{.events = EPOLLIN, .data = {.fd = socket->get()}};
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket->get(), &event) != 0) return false;
  }
  return true;
}

void SlotSteering::forget(const Slot& slot) {
  for (const UniqueFd* const socket : {&slot.v4, &slot.v6}) {
    if (*socket) epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket->get(), nullptr);
  }
}

}  // namespace uroce::broker
