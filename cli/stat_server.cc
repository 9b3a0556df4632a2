// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat_server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

#include "cli/complaint.h"
#include "cli/exit_codes.h"
#include "cli/stat_formats.h"
#include "cli/stat_looks.h"

namespace uroce::cli {
namespace {

// A look at a host with programs that do not answer takes as many seconds as there are of them. The daemon may have a
// few connections more, which end.
constexpr unsigned kMostConnections = 16, kDaemonsConnections = 2 * kMostConnections, kIdleSeconds = 10;
constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kPlainText = "text/plain; charset=utf-8";
constexpr const char* kUp =
    "# HELP uroce_up Whether there is a broker to ask (1) or not (0).\n# TYPE uroce_up gauge\nuroce_up ";

// When there are too many connections, the one that has asked for nothing for the longest time makes room: idle ones do
// not keep others out. Used by the daemon's only thread.
class Connections {
 public:
  void opened(MHD_Connection* connection) {
    const int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    open_[connection] = {fd, ++turns_};
    if (open_.size() <= kMostConnections) return;
    const auto idle = std::min_element(open_.begin(), open_.end(),
                                       [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; });
    shutdown(idle->second.fd, SHUT_RDWR);  // the daemon sees its end, and closes it
    open_.erase(idle);
  }
  void asks(MHD_Connection* connection) {
    if (const auto found = open_.find(connection); found != open_.end()) found->second.asked = ++turns_;
  }
  void closed(MHD_Connection* connection) { open_.erase(connection); }

 private:
  struct Open {
    int fd = -1;
    uint64_t asked = 0;  // in which turn last
  };
  std::map<MHD_Connection*, Open> open_;
  uint64_t turns_ = 0;
};

struct Server {
  Looks looks;
  Connections connections{};
};

void on_connection(void* server, MHD_Connection* connection, void**, MHD_ConnectionNotificationCode what) try {
  Connections& connections = static_cast<Server*>(server)->connections;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) connections.opened(connection);
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) connections.closed(connection);
} catch (const std::bad_alloc&) {
  // It counts for the daemon's bound alone.
}

MHD_Result answer(MHD_Connection* connection, unsigned status, const char* type, std::string text) {
  const std::unique_ptr<MHD_Response, decltype(&MHD_destroy_response)> response(
      MHD_create_response_from_buffer(text.size(), text.data(), MHD_RESPMEM_MUST_COPY), MHD_destroy_response);
  if (!response) return MHD_NO;
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, type);
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  return MHD_queue_response(connection, status, response.get());
}

// A broker that has ended is no error: the next one is found when somebody asks again.
std::string metrics(Looks& looks) {
  if (looks.look()) return fmt::format("{}0\n", kUp);
  return fmt::format("{}1\n{}", kUp, stat_prometheus(looks.figures(0)));
}

// Called by the daemon's only thread, for each request more than once: when its header is there, then for the body,
// which is ignored.
MHD_Result on_request(void* server, MHD_Connection* connection, const char* url, const char* method, const char*,
                      const char*, size_t* body_bytes, void** seen) try {
  static char mark;
  Looks& looks = static_cast<Server*>(server)->looks;
  if (*seen != &mark) {
    *seen = &mark;
    static_cast<Server*>(server)->connections.asks(connection);
    return MHD_YES;
  }
  if (*body_bytes != 0) {
    *body_bytes = 0;
    return MHD_YES;
  }
  const std::string_view asked(method), path(url);
  if (asked != MHD_HTTP_METHOD_GET && asked != MHD_HTTP_METHOD_HEAD)
    return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, kPlainText, "only GET\n");
  if (path == "/metrics") return answer(connection, MHD_HTTP_OK, kTextFormat, metrics(looks));
  if (path == "/") return answer(connection, MHD_HTTP_OK, kPlainText, "uroce stat: see /metrics\n");
  return answer(connection, MHD_HTTP_NOT_FOUND, kPlainText, "not found; see /metrics\n");
} catch (const std::bad_alloc&) {
  return MHD_NO;  // ends the connection
}

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

std::optional<ListenAddress> parse_listen_address(std::string_view text) {
  std::string_view host = "127.0.0.1", port_text = text;
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port_text = text.substr(colon + 1);
    if (host.empty()) host = "[::]";
  }
  uint16_t port = 0;
  const char* const end = port_text.data() + port_text.size();
  const auto [rest, error] = std::from_chars(port_text.data(), end, port);
  if (error != std::errc() || rest != end || port == 0) return std::nullopt;
  ListenAddress listen;
  if (host.front() == '[' && host.back() == ']') {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(listen.address);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    listen.size = sizeof(v6);
    if (inet_pton(AF_INET6, std::string(host.substr(1, host.size() - 2)).c_str(), &v6.sin6_addr) != 1)
      return std::nullopt;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(listen.address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    listen.size = sizeof(v4);
    if (inet_pton(AF_INET, std::string(host).c_str(), &v4.sin_addr) != 1) return std::nullopt;
  }
  return listen;
}

int serve_stat(const StatOptions& options) {
  const auto listen = parse_listen_address(options.serve);
  if (!listen)
    return complain(kExitUsage,
                    fmt::format("--serve '{}': neither PORT nor ADDRESS:PORT nor [IPV6]:PORT", options.serve));
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before there is a thread that would get them
  Server server{Looks(options)};
  unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD;
  if (listen->address.ss_family == AF_INET6) flags |= MHD_USE_DUAL_STACK;
  errno = 0;
  const std::unique_ptr<MHD_Daemon, decltype(&MHD_stop_daemon)> daemon(
      MHD_start_daemon(flags, 0, nullptr, nullptr, &on_request, &server, MHD_OPTION_SOCK_ADDR, &listen->address,
                       MHD_OPTION_CONNECTION_LIMIT, kDaemonsConnections, MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds,
                       MHD_OPTION_NOTIFY_CONNECTION, &on_connection, &server, MHD_OPTION_END),
      MHD_stop_daemon);
  if (!daemon)
    return complain(kExitFailed, fmt::format("cannot listen at {}: {}", options.serve, std::strerror(errno)));
  complain(kExitOk, fmt::format("serving /metrics at {}; Ctrl-C ends it", options.serve));
  int signal = 0;
  sigwait(&signals, &signal);
  return kExitOk;
}

}  // namespace uroce::cli
