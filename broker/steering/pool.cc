// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/pool.h"

#include <algorithm>
#include <array>
#include <bpf/bpf.h>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/close_all.h"
#include "broker/steering/cgroup.h"
#include "broker/steering/descriptors.h"
#include "broker/steering/error.h"
#include "engine/io/silent_libbpf.h"
#include "engine/io/udp/socket.h"
#include "socket_lock.skel.h"

namespace uroce::broker {
namespace {

using io::IoError;

constexpr size_t kBatch = 16, kFew = 8;  // clients
constexpr int kMakerTimeoutMs = 1000;    // less than clients wait for an answer
constexpr const char* kBegun = "begun";  // what the process says first

std::string message_of(int error) {
  return std::generic_category().message(error);
}

std::variant<PortSockets, IoError> make_sockets(bool v6) {
  PortSockets sockets;
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !v6) break;
    auto result = io::open_group_member(family);
    if (auto* const error = std::get_if<IoError>(&result)) return std::move(*error);
    (family == AF_INET ? sockets.v4 : sockets.v6) = std::move(std::get<UniqueFd>(result));
  }
  return sockets;
}

// Unlike links, programs that are attached stay when the process ends.
int attach(const socket_lock& programs, const std::string& cgroup) {
  const UniqueFd directory(open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return errno;
  const auto& progs = programs.progs;
  for (const bpf_program* const program : {progs.uroce_connect4, progs.uroce_connect6, progs.uroce_sendmsg4,
                                           progs.uroce_sendmsg6, progs.uroce_setsockopt}) {
    const auto type = bpf_program__expected_attach_type(program);
    const int result = bpf_prog_attach(bpf_program__fd(program), directory.get(), type, BPF_F_ALLOW_MULTI);
    if (result != 0) return -result;
  }
  return 0;
}

// In the child, whose working directory is `parent`. What went wrong, or nothing.
std::string make_batch(const socket_lock& programs, const std::string& parent, bool v6,
                       std::vector<PortSockets>& made) {
  SocketCgroup cgroup(".");
  if (cgroup.error() != 0) return "cgroup in " + parent + ": " + message_of(cgroup.error());
  for (size_t i = 0; i < kBatch; ++i) {
    auto sockets = make_sockets(v6);
    if (const auto* const error = std::get_if<IoError>(&sockets)) return error->what;
    made.push_back(std::move(std::get<PortSockets>(sockets)));
  }
  const int error = attach(programs, cgroup.path());
  return error == 0 ? "" : "BPF programs of a cgroup in " + parent + ": " + message_of(error);
}

[[noreturn]] void run_maker(const socket_lock& programs, const std::string& parent, bool v6, int result) {
  const auto& progs = programs.progs;
  if (chdir(parent.c_str()) != 0) _exit(1);  // which may be a mount that goes with its descriptor
  // It keeps nothing else of the broker's open, whose clients and locks would seem to live on.
  std::array kept{result,
                  bpf_program__fd(progs.uroce_connect4),
                  bpf_program__fd(progs.uroce_connect6),
                  bpf_program__fd(progs.uroce_sendmsg4),
                  bpf_program__fd(progs.uroce_sendmsg6),
                  bpf_program__fd(progs.uroce_setsockopt)};
  close_all_but(kept);
  send_descriptors(result, {}, kBegun);
  // Here, and not in the broker: whoever reads the directory into memory that nobody fills has it locked meanwhile.
  remove_left_cgroups(".");
  std::vector<PortSockets> made;
  const std::string error = make_batch(programs, parent, v6, made);
  std::vector<int> descriptors;
  for (const PortSockets& sockets : made) {
    descriptors.push_back(sockets.v4.get());
    if (v6) descriptors.push_back(sockets.v6.get());
  }
  if (error.empty()) {
    send_descriptors(result, descriptors, "made");
  } else {
    send_descriptors(result, {}, error);
  }
  _exit(0);
}

// Whatever a holder may not do is refused to the broker as well.
bool is_held(int fd) {
  const int value = 0;
  return setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, sizeof(value)) != 0 && errno == EPERM;
}

}  // namespace

void SocketPool::Unload::operator()(socket_lock* programs) const {
  socket_lock__destroy(programs);
}

SocketPool::SocketPool(bool v6) : v6_(v6) {
  const io::SilentLibbpf silent;
  load_programs();
  if (!obstacle_.empty()) return;
  remove_left_cgroups(parent_);
  auto sockets = take();
  auto* const made = std::get_if<PortSockets>(&sockets);
  if (made == nullptr) {
    stop_holding(std::get<IoError>(sockets).what);
  } else {
    sockets_.push_back(std::move(*made));
  }
}

