// SPDX-License-Identifier: BSD-2-Clause
// What the two sides of events_bench have in common: what is exchanged, and the ways to exchange and to wait for it.
// A side is one thread with any number of connections. Errors are thrown.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace uroce::events {

enum class Over : uint8_t { kVerbs, kTcp, kUnix };
enum class Wait : uint8_t {
  kBlocking,  // in ibv_get_cq_event, in read() of the one connection
  kEpoll,     // for a descriptor that does not block: a completion channel's, or the connections'
  kPolling,   // does not wait
};
enum class Request : uint8_t { kSend, kWriteWithImm, kRead };  // verbs

struct Options {
  bool server = false;
  Over over = Over::kVerbs;
  Wait wait = Wait::kBlocking;
  Request request = Request::kSend;
  uint32_t request_bytes = 2, response_bytes = 2;  // of a READ what is read; sockets answer a short request then
  uint32_t connections = 1;
  std::string descriptor_wait = "epoll";  // verbs: how to wait for the descriptor (descriptor_wait.h)
  uint32_t window = 1;                    // requests under way on each connection
  double seconds = 1;
  uint32_t pause_us = 0;  // client: before each request
  std::string device;     // verbs
  std::string address;    // of the server: IPv4, or a path
};

// A message of the other side has come on the connection.
using OnMessage = std::function<void(uint32_t connection)>;

class Exchange {
 public:
  virtual ~Exchange() = default;
  // A request if this is the client, else a response.
  virtual void send(uint32_t connection) = 0;
  // Waits until there is something, and hands out all that there is. May return without a message.
  virtual void wait(const OnMessage& on_message) = 0;
};

// `control`: a connected socket to the other side, by which the sides tell each other what they need to know.
std::unique_ptr<Exchange> exchange_over_verbs(const Options& options, int control);
// `connect`: makes connected sockets, one for each connection.
std::unique_ptr<Exchange> exchange_over_sockets(const Options& options, const std::function<int()>& connect);

}  // namespace uroce::events
