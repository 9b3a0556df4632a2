// SPDX-License-Identifier: BSD-2-Clause
// A client of the broker's connection manager that says what the input says: requests that make sense, and any bytes.
#pragma once

#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <variant>
#include <vector>

#include "base/passed_descriptors.h"
#include "base/unique_fd.h"
#include "cm/codec.h"
#include "tests/broker/server/fake_view.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"

namespace uroce::fuzz {

class CmClient {
 public:
  CmClient() = default;
  explicit CmClient(UniqueFd socket) : socket_(std::move(socket)) {}
  explicit operator bool() const { return static_cast<bool>(socket_); }

  void say_what_makes_sense(Input& in) { say(cm::encode(request(in)).bytes()); }

  // A request with some bytes changed, longer or shorter.
  void say_anything(Input& in) {
    const cm::Encoded whole = cm::encode(request(in));
    std::vector<uint8_t> bytes(whole.bytes().begin(), whole.bytes().end());
    for (size_t i = in.below(4); i > 0; --i) bytes[in.below(static_cast<uint32_t>(bytes.size()))] = in.byte();
    if (in.below(4) == 3) bytes.resize(in.below(600));
    say(bytes);
  }

  // Everything that has come.
  void listen() {
    std::array<uint8_t, cm::Encoded::kMost> bytes;
    while (socket_) {
      const ReceivedBytes received = receive_with_descriptors(socket_.get(), bytes, {}, MSG_DONTWAIT);
      if (received.error == EAGAIN) return;
      if (received.error != 0 || received.size == 0) return socket_.reset();
      const auto answer = cm::decode_answer(std::span(bytes).first(received.size));
      check(answer.has_value(), "what the broker says is a message");
      if (const auto* const event = std::get_if<cm::Event>(&*answer)) ids_.push_back(event->id);
      if (const auto* const reply = std::get_if<cm::Reply>(&*answer)) take(*reply);
    }
  }

 private:
  void take(const cm::Reply& reply) {
    check(asked_ > 0, "an answer has a request");
    --asked_;
    if (reply.error == 0 && reply.id != cm::kNoId) ids_.push_back(reply.id);
    if (reply.error == 0 && reply.binding != cm::kNoBinding) bindings_.push_back(reply.binding);
  }

  void say(std::span<const uint8_t> bytes) {
    if (socket_ && send_with_descriptors(socket_.get(), bytes, {}) == 0) ++asked_;
  }

  cm::Id some_id(Input& in) const {
    return ids_.empty() ? cm::Id{in.byte()} : ids_[in.below(static_cast<uint32_t>(ids_.size()))];
  }
  cm::BindingId some_binding(Input& in) const {
    return bindings_.empty() ? cm::BindingId{in.byte()} : bindings_[in.below(static_cast<uint32_t>(bindings_.size()))];
  }
  static wire::IpAddress some_address(Input& in) {
    const wire::IpAddress all[] = {broker::fake_v4(0, 1),      broker::fake_v4(1, 1), broker::fake_v6(1),
                                   broker::fake_link_local(1), broker::fake_v4(0, 9), {}};
    return in.one_of(all);
  }
  static cm::Path some_path(Input& in) {
    return {.netdev = in.below(3), .local = some_address(in), .remote = some_address(in), .mtu = uint8_t{3}};
  }

  cm::Request request(Input& in) const {
    const auto port = static_cast<uint16_t>(7000 + in.below(4));
    const wire::ServiceId service = wire::service_id(wire::PortSpace::kTcp, port);
    const wire::Qpn qpn(in.below(1 << 16));
    switch (in.below(13)) {
      case 0:
        return cm::BindRequest{{.address = in.flag() ? some_address(in) : wire::IpAddress{}, .port = port}};
      case 1:
        return cm::ReuseRequest{some_binding(in), in.flag()};
      case 2:
        return cm::ReleaseRequest{some_binding(in)};
      case 3:
        return cm::ListenRequest{some_binding(in), {.service = service, .backlog = in.byte()}};
      case 4: {
        cm::Connect connect{.service = service, .path = some_path(in), .parameters = {.qpn = qpn}};
        connect.names = wire::CmaHeader{.source = connect.path.local, .destination = connect.path.remote};
        return cm::ConnectRequest{connect};
      }
      case 5:
        return cm::TakeRequest{some_id(in)};
      case 6:
        return cm::AcceptRequest{some_id(in), {.parameters = {.qpn = qpn}}};
      case 7:
        return cm::ConfirmRequest{some_id(in), {}};
      case 8:
        return cm::RejectRequest{some_id(in), {}};
      case 9:
        return cm::EstablishRequest{some_id(in)};
      case 10:
        return cm::DisconnectRequest{some_id(in), {}};
      case 11:
        return cm::DestroyRequest{some_id(in)};
      default:
        return cm::AdoptRequest{
            .id = some_id(in), .remote_id = cm::Id{in.byte()}, .local_qpn = qpn, .qp = {.path = some_path(in)}};
    }
  }

  UniqueFd socket_;
  std::vector<cm::Id> ids_;
  std::vector<cm::BindingId> bindings_;
  size_t asked_ = 0;
};

}  // namespace uroce::fuzz
