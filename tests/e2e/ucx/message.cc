// SPDX-License-Identifier: BSD-2-Clause
// Active messages: all sizes, many at once both ways, eager, by rendezvous and as UCX likes; taken in the handler, kept
// and copied later, or received into a buffer.
#include <algorithm>
#include <map>

#include "session.h"

namespace exchange {
namespace {

enum Way : unsigned { kAsUcxLikes, kEager, kRendezvous, kWays };
enum Handler : unsigned { kPlain = 1, kPersistent = 2 };  // ids; the second one keeps the data

struct Header {
  uint64_t name;
  uint64_t check;  // a header has no seed to follow from
};

uint64_t check_of(const Session& session, uint64_t name) {
  return Random(name ^ session.options.seed).next();
}

struct Arrival {
  uint64_t name;
  std::vector<uint8_t> data;
  void* kept = nullptr;  // UCX's own buffer, or what stands for a rendezvous
  bool rendezvous = false;
  ucs_status_ptr_t request = nullptr;
};

struct Inbox {
  Session& session;
  std::map<uint64_t, Arrival> arrivals;
};

ucs_status_t on_message(void* argument, const void* header_bytes, size_t header_length, void* data, size_t length,
                        const ucp_am_recv_param_t* param) {
  Inbox& inbox = *static_cast<Inbox*>(argument);
  Header header{};
  if (header_length != sizeof(header)) inbox.session.fail("active message", "the header's length is wrong");
  const auto* from = static_cast<const uint8_t*>(header_bytes);
  std::copy(from, from + sizeof(header), reinterpret_cast<uint8_t*>(&header));
  if (header.check != check_of(inbox.session, header.name)) inbox.session.fail("active message", "wrong header");
  const auto [at, is_new] = inbox.arrivals.try_emplace(header.name);
  if (!is_new) inbox.session.fail("active message", "a message has come twice");
  Arrival& arrival = at->second;
  arrival.name = header.name;
  arrival.data.resize(length);
  arrival.rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (arrival.rendezvous || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
    arrival.kept = data;
    return UCS_INPROGRESS;
  }
  const auto* bytes = static_cast<const uint8_t*>(data);
  std::copy(bytes, bytes + length, arrival.data.begin());
  return UCS_OK;
}

// Of what was kept: copied from UCX's buffer, or received when it is to come by rendezvous. (Receiving what is in a
// buffer already makes UCX 1.13 lose the buffer, over whatever transport.)
void collect(Session& session, Arrival& arrival) {
  if (arrival.kept == nullptr) return;
  void* kept = arrival.kept;
  arrival.kept = nullptr;
  if (!arrival.rendezvous) {
    const auto* bytes = static_cast<const uint8_t*>(kept);
    std::copy(bytes, bytes + arrival.data.size(), arrival.data.begin());
    ucp_am_data_release(session.worker, kept);
    return;
  }
  ucp_request_param_t param{};
  size_t length = 0;
  param.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO;
  param.recv_info.length = &length;
  arrival.request = ucp_am_recv_data_nbx(session.worker, kept, arrival.data.data(), arrival.data.size(), &param);
  if (UCS_PTR_IS_ERR(arrival.request)) session.require("active message receive", UCS_PTR_STATUS(arrival.request));
}

void set_handlers(Session& session, Inbox* inbox) {
  for (const unsigned id : {kPlain, kPersistent}) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.flags = id == kPersistent ? UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA : UCP_AM_FLAG_WHOLE_MSG;
    param.cb = inbox != nullptr ? on_message : nullptr;
    param.arg = inbox;
    session.require("handler", ucp_worker_set_am_recv_handler(session.worker, &param));
  }
}

ucs_status_ptr_t send(Session& session, Way way, unsigned number, const Header& header, const Blob& data) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  if (way == kEager) param.flags = UCP_AM_SEND_FLAG_EAGER;
  if (way == kRendezvous) param.flags = UCP_AM_SEND_FLAG_RNDV;
  return ucp_am_send_nbx(session.endpoint, number % 2 ? kPersistent : kPlain, &header, sizeof(header), data.data(),
                         data.size(), &param);
}

void exchange_size(Session& session, Inbox& inbox, size_t size, Way way) {
  const unsigned depth = size > (1 << 18) ? 2 : 8;
  std::vector<Blob> data(depth);
  std::vector<Header> headers(depth);
  std::vector<ucs_status_ptr_t> sends;
  for (unsigned number = 0; number < depth; ++number) {
    headers[number].name = name_of(Part::kMessage, way, session.side(), size, number);
    headers[number].check = check_of(session, headers[number].name);
    data[number] = session.outgoing(headers[number].name, size);
    sends.push_back(send(session, way, number, headers[number], data[number]));
  }
  for (unsigned number = 0; number < depth; ++number) {
    const uint64_t name = name_of(Part::kMessage, way, session.peer_side(), size, number);
    session.progress_until("active message", [&] { return inbox.arrivals.contains(name); });
    Arrival& arrival = inbox.arrivals.at(name);
    if (arrival.data.size() != size) session.fail("active message", "a message has the wrong length");
    collect(session, arrival);
  }
  for (unsigned number = 0; number < depth; ++number) {
    session.wait("active message send", sends[number]);
    std::fill(data[number].begin(), data[number].end(), 0xdd);
  }
  for (unsigned number = 0; number < depth; ++number) {
    const uint64_t name = name_of(Part::kMessage, way, session.peer_side(), size, number);
    Arrival& arrival = inbox.arrivals.at(name);
    session.wait("active message receive", arrival.request);
    session.verify("active message", name, arrival.data.data(), size);
    inbox.arrivals.erase(name);
  }
}

}  // namespace

void exchange_messages(Session& session) {
  Inbox inbox{session, {}};
  set_handlers(session, &inbox);
  session.barrier();
  for (const size_t size : sizes_between(session.options.min_size, session.options.max_size)) {
    exchange_size(session, inbox, size, kAsUcxLikes);
    if (size <= (1 << 18)) exchange_size(session, inbox, size, kEager);
    if (size > 0) exchange_size(session, inbox, size, kRendezvous);
  }
  session.flush_endpoint();
  session.barrier();
  if (!inbox.arrivals.empty()) session.fail("active message", "more messages have come than were sent");
  set_handlers(session, nullptr);
}

}  // namespace exchange
