// SPDX-License-Identifier: BSD-2-Clause
// uroced: the broker of a host, one for each network namespace (server.h). Started by `uroce run` for as long as it is
// needed, or by hand or by systemd for good.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <grp.h>
#include <optional>
#include <pwd.h>
#include <string>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/concat.h"
#include "base/usage.h"
#include "broker/protocol/address.h"
#include "broker/server/server.h"
#include "broker/steering/file_limit.h"
#include "broker/steering/steering.h"
#include "capture/hub.h"
#include "capture/server.h"
#include "engine/io/fault_spec.h"
#include "engine/net/net_view.h"

namespace uroce::broker {
namespace {

constexpr int kFailed = 1, kWrongUsage = 2, kRunsAlready = 3;

struct Settings {
  std::vector<std::string> addresses;
  std::string group, user, faults;
  double linger = -1;  // seconds; negative: for good
  int ready = -1;      // descriptor
  bool memory_between_users = false, verbose = false;
};

// Tells whoever has started it how that went, in a line: nothing, it serves; otherwise what is wrong.
class Starter {
 public:
  explicit Starter(int fd) : fd_(fd) {}
  int complain(int code, const std::string& text) const {
    say(concat("uroced: ", text, "\n"));
    return code;
  }
  void ready() const {
    if (fd_.get() >= 0) say("\n");
  }

 private:
  void say(const std::string& line) const {
    [[maybe_unused]] const ssize_t written =
        write(fd_.get() >= 0 ? fd_.get() : STDERR_FILENO, line.data(), line.size());
  }
  const UniqueFd fd_;
};

// A descriptor that is readable when the process is asked to end.
int stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

// The sockets that systemd has made for it (sd_listen_fds(3)): from descriptor 3 on.
std::vector<UniqueFd> sockets_of_systemd() {
  constexpr int kFirst = 3;
  std::vector<UniqueFd> sockets;
  const char* const pid = secure_getenv("LISTEN_PID");
  const char* const count = secure_getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr || std::atoi(pid) != getpid()) return sockets;
  for (int fd = kFirst; fd < kFirst + std::atoi(count); ++fd) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    sockets.emplace_back(fd);
  }
  return sockets;
}

struct Refusal {
  int code;  // to exit with
  std::string text;
};

Refusal why_not_listening(const std::string& address, int error) {
  if (error != EADDRINUSE) return {kFailed, concat("cannot listen at ", address, ": ", std::strerror(error))};
  UniqueFd other;
  const std::optional<Peer> peer = connect_to(address, other) == 0 ? peer_of(other.get()) : std::nullopt;
  if (!peer) return {kFailed, concat(address, " is taken; see who has it in /proc/net/unix, or remove the file")};
  if (peer->uid == kNobodyKnown) {
    return {kFailed, concat("a user whom this user namespace does not know listens at ", address,
                            "; if that is the host's broker, name it: --broker ", address)};
  }
  const std::string who = peer->pid != 0 ? concat("process ", peer->pid, " of user ", peer->uid)
                                         : concat("a process of user ", peer->uid, " in another PID namespace");
  const std::string end = peer->pid != 0 ? concat("end it: kill ", peer->pid) : "end it there";
  if (address == address_of_user(geteuid()) && !is_trusted(*peer)) {
    return {kFailed,
            concat(who, " has taken the name ", address, ", and no program believes it to be a broker; ", end)};
  }
  return {kRunsAlready, concat(who, " listens at ", address, " already; it serves, or ", end)};
}

