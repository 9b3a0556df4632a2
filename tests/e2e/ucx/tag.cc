// SPDX-License-Identifier: BSD-2-Clause
// Tagged messages: all sizes, many at once both ways, eager and by rendezvous, to receivers that are early, or late,
// and that ask against the order of sending; synchronous sends as well.
#include <algorithm>
#include <string>

#include "session.h"

namespace exchange {
namespace {

constexpr uint8_t kUntouched = 0xdd;

enum Way : unsigned { kEarly, kLate, kSynchronous };

struct Receive {
  uint64_t name;
  std::vector<uint8_t> buffer;
  ucs_status_ptr_t request;
};

void post(Session& session, Receive& receive) {
  const ucp_request_param_t param{};
  receive.request = ucp_tag_recv_nbx(session.worker, receive.buffer.data(), receive.buffer.size(), receive.name,
                                     ~uint64_t{0}, &param);
  if (UCS_PTR_IS_ERR(receive.request)) session.require("tag receive", UCS_PTR_STATUS(receive.request));
}

void finish(Session& session, Receive& receive, size_t size) {
  // UCX 1.13 does not tell the length when a receive is complete at once (recv_info stays as it is): the byte behind
  // the message has to do for those.
  ucp_tag_recv_info_t info{receive.name, size};
  if (receive.request != nullptr) {
    ucs_status_t status = UCS_INPROGRESS;
    session.progress_until(
        "tag receive", [&] { return (status = ucp_tag_recv_request_test(receive.request, &info)) != UCS_INPROGRESS; });
    ucp_request_free(receive.request);
    session.require("tag receive", status);
  }
  if (info.length != size || info.sender_tag != receive.name || receive.buffer[size] != kUntouched) {
    session.fail("tag", "a message of " + std::to_string(info.length) + " bytes with tag " +
                            std::to_string(info.sender_tag) + " instead of " + std::to_string(size) +
                            " bytes with tag " + std::to_string(receive.name));
  }
  session.verify("tag", receive.name, receive.buffer.data(), size);
}

void exchange_size(Session& session, size_t size, Way way) {
  const unsigned depth = size > (1 << 18) ? 3 : 16;
  std::vector<Receive> receives(depth);
  const auto post_receives = [&] {
    for (unsigned number = depth; number-- > 0;) {
      receives[number].name = name_of(Part::kTag, way, session.peer_side(), size, number);
      // One byte more: a message that is too long shows.
      receives[number].buffer.assign(size + 1, kUntouched);
      post(session, receives[number]);
    }
  };
  if (way != kLate) post_receives();
  std::vector<std::vector<uint8_t>> data;
  std::vector<ucs_status_ptr_t> sends;
  for (unsigned number = 0; number < depth; ++number) {
    const uint64_t name = name_of(Part::kTag, way, session.side(), size, number);
    data.push_back(session.outgoing(name, size));
    const ucp_request_param_t param{};
    const auto send = way == kSynchronous ? ucp_tag_send_sync_nbx : ucp_tag_send_nbx;
    sends.push_back(send(session.endpoint, data.back().data(), size, name, &param));
  }
  if (way == kLate) {
    session.barrier();
    post_receives();
  }
  for (unsigned number = 0; number < depth; ++number) {
    session.wait("tag send", sends[number]);
    std::fill(data[number].begin(), data[number].end(), kUntouched);  // the buffer is ours again
  }
  for (Receive& receive : receives) finish(session, receive, size);
}

}  // namespace

void exchange_tags(Session& session) {
  for (const size_t size : sizes_between(session.options.min_size, session.options.max_size)) {
    exchange_size(session, size, kEarly);
    exchange_size(session, size, kLate);
    if (size <= (1 << 17)) exchange_size(session, size, kSynchronous);
  }
}

}  // namespace exchange
