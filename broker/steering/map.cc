// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/map.h"

#include <algorithm>
#include <array>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cassert>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include "broker/steering/error.h"
#include "engine/io/silent_libbpf.h"
#include "engine/io/udp/socket.h"
#include "qpn_steer.skel.h"

namespace uroce::broker {
namespace {

using io::IoError;

constexpr const char* kPrivileges = "CAP_BPF and CAP_NET_ADMIN, Linux 5.15 or later";

int put(const bpf_map* map, uint32_t number, int socket) {
  const auto value = static_cast<uint64_t>(socket);
  return bpf_map__update_elem(map, &number, sizeof(number), &value, sizeof(value), BPF_ANY);
}

void remove(const bpf_map* map, uint32_t number) {
  bpf_map__delete_elem(map, &number, sizeof(number), 0);
}

// Whether a socket is there, which is open then.
bool holds(const bpf_map* map, uint32_t number) {
  uint64_t cookie = 0;
  return bpf_map__lookup_elem(map, &number, sizeof(number), &cookie, sizeof(cookie), 0) != -ENOENT;
}

// In the map of open sockets.
uint32_t place_v6(LeaseRange range) {
  constexpr uint32_t kRanges = 1 << (24 - LeaseRange::kBits);
  return kRanges + range.number;
}

bool may_set_options(int fd) {
  const int value = 0;
  return setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, sizeof(value)) == 0;
}

}  // namespace

void MapSteering::Unload::operator()(qpn_steer* program) const {
  qpn_steer__destroy(program);
}

MapSteering::~MapSteering() = default;

io::IoResult<Steering> MapSteering::open(bool inherits) {
  std::unique_ptr<MapSteering> steering(new MapSteering(inherits));
  if (auto error = steering->set_up()) return *error;
  return steering;
}

std::optional<IoError> MapSteering::set_up() {
  const io::SilentLibbpf silent;
  program_.reset(qpn_steer__open_and_load());
  if (!program_) return failed(errno, "BPF program that steers packets", kPrivileges);
  events_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!events_) return failed(errno, "epoll", "raise the limit of open files: ulimit -n");
  if (auto error = open_own()) return error;
  pool_ = std::make_unique<SocketPool>(static_cast<bool>(own_.v6));
  isolation_obstacle_ = pool_->obstacle();
  if (isolation_obstacle_.empty()) isolation_obstacle_ = guard_look_ups();
  return std::nullopt;
}

std::optional<IoError> MapSteering::open_own() {
  for (const int family : {AF_INET, AF_INET6}) {
    auto result = io::open_group_member(family);
    if (auto* const error = std::get_if<IoError>(&result)) {
      if (family == AF_INET6 && error->code == EAFNOSUPPORT) break;
      return std::move(*error);
    }
    UniqueFd& socket = family == AF_INET ? own_.v4 : own_.v6;
    socket = std::move(std::get<UniqueFd>(result));
    epoll_event event{.events = EPOLLIN, .data = {.fd = socket.get()}};
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) return failed(errno, "epoll", "");
  }
  if (const int error = steer_to(kOwn, own_)) return failed(error, "BPF map of sockets", kPrivileges);
  return std::nullopt;
}

// Without it a client that leaves the group stops everybody's packets. The program goes with this process; while there
// is no broker, that can happen.
std::string MapSteering::guard_look_ups() {
  const UniqueFd own_namespace(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  bpf_link* const link = bpf_program__attach_netns(program_->progs.uroce_port_lookup, own_namespace.get());
  if (link == nullptr) return "BPF program of socket look-ups: " + std::generic_category().message(errno);
  program_->links.uroce_port_lookup = link;
  return {};
}

// 0 or an errno value.
int MapSteering::steer_to(uint32_t number, const PortSockets& sockets) {
  const bpf_map* const all = program_->maps.open_sockets;
  if (const int error = put(all, number, sockets.v4.get())) return -error;
  if (const int error = sockets.v6 ? put(all, place_v6({number}), sockets.v6.get()) : 0) return -error;
  if (const int error = put(program_->maps.members_v4, number, sockets.v4.get())) return -error;
  if (const int error = sockets.v6 ? put(program_->maps.members_v6, number, sockets.v6.get()) : 0) return -error;
  return number == kOwn ? 0 : note(number, socket_cookie(sockets.v4.get()));
}

// Likewise.
int MapSteering::steer_to_staged(uint32_t number, uint32_t place) {
  constexpr size_t kLeastFrame = 14;
  std::array<uint8_t, kLeastFrame> frame{};
  __sk_buff request{};
  request.cb[0] = place;
  request.cb[1] = number;
  bpf_test_run_opts run{};
  run.sz = sizeof(run);
  run.data_in = frame.data();
  run.data_size_in = frame.size();
  run.ctx_in = &request;
  run.ctx_size_in = sizeof(request);
  if (const int error = bpf_prog_test_run_opts(bpf_program__fd(program_->progs.uroce_admit), &run)) return -error;
  return -static_cast<int>(run.retval);
}

int MapSteering::note(uint32_t number, uint64_t cookie) {
  cookies_[number] = cookie;
  return -bpf_map__update_elem(program_->maps.numbers, &cookie, sizeof(cookie), &number, sizeof(number), BPF_ANY);
}

std::optional<IoError> MapSteering::start() {
  const int program = bpf_program__fd(program_->progs.uroce_qpn_steer);
  for (const UniqueFd* const own : {&own_.v4, &own_.v6}) {
    if (!*own) continue;
    if (setsockopt(own->get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)) != 0) {
      return failed(errno, "BPF program that steers packets", kPrivileges);
    }
  }
  inherits_ = false;
  return std::nullopt;
}

