// SPDX-License-Identifier: BSD-2-Clause
// Streams, both ways at once: sent in pieces of one choice, received in pieces of another one, whole or as they come,
// and in UCX's own buffers.
#include <algorithm>
#include <deque>

#include "session.h"

namespace exchange {
namespace {

constexpr size_t kSendsInFlight = 8;

class Sender {
 public:
  Sender(Session& session, const std::vector<uint8_t>& data, uint64_t seed)
      : session_(session), data_(data), random_(seed) {}

  void step() {
    while (!requests_.empty() && ucp_request_check_status(requests_.front()) != UCS_INPROGRESS) {
      session_.wait("stream send", requests_.front());
      requests_.pop_front();
    }
    while (at_ < data_.size() && requests_.size() < kSendsInFlight) send_piece();
  }
  bool done() const { return at_ == data_.size() && requests_.empty(); }

 private:
  void send_piece() {
    const size_t limit = size_t{1} << random_.below(20);
    const size_t size = std::min<size_t>(1 + random_.below(limit), data_.size() - at_);
    const ucp_request_param_t param{};
    ucs_status_ptr_t request = ucp_stream_send_nbx(session_.endpoint, data_.data() + at_, size, &param);
    if (UCS_PTR_IS_ERR(request)) session_.require("stream send", UCS_PTR_STATUS(request));
    if (request != nullptr) requests_.push_back(request);
    at_ += size;
    ++session_.totals.operations;
  }

  Session& session_;
  const std::vector<uint8_t>& data_;
  Random random_;
  size_t at_ = 0;
  std::deque<ucs_status_ptr_t> requests_;
};

class Receiver {
 public:
  Receiver(Session& session, size_t size, uint64_t seed) : session_(session), data_(size), random_(seed) {}

  // As far as it goes without progress: who sleeps must not leave anything behind.
  void step() {
    while (!done() && (request_ != nullptr ? finish() : random_.below(4) == 0 ? take() : post())) {
    }
  }
  bool done() const { return at_ == data_.size() && request_ == nullptr; }
  const std::vector<uint8_t>& data() const { return data_; }

 private:
  // These return whether it is worth going on.
  bool post() {
    const size_t limit = size_t{1} << random_.below(20);
    wanted_ = std::min<size_t>(1 + random_.below(limit), data_.size() - at_);
    whole_ = random_.below(2) == 0;
    ucp_request_param_t param{};
    if (whole_) {
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    }
    size_t length = 0;
    request_ = ucp_stream_recv_nbx(session_.endpoint, data_.data() + at_, wanted_, &length, &param);
    if (UCS_PTR_IS_ERR(request_)) session_.require("stream receive", UCS_PTR_STATUS(request_));
    if (request_ == nullptr) advance(length);
    return true;
  }

  bool finish() {
    size_t length = 0;
    const ucs_status_t status = ucp_stream_recv_request_test(request_, &length);
    if (status == UCS_INPROGRESS) return false;
    ucp_request_free(request_);
    request_ = nullptr;
    session_.require("stream receive", status);
    advance(length);
    return true;
  }

  void advance(size_t length) {
    if (length == 0 || length > wanted_ || (whole_ && length != wanted_)) {
      session_.fail("stream", "received " + std::to_string(length) + " bytes of " + std::to_string(wanted_));
    }
    at_ += length;
  }

  // Whatever is there.
  bool take() {
    size_t length = 0;
    ucs_status_ptr_t data = ucp_stream_recv_data_nb(session_.endpoint, &length);
    if (data == nullptr) return true;  // then post
    if (UCS_PTR_IS_ERR(data)) session_.require("stream receive", UCS_PTR_STATUS(data));
    if (length > data_.size() - at_) session_.fail("stream", "more has come than was sent");
    const auto* bytes = static_cast<const uint8_t*>(data);
    std::copy(bytes, bytes + length, data_.begin() + static_cast<std::ptrdiff_t>(at_));
    ucp_stream_data_release(session_.endpoint, data);
    at_ += length;
    return true;
  }

  Session& session_;
  std::vector<uint8_t> data_;
  Random random_;
  size_t at_ = 0;
  size_t wanted_ = 0;
  bool whole_ = false;
  ucs_status_ptr_t request_ = nullptr;
};

}  // namespace

void exchange_streams(Session& session) {
  // Many streams in a row on the one that there is: that planted at a seed's choice needs several.
  for (unsigned number = 0; number < 16; ++number) {
    const size_t size = session.options.max_size / (number % 4 + 1);
    const uint64_t own = name_of(Part::kStream, 0, session.side(), size, number);
    const uint64_t theirs = name_of(Part::kStream, 0, session.peer_side(), size, number);
    const std::vector<uint8_t> data = session.outgoing(own, size);
    Sender sender(session, data, own ^ session.options.seed);
    Receiver receiver(session, size, (theirs ^ session.options.seed) + 1);
    session.progress_until("stream", [&] {
      sender.step();
      receiver.step();
      return sender.done() && receiver.done();
    });
    session.verify("stream", theirs, receiver.data().data(), size);
  }
}

}  // namespace exchange
