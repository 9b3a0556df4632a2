// SPDX-License-Identifier: BSD-2-Clause
#include "cm/codec.h"

#include <algorithm>
#include <cassert>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

namespace uroce::cm {

// What fields() calls for each field, in the same order on both sides: Writer appends, Reader takes and checks.
class Writer {
 public:
  template <class T>
  void number(const T& value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    append(&value, sizeof(value));
  }
  template <class T>
  void number(const T& value, T /*most*/) {
    number(value);
  }
  template <class Enum>
  void choice(const Enum& value, Enum /*first*/, Enum /*last*/) {
    number(value);
  }
  template <class Enum, size_t size>
  void one_of(const Enum& value, const std::array<Enum, size>& /*values*/) {
    number(value);
  }
  void flag(const bool& value) { number(static_cast<uint8_t>(value ? 1 : 0)); }
  void number24(const wire::Qpn& value) { number(value.value()); }
  void number24(const wire::Psn& value) { number(value.value()); }
  void address(const wire::IpAddress& value) { append(value.bytes.data(), value.bytes.size()); }
  template <size_t most>
  void bytes(const BoundedBytes<most>& value) {
    number(static_cast<uint16_t>(value.size()));
    append(value.bytes().data(), value.size());
  }
  // Whether the caller is to go on with its value.
  template <class T>
  bool present(const std::optional<T>& value) {
    flag(value.has_value());
    return value.has_value();
  }
  const Encoded& result() const { return result_; }

 private:
  void append(const void* from, size_t size) {
    assert(result_.size_ + size <= Encoded::kMost);
    if (size > 0) std::memcpy(result_.bytes_.data() + result_.size_, from, size);
    result_.size_ += size;
  }
  Encoded result_;
};

namespace {

// As long as nothing has failed the values are those of the bytes; whoever reads looks at good() at the end.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : left_(bytes) {}

  template <class T>
  void number(T& value) {
    std::array<uint8_t, sizeof(T)> raw{};
    take(raw);
    std::memcpy(&value, raw.data(), sizeof(T));
  }
  template <class T>
  void number(T& value, T most) {
    number(value);
    require(value >= T{} && value <= most);
  }
  template <class Enum>
  void choice(Enum& value, Enum first, Enum last) {
    number(value);
    require(value >= first && value <= last);
  }
  template <class Enum, size_t size>
  void one_of(Enum& value, const std::array<Enum, size>& values) {
    number(value);
    require(std::find(values.begin(), values.end(), value) != values.end());
  }
  void flag(bool& value) {
    uint8_t byte = 0;
    number(byte, uint8_t{1});
    value = byte == 1;
  }
  template <class T>
  void number24(T& value) {
    uint32_t wide = 0;
    number(wide, wire::kMask24);
    value = T(wide & wire::kMask24);
  }
  void address(wire::IpAddress& value) { take(value.bytes); }
  template <size_t most>
  void bytes(BoundedBytes<most>& value) {
    uint16_t size = 0;
    number(size, static_cast<uint16_t>(most));
    std::array<uint8_t, most> raw{};
    const std::span<uint8_t> some = std::span(raw).first(good_ ? size : 0);
    take(some);
    value = BoundedBytes<most>(some);
  }
  template <class T>
  bool present(std::optional<T>& value) {
    bool is_there = false;
    flag(is_there);
    if (is_there) value.emplace();
    return is_there;
  }
  void require(bool condition) { good_ = good_ && condition; }
  bool good() const { return good_ && left_.empty(); }

