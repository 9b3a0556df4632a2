// SPDX-License-Identifier: BSD-2-Clause
// What a process asks of the connection manager, wherever that is: in the process itself or in the broker of its host.
// Values of bounded size; cm/codec.h makes bytes of them.
#pragma once

#include <variant>

#include "cm/port_spaces.h"
#include "cm/types.h"

namespace uroce::cm {

inline constexpr BindingId kNoBinding{0};

// A port (PortSpaces::bind). Answer: binding, port. `privileged` is not the client's to say. An address is one of this
// host, a loopback address, or unspecified; EADDRNOTAVAIL.
struct BindRequest {
  Bind bind;

  friend bool operator==(const BindRequest&, const BindRequest&) = default;
};
struct ReuseRequest {
  BindingId binding = kNoBinding;
  bool reuse = false;

  friend bool operator==(const ReuseRequest&, const ReuseRequest&) = default;
};
// Ends its listeners.
struct ReleaseRequest {
  BindingId binding = kNoBinding;

  friend bool operator==(const ReleaseRequest&, const ReleaseRequest&) = default;
};
// Answer: id. With a binding, `listen.service` is of its port space and port, and the address the binding's if that has
// one. It takes the IP versions that the binding has. Without a binding only service ids that no port stands for.
struct ListenRequest {
  BindingId binding = kNoBinding;
  Listen listen;

  friend bool operator==(const ListenRequest&, const ListenRequest&) = default;
};
// Answer: id. The path is of an address of this host on its netdev (EADDRNOTAVAIL); the CA GUID need not be said.
struct ConnectRequest {
  Connect connect;

  friend bool operator==(const ConnectRequest&, const ConnectRequest&) = default;
};
struct TakeRequest {
  Id id = kNoId;

  friend bool operator==(const TakeRequest&, const TakeRequest&) = default;
};
struct AcceptRequest {
  Id id = kNoId;
  Accept accept;

  friend bool operator==(const AcceptRequest&, const AcceptRequest&) = default;
};
struct ConfirmRequest {
  Id id = kNoId;
  PrivateData data;

  friend bool operator==(const ConfirmRequest&, const ConfirmRequest&) = default;
};
struct RejectRequest {
  Id id = kNoId;
  Reject reject;

  friend bool operator==(const RejectRequest&, const RejectRequest&) = default;
};
struct EstablishRequest {
  Id id = kNoId;

  friend bool operator==(const EstablishRequest&, const EstablishRequest&) = default;
};
struct DisconnectRequest {
  Id id = kNoId;
  PrivateData data;

  friend bool operator==(const DisconnectRequest&, const DisconnectRequest&) = default;
};
struct DestroyRequest {
  Id id = kNoId;

  friend bool operator==(const DestroyRequest&, const DestroyRequest&) = default;
};
// A connection that another broker has made, which is gone: this one knows it from now on. Answer: 0; EEXIST.
using AdoptRequest = Adopt;

using Request =
    std::variant<BindRequest, ReuseRequest, ReleaseRequest, ListenRequest, ConnectRequest, TakeRequest, AcceptRequest,
                 ConfirmRequest, RejectRequest, EstablishRequest, DisconnectRequest, DestroyRequest, AdoptRequest>;

struct Reply {
  int error = 0;  // errno value
  Id id = kNoId;
  BindingId binding = kNoBinding;
  uint16_t port = 0;

  friend bool operator==(const Reply&, const Reply&) = default;
};

}  // namespace uroce::cm
