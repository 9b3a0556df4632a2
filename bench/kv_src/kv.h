// SPDX-License-Identifier: BSD-2-Clause
// A small key-value server and its load generator: one thread each, asleep in epoll, over TCP or over verbs in the way
// that real ones take. What the two sides say to each other, and the connections that carry it. Errors are thrown.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/epoll.h>
#include <unordered_map>

#include "base/unique_fd.h"

namespace uroce::kv {

enum class Over : uint8_t { kTcp, kVerbs, kDatagrams };

struct Options {
  bool server = false;
  Over over = Over::kTcp;
  std::string device;  // verbs
  std::string peer;    // the server's IPv4 address
  uint16_t port = 7472;
  bool channel_each = false;   // verbs: a completion channel for each connection, as Valkey has it; else one for all
  uint32_t value_bytes = 64;   // at most; a client's are of this size; datagrams: either side is told
  uint32_t connections = 1;    // of a client
  uint32_t window = 1;         // requests under way on each; the server allows kMostWindow
  uint32_t gets = 90;          // percent; the others are SETs
  uint32_t requests_each = 0;  // after so many a connection ends and another one begins; 0: never
  bool checks_all = false;     // a client: all bytes of each value
  double seconds = 1;
};

constexpr uint32_t kMostValue = 1 << 20, kMostWindow = 64;

enum class Op : uint32_t { kGet, kSet, kValue, kMissing, kStored };

// In front of `bytes` of value, by the byte order of the host.
struct Message {
  Op op;
  uint32_t bytes;
  uint64_t sequence;  // an answer has that of its request
  uint64_t key;
};

// The other side has left, or says what it must not: the connection is over.
struct Ended : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Descriptors and what is to be done when they are ready.
class Loop {
 public:
  Loop();
  using Handler = std::function<void(uint32_t events)>;
  void add(int fd, uint32_t events, Handler handler);
  void change(int fd, uint32_t events);
  void remove(int fd);
  // Waits until one is ready, `ms` at most, and calls the handlers of all that are.
  void turn(int ms);

 private:
  UniqueFd set_;
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
};

class Connection {
 public:
  using OnMessage = std::function<void(const Message& message, std::span<const uint8_t> value)>;
  using OnEnd = std::function<void(const std::string& why)>;  // the connection may be destroyed in it
  virtual ~Connection() = default;
  // No more than the window that the two have agreed on are under way.
  virtual void send(const Message& message, std::span<const uint8_t> value) = 0;
};

// Makes connections out of connected TCP sockets. They are in the loop; on_message and on_end are called from there.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Connection> make(UniqueFd socket, Connection::OnMessage on_message,
                                           Connection::OnEnd on_end) = 0;
};
std::unique_ptr<Transport> over_tcp(Loop& loop);
std::unique_ptr<Transport> over_verbs(Loop& loop, const Options& options);

void serve(const Options& options);
void load(const Options& options);
void exchange_datagrams(const Options& options);  // either side

}  // namespace uroce::kv
