// SPDX-License-Identifier: BSD-2-Clause
// ucx_exchange: one connection of UCX to the other host, and what all parts of the test share: waiting, data that is
// accounted for, complaints.
#pragma once

#include <functional>
#include <string>
#include <ucp/api/ucp.h>
#include <vector>

#include "content.h"
#include "out_of_band.h"

namespace exchange {

struct Options {
  bool server = true;
  std::string address;  // of the server
  uint16_t port = 13500;
  uint64_t seed = 1;
  size_t min_size = 1;  // bytes, of messages
  size_t max_size = size_t{4} << 20;
  unsigned connections = 1;  // one after the other
  bool sleep = false;        // on the worker's file descriptor, instead of polling
  bool by_address = false;   // UCX connects to an IP address and port by itself (rdma_cm, TCP)
  unsigned timeout = 120;    // seconds that a wait may take
  std::string parts = "tsmpga";
  char plant = 0;  // part in which this side corrupts something that it sends
};

struct Totals {
  uint64_t operations = 0;
  uint64_t bytes = 0;     // received and verified
  uint64_t sent = 0;      // sums of hashes over all data: what one side has sent the other one must have received,
  uint64_t received = 0;  // no more and no less
};

class Session {
 public:
  Session(const Options& options, OutOfBand& out_of_band);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Connects, and disconnects: the client first, then the server.
  void open();
  void close();

  unsigned side() const { return options.server ? 0 : 1; }
  unsigned peer_side() const { return 1 - side(); }

  // Data to send, which is entered in the books; corrupt if this is what was planted.
  std::vector<uint8_t> outgoing(uint64_t name, size_t size);
  // Compares every byte of what was received and enters it in the books. Ends the program when one is wrong.
  void verify(const char* where, uint64_t name, const uint8_t* data, size_t size);
  // True once per program, in the part where something was planted, at an operation that the seed chooses.
  bool plant_now(Part part);

  // Makes progress until the condition holds. Ends the program when the other one has ended or it takes too long.
  void progress_until(const char* where, const std::function<bool()>& condition);
  // Until the operation has ended, well. Takes the request.
  void wait(const char* where, ucs_status_ptr_t request);
  void wait_all(const char* where, std::vector<ucs_status_ptr_t>& requests);
  void require(const char* where, ucs_status_t status);
  [[noreturn]] void fail(const char* where, const std::string& why) const;

  // Out of band, while progress is made: tells the other one and returns what it tells.
  Blob exchange(const Blob& blob);
  void barrier();
  void flush_endpoint();
  void flush_worker();

  const Options& options;
  Totals totals;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_ep_h endpoint = nullptr;

 private:
  void create_worker();
  void connect_to_worker();
  // connect.cc
  void listen();
  void connect_to_address();
  void accept();
  void close_endpoint();
  static void on_request(ucp_conn_request_h request, void* session);
  static void on_error(void* session, ucp_ep_h endpoint, ucs_status_t status);
  void sleep_a_while(const char* where);

  OutOfBand& out_of_band_;
  int event_fd_ = -1;
  ucp_listener_h listener_ = nullptr;
  ucp_conn_request_h request_ = nullptr;
  bool peer_has_left_ = false;
  uint64_t plant_countdown_;
};

void exchange_tags(Session& session);
void exchange_streams(Session& session);
void exchange_messages(Session& session);
void exchange_memory(Session& session, Part part);  // put, get
void exchange_atomics(Session& session);

}  // namespace exchange
