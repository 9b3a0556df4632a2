// What a process asks of the connection manager, wherever that is: in the process itself or in the broker of its host.
// Values of bounded size; cm/codec.h makes bytes of them.
#pragma once

#include <variant>

#include "cm/port_spaces.h"
#include "cm/types.h"

namespace uroce::cm {

inline constexpr BindingId kNoBinding{0};

// A port (PortSpaces::bind). Answer: binding, port. `privileged` is not the client's to say.
struct BindRequest {
  Bind bind;
};
struct ReuseRequest {
  BindingId binding = kNoBinding;
  bool reuse = false;
};
struct ReleaseRequest {
  BindingId binding = kNoBinding;
};
// Answer: id. With a binding, `listen.service` is of its port space and port. Without one only service ids of
// RDMA_PS_IB that no port stands for.
struct ListenRequest {
  BindingId binding = kNoBinding;
  Listen listen;
};
// Answer: id.
struct ConnectRequest {
  Connect connect;
};
struct TakeRequest {
  Id id = kNoId;
};
struct AcceptRequest {
  Id id = kNoId;
  Accept accept;
};
struct ConfirmRequest {
  Id id = kNoId;
  PrivateData data;
};
struct RejectRequest {
  Id id = kNoId;
  Reject reject;
};
struct EstablishRequest {
  Id id = kNoId;
};
struct DisconnectRequest {
  Id id = kNoId;
  PrivateData data;
};
struct DestroyRequest {
  Id id = kNoId;
};
// A connection that another broker has made, which is gone: this one knows it from now on. Answer: 0; EEXIST.
struct AdoptRequest {
  Id id = kNoId;
  Id remote_id = kNoId;
  Transport transport = Transport::kRc;
  wire::ServiceId service{};
  wire::Qpn local_qpn{};
  QpAttributes qp;
};

using Request =
    std::variant<BindRequest, ReuseRequest, ReleaseRequest, ListenRequest, ConnectRequest, TakeRequest, AcceptRequest,
                 ConfirmRequest, RejectRequest, EstablishRequest, DisconnectRequest, DestroyRequest, AdoptRequest>;

struct Reply {
  int error = 0;  // errno value
  Id id = kNoId;
  BindingId binding = kNoBinding;
  uint16_t port = 0;
};

}  // namespace uroce::cm
