// SPDX-License-Identifier: BSD-2-Clause
#include <cstdio>
#include <map>
#include <rdma/rdma_cma.h>

#include "tests/e2e/rdma_cm/endpoint.h"
#include "tests/e2e/rdma_cm/scenario.h"
#include "tests/e2e/rdma_cm/sides.h"

namespace uroce::cm_exchange {
namespace {

class Server {
 public:
  Server(const std::string& address, const std::string& port) {
    streams_ = listen(address, port, RDMA_PS_TCP);
    datagrams_ = listen(address, port, RDMA_PS_UDP);
  }

  void run() {
    while (!quit_ || !connections_.empty()) handle(channel_.next(std::chrono::seconds(300)));
  }

 private:
  struct Connection {
    Id id;
    Scenario scenario;
    std::unique_ptr<Memory> memory{};
  };

  Id listen(const std::string& address, const std::string& port, rdma_port_space space) {
    rdma_cm_id* made = nullptr;
    if (rdma_create_id(channel_.get(), &made, nullptr, space) != 0) fail_errno("rdma_create_id");
    Id id(made);
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = space;
    if (rdma_getaddrinfo(address.empty() ? nullptr : address.c_str(), port.c_str(), &hints, &found) != 0) {
      fail_errno("rdma_getaddrinfo");
    }
    const int bound = rdma_bind_addr(made, found->ai_src_addr);
    rdma_freeaddrinfo(found);
    if (bound != 0) fail_errno("rdma_bind_addr");
    if (rdma_listen(made, 0) != 0) fail_errno("rdma_listen");
    return id;
  }

  void handle(const Event& event) {
    if (event.type == RDMA_CM_EVENT_TIMEWAIT_EXIT) return;
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return request(event);
    const auto found = connections_.find(event.id);
    check(found != connections_.end(), std::string(rdma_event_str(event.type)) + " of an unknown id");
    Connection& connection = found->second;
    switch (event.type) {
      case RDMA_CM_EVENT_ESTABLISHED:
        if (connection.scenario == Scenario::kServerEnds) {
          if (rdma_disconnect(event.id) != 0) fail_errno("rdma_disconnect");
        } else {
          check(connection.scenario == Scenario::kAccept, "ESTABLISHED of what the client was to reject");
          exchange(*connection.memory);
        }
        return;
      case RDMA_CM_EVENT_DISCONNECTED:
        if (rdma_disconnect(event.id) != 0) fail_errno("rdma_disconnect");
        break;
      case RDMA_CM_EVENT_REJECTED:
        check(connection.scenario == Scenario::kClientRejects, "REJECTED");
        check(event.status == 28, "REJECTED with status " + std::to_string(event.status));
        check_data(event.data, 0x31, kRejRoom, kRejRoom, "the client's REJ");
        break;
      default:
        throw Wrong(std::string(rdma_event_str(event.type)) + ", status " + std::to_string(event.status));
    }
    connections_.erase(found);
  }

  void request(const Event& event) {
    Id id(event.id);
    check(!event.data.empty(), "a request without private data");
    const auto scenario = static_cast<Scenario>(event.data[0]);
    const bool datagrams = event.id->qp_type == IBV_QPT_UD;
    check(event.listener == (datagrams ? datagrams_ : streams_).get(), "a request of another listener");
    check_data(event.data, event.data[0], request_size(scenario), datagrams ? kSidrReqRoom : kReqRoom, "a request");
    if (!datagrams) check_parameters(event.connection);
    switch (scenario) {
      case Scenario::kReject:
        return reject(event.id, 0x41, kRejRoom);
      case Scenario::kRejectDatagrams:
        return reject(event.id, 0x42, kSidrRepRoom);
      case Scenario::kQuit:
        quit_ = true;
        return reject(event.id, 0x43, 0);
      case Scenario::kDestroy:
        return;
      default:
        return accept(std::move(id), scenario);
    }
  }

  // As the client has set them, READs the other way round.
  static void check_parameters(const rdma_conn_param& asked) {
    check(asked.responder_resources == 4 && asked.initiator_depth == 3,
          "READs: " + std::to_string(asked.responder_resources) + ", " + std::to_string(asked.initiator_depth));
    check(asked.flow_control == 1 && asked.retry_count == 6 && asked.rnr_retry_count == 5 && asked.srq == 0,
          "flow control, retry counts or SRQ");
    check(asked.qp_num > 1, "no QP number");
  }

  static void reject(rdma_cm_id* id, uint8_t first, size_t size) {
    const std::vector<uint8_t> data = pattern(first, size);
    if (rdma_reject(id, data.data(), static_cast<uint8_t>(size)) != 0) fail_errno("rdma_reject");
  }

  void accept(Id id, Scenario scenario) {
    rdma_cm_id* const made = id.get();
    const bool datagrams = made->qp_type == IBV_QPT_UD;
    Connection& connection = connections_[made] = {std::move(id), scenario};
    connection.memory = std::make_unique<Memory>(made);
    connection.memory->post_receive();
    const std::vector<uint8_t> data = pattern(0x51, datagrams ? kSidrRepRoom : kRepRoom);
    rdma_conn_param answer{};
    answer.private_data = data.data();
    answer.private_data_len = static_cast<uint8_t>(data.size());
    answer.responder_resources = 4;
    answer.initiator_depth = 3;
    answer.flow_control = 1;
    answer.rnr_retry_count = 7;
    answer.qp_num = made->qp->qp_num;
    if (rdma_accept(made, &answer) != 0) fail_errno("rdma_accept");
    if (!datagrams) return;
    check(connection.memory->receive() == pattern(0x61, 1000), "a datagram with other bytes");
    connections_.erase(made);
  }

  static void exchange(Memory& memory) {
    check(memory.receive() == pattern(0x11, kMessage), "a message with other bytes");
    memory.send(memory.share(pattern(0x12, kMessage)));
  }

  Channel channel_;
  Id streams_, datagrams_;
  std::map<rdma_cm_id*, Connection> connections_;
  bool quit_ = false;
};

}  // namespace

void serve(const std::string& bind_address, const std::string& port) {
  Server server(bind_address, port);
  std::puts("listening");
  std::fflush(stdout);
  server.run();
}

}  // namespace uroce::cm_exchange