// A broker that has just been killed has its name for a moment longer.
int listen_or_wait(const std::string& address, UniqueFd& listener) {
  constexpr Duration kPatience = std::chrono::milliseconds(200);
  for (const Time end = monotonic_now() + kPatience;;) {
    const int error = listen_at(address, listener);
    if (error != EADDRINUSE || monotonic_now() > end) return error;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Another user's broker may be about to end, as those that `uroce run` starts do when nobody needs them any more.
io::IoResult<Steering> open_steering() {
  constexpr Duration kPatience = std::chrono::milliseconds(2500);
  for (const Time end = monotonic_now() + kPatience;;) {
    auto steering = Steering::open();
    const auto* const error = std::get_if<io::IoError>(&steering);
    if (error == nullptr || error->code != EAGAIN || monotonic_now() > end) return steering;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Without what netlink tells there are no connections by the connection manager, and all else goes on.
void manage_connections(Server& server, const std::optional<io::FaultSpec>& faults, bool verbose) {
  try {
    server.manage_connections(net::NetView::open(), faults);
    io::CaptureServer::start();
  } catch (const std::system_error& error) {
    if (verbose) std::fputs(concat("uroced: no connection manager: ", error.what(), "\n").c_str(), stderr);
  }
}

int serve(const Settings& settings) {
  std::vector<UniqueFd> listeners = sockets_of_systemd();
  const Starter starter(settings.ready);
  std::vector<std::string> passed(listeners.size());
  std::transform(listeners.begin(), listeners.end(), passed.begin(),
                 [](const UniqueFd& fd) { return address_of(fd.get()); });
  if (std::find(passed.begin(), passed.end(), "") != passed.end()) {
    return starter.complain(kFailed,
                            "LISTEN_FDS: not all of these are UNIX sockets that listen (ListenSequentialPacket)");
  }
  const size_t files =
      raise_file_limit();         // each client takes some, and steering without privileges (broker/steering/slots.h)
  std::signal(SIGPIPE, SIG_IGN);  // whoever has started it need not wait for its word
  Policy policy;
  policy.most_clients = most_clients(files);
  policy.enough_to_close = enough_to_close(files);
  policy.owner = geteuid();
  policy.memory_between_users = settings.memory_between_users;
  if (!settings.group.empty()) {
    const group* const found = getgrnam(settings.group.c_str());
    if (found == nullptr)
      return starter.complain(kWrongUsage, concat("--group ", settings.group, ": there is no such group"));
    policy.group = found->gr_gid;
  }
  if (!settings.user.empty()) {
    const passwd* const found = getpwnam(settings.user.c_str());
    if (found == nullptr)
      return starter.complain(kWrongUsage, concat("--user ", settings.user, ": there is no such user"));
    policy.owner = found->pw_uid;
  }
  std::optional<io::FaultSpec> faults;
  if (!settings.faults.empty()) {
    const auto parsed = io::parse_fault_spec(settings.faults);
    if (const auto* const problem = std::get_if<std::string>(&parsed)) {
      return starter.complain(kWrongUsage, concat("--faults: ", *problem));
    }
    faults = std::get<io::FaultSpec>(parsed);
  }
  if (settings.linger >= 0) policy.linger = std::chrono::milliseconds(static_cast<int64_t>(settings.linger * 1000));
  const UniqueFd stop(stop_signals());
  std::vector<std::string> addresses = settings.addresses;
  addresses.insert(addresses.begin(), address_of_user(geteuid()));
  for (const std::string& address : passed) std::erase(addresses, address);
  for (const std::string& address : addresses) {
    UniqueFd listener;
    if (const int error = listen_or_wait(address, listener); error != 0) {
      const Refusal refusal = why_not_listening(address, error);
      return starter.complain(refusal.code, refusal.text);
    }
    listeners.push_back(std::move(listener));
  }
  auto steering = open_steering();
  if (const auto* const error = std::get_if<io::IoError>(&steering)) return starter.complain(kFailed, error->text());
  const Steering& best = *std::get<std::unique_ptr<Steering>>(steering);
  if (policy.group && !best.isolates()) {
    return starter.complain(
        kFailed, concat("--group ", settings.group, ": users cannot be kept apart here: ", best.isolation_obstacle()));
  }
  if (settings.verbose && !best.isolates()) {
    std::fputs(concat("uroced: serves nobody but user ", policy.owner, ": ", best.isolation_obstacle(), "\n").c_str(),
               stderr);
  }
  Server server(std::move(listeners), std::move(std::get<std::unique_ptr<Steering>>(steering)), policy,
                settings.verbose);
  manage_connections(server, faults, settings.verbose);
  starter.ready();
  server.run(stop.get());
  io::CaptureServer::finish();
  io::CaptureHub::instance().finish();
  for (const std::string& address : settings.addresses) remove_path(address);
  return 0;
}

int main(int argc, char** argv) {
  CLI::App app{"The broker of a host: shares UDP port 4791 among the programs that run with uroce"};
  app.name("uroced");
  app.set_version_flag("--version", "uroced " UROCE_VERSION);
  Settings settings;
  app.add_option("--group", settings.group,
                 "Of other users serve only the members of this group; default: everybody, if users can be kept apart")
      ->option_text("NAME");
  app.add_option("--user", settings.user, "Serve this user, instead of the one who started it")->option_text("NAME");
  app.add_flag(
      "--memory-between-users", settings.memory_between_users,
      "Let programs of different users exchange packets by memory as well, not by the network: faster, and one "
      "can make the other wait (SECURITY.md)");
  app.add_option("--socket", settings.addresses, "Listen here as well, e.g. for containers: a path, or @NAME")
      ->option_text("ADDRESS");
  app.add_option("--linger", settings.linger, "End so long after the last program has left; default: stay")
      ->check(usage::number_from(0, 1e6))
      ->option_text("SECONDS");
  app.add_option("--ready", settings.ready, "Write a line to this descriptor when it serves, or why it does not")
      ->check(usage::number_from(0, 1 << 20))
      ->option_text("FD");
  app.add_option("--faults", settings.faults,
                 "For tests: lose, duplicate and delay what the connection manager sends and gets, as uroce run does")
      ->envname("UROCE_FAULTS")
      ->option_text("SPEC");
  app.add_flag("--verbose", settings.verbose, "Say on stderr what programs come, go and get");
  app.footer(
      "Examples:\n  sudo uroced --group rdma\n  uroced --verbose\n\n"
      "`uroce run` starts it by itself where none runs. Exit code: 0 asked to end, 1 failed, 2 wrong usage, 3 one runs "
      "already.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      std::fputs(concat("uroced: ", usage::describe(error), "; see uroced --help\n").c_str(), stderr);
      return kWrongUsage;
    }
    app.exit(error);
    return 0;
  }
  return serve(settings);
}

}  // namespace
}  // namespace uroce::broker

int main(int argc, char** argv) {
  return uroce::broker::main(argc, argv);
}
