// SPDX-License-Identifier: BSD-2-Clause
// ucx_exchange: connections that UCX makes by itself to an IP address and port (--by-address): a listener and endpoints
// of UCP's client-server mode, over rdma_cm or TCP, as UCX_SOCKADDR_TLS_PRIORITY says.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <utility>

#include "session.h"

namespace exchange {
namespace {

sockaddr_in name_of(const std::string& address, uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (!address.empty()) ::inet_pton(AF_INET, address.c_str(), &name.sin_addr);  // it has been connected to
  return name;
}

}  // namespace

void Session::listen() {
  const sockaddr_in name = name_of("", options.port);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&name);
  params.sockaddr.addrlen = sizeof(name);
  params.conn_handler.cb = on_request;
  params.conn_handler.arg = this;
  require("listener", ucp_listener_create(worker, &params, &listener_));
}

void Session::on_request(ucp_conn_request_h request, void* session) {
  auto& self = *static_cast<Session*>(session);
  if (self.request_ != nullptr) self.fail("listener", "a second connection");
  self.request_ = request;
}

// The client closes first, which the server is told.
void Session::on_error(void* session, ucp_ep_h, ucs_status_t status) {
  auto& self = *static_cast<Session*>(session);
  if (!self.options.server || status != UCS_ERR_CONNECTION_RESET) self.require("connection", status);
  self.peer_has_left_ = true;
}

void Session::accept() {
  progress_until("connection request", [this] { return request_ != nullptr; });
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.conn_request = std::exchange(request_, nullptr);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  require("endpoint", ucp_ep_create(worker, &params, &endpoint));
}

void Session::connect_to_address() {
  const sockaddr_in name = name_of(options.address, options.port);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&name);
  params.sockaddr.addrlen = sizeof(name);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  require("endpoint", ucp_ep_create(worker, &params, &endpoint));
}

void Session::close_endpoint() {
  ucp_request_param_t param{};  // flushes first
  if (options.by_address && options.server) {
    progress_until("disconnect", [this] { return peer_has_left_; });
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  }
  wait("disconnect", ucp_ep_close_nbx(endpoint, &param));
  endpoint = nullptr;
  peer_has_left_ = false;
}

}  // namespace exchange