 private:
  void take(std::span<uint8_t> out) {
    require(out.size() <= left_.size());
    if (!good_) return std::fill(out.begin(), out.end(), uint8_t{0}), void();
    std::copy_n(left_.begin(), out.size(), out.begin());
    left_ = left_.subspan(out.size());
  }
  std::span<const uint8_t> left_;
  bool good_ = true;
};

// A value that is read, or one that is written.
template <class T, class Value>
concept Is = std::same_as<std::remove_const_t<T>, Value>;

template <class C, Is<wire::CmaHeader> T>
void fields(C& c, T& names) {
  c.flag(names.v4);
  c.number(names.source_port);
  c.address(names.source);
  c.address(names.destination);
}

template <class C, Is<Path> T>
void fields(C& c, T& path) {
  c.number(path.netdev);
  c.number(path.ca_guid);
  c.address(path.local);
  c.address(path.remote);
  c.number(path.flow_label);
  c.number(path.traffic_class);
  c.number(path.hop_limit);
  c.number(path.mtu);
  c.number(path.rate);
  c.number(path.sl);
  c.number(path.ack_timeout);
}

template <class C, Is<Parameters> T>
void fields(C& c, T& parameters) {
  c.number24(parameters.qpn);
  c.number(parameters.qkey);
  c.number(parameters.responder_resources);
  c.number(parameters.initiator_depth);
  c.flag(parameters.flow_control);
  c.number(parameters.retry_count);
  c.number(parameters.rnr_retry);
  c.flag(parameters.srq);
}

template <class C, Is<Ece> T>
void fields(C& c, T& ece) {
  c.number(ece.vendor_id);
  c.number(ece.options);
}

template <class C, Is<QpAttributes> T>
void fields(C& c, T& qp) {
  fields(c, qp.path);
  c.number(qp.remote_guid);
  c.number24(qp.dest_qpn);
  c.number(qp.qkey);
  c.number24(qp.rq_psn);
  c.number24(qp.sq_psn);
  c.number(qp.max_rd_atomic);
  c.number(qp.max_dest_rd_atomic);
  c.number(qp.min_rnr_timer);
  c.number(qp.retry_count);
  c.number(qp.rnr_retry);
}

template <class C, class T>
void transport(C& c, T& value) {
  c.choice(value, Transport::kRc, Transport::kXrc);
}

// --- requests --------------------------------------------------------------------------------------------------------

template <class C, Is<BindRequest> T>
void fields(C& c, T& request) {
  constexpr std::array kSpaces{wire::PortSpace::kIpoib, wire::PortSpace::kTcp, wire::PortSpace::kUdp,
                               wire::PortSpace::kIb};
  auto& bind = request.bind;
  c.one_of(bind.space, kSpaces);
  c.address(bind.address);
  c.flag(bind.v4);
  c.flag(bind.v6_only);
  c.number(bind.netdev);
  c.number(bind.port);
  c.flag(bind.reuse_address);
  c.flag(bind.privileged);
}

template <class C, Is<ReuseRequest> T>
void fields(C& c, T& request) {
  c.number(request.binding);
  c.flag(request.reuse);
}

template <class C, Is<ReleaseRequest> T>
void fields(C& c, T& request) {
  c.number(request.binding);
}

template <class C, Is<ListenRequest> T>
void fields(C& c, T& request) {
  auto& listen = request.listen;
  c.number(request.binding);
  c.number(listen.service);
  c.number(listen.service_mask);
  c.flag(listen.ip);
  c.flag(listen.datagrams);
  c.address(listen.address);
  c.flag(listen.takes_v4);
  c.flag(listen.takes_v6);
  c.number(listen.netdev);
  c.number(listen.backlog);
}

template <class C, Is<ConnectRequest> T>
void fields(C& c, T& request) {
  auto& connect = request.connect;
  transport(c, connect.transport);
  c.number(connect.service);
  if (c.present(connect.names)) fields(c, *connect.names);
  fields(c, connect.path);
  fields(c, connect.parameters);
  fields(c, connect.ece);
  c.bytes(connect.data);
}

template <class C, class T>
requires Is<T, TakeRequest> || Is<T, EstablishRequest> || Is<T, DestroyRequest>
void fields(C& c, T& request) {
  c.number(request.id);
}

template <class C, class T>
requires Is<T, ConfirmRequest> || Is<T, DisconnectRequest>
void fields(C& c, T& request) {
  c.number(request.id);
  c.bytes(request.data);
}

template <class C, Is<AcceptRequest> T>
void fields(C& c, T& request) {
  c.number(request.id);
  fields(c, request.accept.parameters);
  fields(c, request.accept.ece);
  c.number(request.accept.ack_delay);
  c.bytes(request.accept.data);
}

template <class C, Is<RejectRequest> T>
void fields(C& c, T& request) {
  c.number(request.id);
  c.choice(request.reject.reason, wire::RejReason::kNoQp, wire::RejReason::kVendorOption);
  c.choice(request.reject.sidr_status, wire::SidrStatus::kOk, wire::SidrStatus::kVersion);
  c.bytes(request.reject.additional_info);
  c.bytes(request.reject.data);
}

template <class C, Is<AdoptRequest> T>
void fields(C& c, T& request) {
  c.number(request.id);
  c.number(request.remote_id);
  transport(c, request.transport);
  c.number(request.service);
  c.number24(request.local_qpn);
  fields(c, request.qp);
}

// --- answers ---------------------------------------------------------------------------------------------------------

template <class C, Is<Reply> T>
void fields(C& c, T& reply) {
  constexpr int kLargestErrno = 4095;
  c.number(reply.error, kLargestErrno);
  c.number(reply.id);
  c.number(reply.binding);
  c.number(reply.port);
}

template <class C, Is<Event> T>
void fields(C& c, T& event) {
  c.choice(event.kind, EventKind::kConnectRequest, EventKind::kTimewaitExit);
  c.number(event.id);
  c.number(event.listener);
  c.number(event.remote_id);
  c.number(event.status);
  transport(c, event.transport);
  c.number(event.service);
  if (c.present(event.names)) fields(c, *event.names);
  fields(c, event.parameters);
  fields(c, event.ece);
  fields(c, event.qp);
  c.bytes(event.data);
}

// --- whole messages: the number of the alternative, and its fields --------------------------------------------------

template <class Variant>
Encoded encode_one_of(const Variant& variant) {
  Writer writer;
  writer.number(static_cast<uint8_t>(variant.index()));
  std::visit([&writer](const auto& value) { fields(writer, value); }, variant);
  return writer.result();
}

template <class Variant, size_t index = 0>
std::optional<Variant> read(size_t which, Reader& reader) {
  if constexpr (index == std::variant_size_v<Variant>) {
    return std::nullopt;
  } else {
    if (which != index) return read<Variant, index + 1>(which, reader);
    Variant variant(std::in_place_index<index>);
    fields(reader, std::get<index>(variant));
    return reader.good() ? std::optional(std::move(variant)) : std::nullopt;
  }
}

template <class Variant>
std::optional<Variant> decode_one_of(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return std::nullopt;
  Reader reader(bytes.subspan(1));
  return read<Variant>(bytes.front(), reader);
}

}  // namespace

Encoded encode(const Request& request) {
  return encode_one_of(request);
}
Encoded encode(const Reply& reply) {
  return encode_one_of(Answer(reply));
}
Encoded encode(const Event& event) {
  return encode_one_of(Answer(event));
}

std::optional<Request> decode_request(std::span<const uint8_t> bytes) {
  return decode_one_of<Request>(bytes);
}
std::optional<Answer> decode_answer(std::span<const uint8_t> bytes) {
  return decode_one_of<Answer>(bytes);
}

}  // namespace uroce::cm