std::variant<PortSockets, IoError> MapSteering::admit(LeaseRange range, bool without_copies) {
  assert(!inherits_ && range.number >= LeaseRange::kFirstNumber && range.number <= LeaseRange::kLastNumber);
  assert(!leased_[range.number]);
  auto result = pool_->take();
  auto* const sockets = std::get_if<PortSockets>(&result);
  if (sockets == nullptr) return result;
  const LeaseId lease{range, next_serial(), without_copies};
  for (const UniqueFd* const socket : {&sockets->v4, &sockets->v6}) {
    if (!*socket) continue;
    if (const int error = lock_to(socket->get(), lease)) return failed(error, "filter of a socket", kPrivileges);
  }
  if (const int error = steer_to(range.number, *sockets)) {
    dismiss(range);
    return failed(error, "BPF map of sockets", kPrivileges);
  }
  leased_[range.number] = true;
  serials_[range.number] = lease.serial;
  return result;
}

// Higher than those of earlier brokers, whose sockets do not outlive the boot either.
uint64_t MapSteering::next_serial() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  return last_serial_ = std::max(last_serial_ + 1, ns);
}

std::variant<LeaseRange, IoError> MapSteering::readmit(PortSockets sockets) {
  constexpr uint32_t kPlace = 0;
  const auto staged = stage(kPlace, sockets);
  const auto* const objection = std::get_if<Objection>(&staged);
  if (objection == nullptr) return readmit(kPlace, std::get<Staged>(staged));
  return refused(objection->error,
                 objection->text != nullptr ? objection->text : std::generic_category().message(objection->error));
}

int MapSteering::descriptor_to_stage() const {
  return bpf_map__fd(program_->maps.staged);
}

std::variant<Staging::Staged, Staging::Objection> MapSteering::stage(uint32_t place, const PortSockets& sockets) const {
  if (static_cast<bool>(sockets.v6) != static_cast<bool>(own_.v6))
    return Objection{EINVAL, "not for the IP versions of this host"};
  std::optional<LeaseId> lease;
  for (const int family : {AF_INET, AF_INET6}) {
    const int fd = (family == AF_INET ? sockets.v4 : sockets.v6).get();
    if (family == AF_INET6 && !sockets.v6) break;
    if (const char* const why = not_a_member(fd, family)) return Objection{EINVAL, why};
    const std::optional<LeaseId> its = locked_lease(fd);
    if (!its || its != lease.value_or(*its)) return Objection{EINVAL, "not those of a lease"};
    if (isolates() && may_set_options(fd)) return Objection{EPERM, "made by a broker without privileges"};
    lease = its;
    const uint32_t at = family == AF_INET ? place : kStages + place;
    if (const int error = put(program_->maps.staged, at, fd)) return Objection{-error, nullptr};
  }
  return Staged{*lease, socket_cookie(sockets.v4.get())};
}

std::variant<LeaseRange, IoError> MapSteering::readmit(uint32_t place, const Staged& staged) {
  const LeaseRange range = staged.lease.range;
  const uint64_t serial = staged.lease.serial;
  if (leased_[range.number] && serial <= serials_[range.number])
    return refused(EADDRINUSE, "another client has their QPNs now");
  dismiss(range);
  int error = steer_to_staged(range.number, place);
  if (error == 0) error = note(range.number, staged.cookie);
  if (error != 0) {
    dismiss(range);
    return refused(error, std::generic_category().message(error));
  }
  leased_[range.number] = true;
  serials_[range.number] = serial;
  last_serial_ = std::max(last_serial_, serial);
  return range;
}

void MapSteering::clear(uint32_t place) {
  remove(program_->maps.staged, place);
  remove(program_->maps.staged, kStages + place);
}

void MapSteering::dismiss(LeaseRange range) {
  remove(program_->maps.members_v4, range.number);
  remove(program_->maps.members_v6, range.number);
  bpf_map__delete_elem(program_->maps.numbers, &cookies_[range.number], sizeof(uint64_t), 0);
  leased_[range.number] = false;
}

bool MapSteering::is_free(LeaseRange range, Time) const {
  const bpf_map* const all = program_->maps.open_sockets;
  return !holds(all, range.number) && !holds(all, place_v6(range));
}

void MapSteering::work() {
  std::array<epoll_event, 4> ready{};
  const int count = epoll_wait(events_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = ready[static_cast<size_t>(i)].data.fd;
    if (fd == pool_->descriptor()) {
      pool_->receive();
    } else {
      unclaimed_ += read_own_(fd);
    }
  }
  pool_->refill();
  watch_maker();
}

// Each is there once only, and goes from the set when it is closed.
void MapSteering::watch_maker() {
  if (pool_->descriptor() < 0) return;
  epoll_event event{.events = EPOLLIN, .data = {.fd = pool_->descriptor()}};
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, pool_->descriptor(), &event);
}

}  // namespace uroce::broker