SocketPool::~SocketPool() {
  if (maker_) end_maker();
  if (!parent_.empty()) remove_left_cgroups(parent_);
}

void SocketPool::load_programs() {
  std::string why;
  parent_ = own_cgroup(&why);
  if (parent_.empty()) return stop_holding(why);
  programs_.reset(socket_lock__open_and_load());
  if (!programs_) stop_holding("BPF programs of a cgroup: " + message_of(errno));
}

// Sockets are made here then.
void SocketPool::stop_holding(std::string why) {
  obstacle_ = std::move(why);
  sockets_.clear();
  programs_.reset();
}

std::variant<PortSockets, io::IoError> SocketPool::take() {
  if (!programs_) return make_sockets(v6_);
  if (sockets_.empty()) {
    if (!maker_ && !start_maker()) return *failure_;
    pollfd ready{maker_.get(), POLLIN, 0};
    while (maker_ && poll(&ready, 1, is_late_ ? 0 : kMakerTimeoutMs) == 1) receive();
    is_late_ = static_cast<bool>(maker_);  // nobody waits for it again
    if (sockets_.empty()) {
      return failure_.value_or(IoError{ETIMEDOUT, "sockets for a client are not made in time", "try again"});
    }
  }
  PortSockets sockets = std::move(sockets_.front());
  sockets_.pop_front();
  return sockets;
}

void SocketPool::refill() {
  if (programs_ && !maker_ && !failure_ && sockets_.size() < kFew) start_maker();
}

// It ends by itself, and soon; else it is not waited for.
void SocketPool::end_maker() {
  pollfd said{maker_.get(), POLLIN, 0};
  while (poll(&said, 1, kMakerTimeoutMs) == 1) {
    const auto message = receive_descriptors(maker_.get(), MSG_DONTWAIT);
    if (message && message->text == kBegun) continue;
    waitpid(maker_process_, nullptr, 0);
    return;
  }
  kill(maker_process_, SIGKILL);
  waitpid(maker_process_, nullptr, WNOHANG);
}

bool SocketPool::start_maker() {
  const auto fail = [this](const char* what) {
    failure_ =
        IoError{errno, std::string(what) + ": " + message_of(errno), "check limits of processes and files: ulimit -a"};
    return false;
  };
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return fail("UNIX sockets");
  maker_.reset(pair[0]);
  const UniqueFd result(pair[1]);
  has_begun_ = is_late_ = false;
  maker_process_ = fork();
  if (maker_process_ == 0) run_maker(*programs_, parent_, v6_, result.get());
  if (maker_process_ > 0) return true;
  maker_.reset();
  return fail("fork");
}

void SocketPool::receive() {
  if (!maker_) return;
  auto message = receive_descriptors(maker_.get(), MSG_DONTWAIT);
  if (message && message->text == kBegun) {
    has_begun_ = true;
    return;
  }
  maker_.reset();
  waitpid(maker_process_, nullptr, 0);  // it has left its cgroup, or is in none that it has to leave
  failure_.reset();
  const size_t each = v6_ ? 2 : 1;
  if (!message || message->descriptors.size() != kBatch * each) {
    const std::string why = message ? message->text : "the process that makes them ended";
    failure_ = IoError{EIO, "sockets for a client: " + why, "restart uroced"};
    return;
  }
  // Of every socket, and not of the first one that there ever was: who may change the cgroup can move the maker out of
  // it at any moment.
  if (!std::all_of(message->descriptors.begin(), message->descriptors.end(),
                   [](const UniqueFd& fd) { return is_held(fd.get()); })) {
    failure_ = IoError{EPERM, "the programs of a cgroup do not hold sockets that were made in it: " + parent_,
                       "see who moves processes between cgroups there"};
    return;
  }
  for (size_t i = 0; i < kBatch; ++i) {
    PortSockets sockets;
    sockets.v4 = std::move(message->descriptors[i * each]);
    if (v6_) sockets.v6 = std::move(message->descriptors[i * each + 1]);
    sockets_.push_back(std::move(sockets));
  }
  // The kernel puts a new IPv4 socket into the group of the newest one on the port, which therefore never is a
  // client's: that may have left the group, by connect() with AF_UNSPEC.
  newest_ = std::move(sockets_.back());
  sockets_.pop_back();
}

}  // namespace uroce::broker
