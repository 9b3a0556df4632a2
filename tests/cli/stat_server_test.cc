// SPDX-License-Identifier: BSD-2-Clause
// Where `uroce stat --serve` listens, and who keeps it from answering: nobody. tests/e2e/stat.py has what it answers.
#include "cli/stat_server.h"

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/unique_fd.h"
#include "cli/stat.h"

namespace uroce::cli {
namespace {

// As it would be given, with the port behind a space; "-": it is no address.
std::string parsed(std::string_view text) {
  const auto listen = parse_listen_address(text);
  if (!listen) return "-";
  char host[INET6_ADDRSTRLEN];
  if (listen->address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(listen->address);
    EXPECT_EQ(listen->size, sizeof(v6));
    return std::string(inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host)) + " " +
           std::to_string(ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(listen->address);
  EXPECT_EQ(listen->size, sizeof(v4));
  return std::string(inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host)) + " " + std::to_string(ntohs(v4.sin_port));
}

TEST(ListenAddress, WhatIsOne) {
  EXPECT_EQ(parsed("9791"), "127.0.0.1 9791");
  EXPECT_EQ(parsed("192.0.2.1:65535"), "192.0.2.1 65535");
  EXPECT_EQ(parsed("[::1]:1"), "::1 1");
  EXPECT_EQ(parsed(":9791"), ":: 9791");
}

TEST(ListenAddress, WhatIsNone) {
  for (const char* text :
       {"", ":", "0", "65536", "-1", "9791x", " 9791", "host:9791", "192.0.2.1", "192.0.2.1:", "::1:9791", "[::1]",
        "[::1:9791", "[]:9791", "[192.0.2.1]:9791", "192.0.2.1:9791:1", "[:1"}) {
    EXPECT_EQ(parsed(text), "-") << text;
  }
}

uint16_t free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(probe.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

UniqueFd connect_to(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) client.reset();
  return client;
}

// The status line, or what it is that there is none.
std::string ask(int client) {
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  if (send(client, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0) return std::strerror(errno);
  pollfd readable{client, POLLIN, 0};
  if (poll(&readable, 1, 60'000) != 1) return "no answer";
  char text[512];
  const ssize_t size = recv(client, text, sizeof text, 0);
  if (size <= 0) return size == 0 ? "closed" : std::strerror(errno);
  return {text, std::string_view(text, static_cast<size_t>(size)).find('\r')};
}

// Far more of them than there is room for, and all of them before anybody asks.
TEST(StatServer, IdleConnectionsKeepNobodyOut) {
  const uint16_t port = free_port();
  const pid_t server = fork();
  if (server == 0) {
    freopen("/dev/null", "w", stdout);
    StatOptions options;
    options.broker = "@uroced-of-nobody";
    options.serve = std::to_string(port);
    _exit(serve_stat(options));
  }
  UniqueFd first;
  for (int i = 0; i < 600 && !first; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it listens
    first = connect_to(port);
  }
  ASSERT_TRUE(first);
  EXPECT_EQ(ask(first.get()), "HTTP/1.1 200 OK");
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(connect_to(port));  // minutes, if each had its time
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(connect_to(port).get()), "HTTP/1.1 200 OK");
  kill(server, SIGTERM);
  int status = -1;
  EXPECT_EQ(waitpid(server, &status, 0), server);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace uroce::cli
