// SPDX-License-Identifier: BSD-2-Clause
#include <cerrno>
#include <cstdio>
#include <rdma/rdma_cma.h>
#include <utility>

#include "tests/e2e/rdma_cm/endpoint.h"
#include "tests/e2e/rdma_cm/scenario.h"
#include "tests/e2e/rdma_cm/sides.h"

namespace uroce::cm_exchange {
namespace {

constexpr int kMilliseconds = 5000;

class Client {
 public:
  Client(std::string address, std::string port) : address_(std::move(address)), port_(std::move(port)) {}

  void accepted() {
    const Id id = resolve(RDMA_PS_TCP, port_);
    Memory memory(id.get());
    memory.post_receive();
    request(id.get(), Scenario::kAccept);
    check_answer(channel_.expect(RDMA_CM_EVENT_ESTABLISHED, id.get()));
    memory.send(pattern(0x11, kMessage));
    memory.read(memory.receive());
    std::vector<uint8_t> read = memory.bytes();
    read.resize(kMessage);
    check(read == pattern(0x12, kMessage), "a READ with other bytes");
    if (rdma_disconnect(id.get()) != 0) fail_errno("rdma_disconnect");
    channel_.expect(RDMA_CM_EVENT_DISCONNECTED, id.get());
  }

  void ended_by_server() {
    const Id id = resolve(RDMA_PS_TCP, port_);
    const Memory memory(id.get());
    request(id.get(), Scenario::kServerEnds);
    check_answer(channel_.expect(RDMA_CM_EVENT_ESTABLISHED, id.get()));
    channel_.expect(RDMA_CM_EVENT_DISCONNECTED, id.get());
    if (rdma_disconnect(id.get()) != 0) fail_errno("rdma_disconnect");
  }

  void rejected() { is_rejected(Scenario::kReject, port_, 28, 0x41, kRejRoom); }
  void destroyed() { is_rejected(Scenario::kDestroy, port_, 28, 0, 0); }
  void quit() { is_rejected(Scenario::kQuit, port_, 28, 0, 0); }
  // Nobody listens there: the reason is "invalid service id".
  void nobody() { is_rejected(Scenario::kAccept, std::to_string(std::stoi(port_) + 1), 8, 0, 0); }

  // The QP is one that rdma_cm knows nothing of, so the answer itself is shown.
  void rejects() {
    const Id id = resolve(RDMA_PS_TCP, port_);
    const Id other = resolve(RDMA_PS_TCP, port_);
    const Memory memory(other.get());
    request(id.get(), Scenario::kClientRejects, other->qp->qp_num);
    check_answer(channel_.expect(RDMA_CM_EVENT_CONNECT_RESPONSE, id.get()));
    const std::vector<uint8_t> data = pattern(0x31, kRejRoom);
    if (rdma_reject(id.get(), data.data(), static_cast<uint8_t>(data.size())) != 0) fail_errno("rdma_reject");
  }

  void too_long() {
    const Id id = resolve(RDMA_PS_TCP, port_);
    const Memory memory(id.get());
    const std::vector<uint8_t> data = pattern(1, kReqRoom + 1);
    rdma_conn_param asked = parameters(data);
    const int result = rdma_connect(id.get(), &asked);
    check(result != 0 && errno == EINVAL, "private data that is too long is taken");
  }

  void datagrams() {
    const Id id = resolve(RDMA_PS_UDP, port_);
    Memory memory(id.get());
    request(id.get(), Scenario::kAcceptDatagrams);
    const Event event = channel_.expect(RDMA_CM_EVENT_ESTABLISHED, id.get());
    check(event.status == 0, "status " + std::to_string(event.status));
    check_data(event.data, 0x51, kSidrRepRoom, kSidrRepRoom, "SIDR_REP");
    check(event.datagrams.qp_num > 1 && event.datagrams.qkey != 0, "no QP number, or no Q_Key");
    memory.send_datagram(event.datagrams, pattern(0x61, 1000));
  }
  void datagrams_rejected() { is_unreachable(Scenario::kRejectDatagrams, port_, 2); }
  void datagrams_to_nobody() { is_unreachable(Scenario::kAcceptDatagrams, std::to_string(std::stoi(port_) + 1), 1); }

 private:
  Id resolve(rdma_port_space space, const std::string& port) {
    rdma_cm_id* made = nullptr;
    if (rdma_create_id(channel_.get(), &made, nullptr, space) != 0) fail_errno("rdma_create_id");
    Id id(made);
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_port_space = space;
    if (rdma_getaddrinfo(address_.c_str(), port.c_str(), &hints, &found) != 0) fail_errno("rdma_getaddrinfo");
    const int resolving = rdma_resolve_addr(made, nullptr, found->ai_dst_addr, kMilliseconds);
    rdma_freeaddrinfo(found);
    if (resolving != 0) fail_errno("rdma_resolve_addr");
    channel_.expect(RDMA_CM_EVENT_ADDR_RESOLVED, made);
    if (rdma_resolve_route(made, kMilliseconds) != 0) fail_errno("rdma_resolve_route");
    channel_.expect(RDMA_CM_EVENT_ROUTE_RESOLVED, made);
    return id;
  }

  static rdma_conn_param parameters(const std::vector<uint8_t>& data) {
    rdma_conn_param asked{};
    asked.private_data = data.data();
    asked.private_data_len = static_cast<uint8_t>(data.size());
    asked.responder_resources = 3;
    asked.initiator_depth = 4;
    asked.flow_control = 1;
    asked.retry_count = 6;
    asked.rnr_retry_count = 5;
    return asked;
  }

  static void request(rdma_cm_id* id, Scenario scenario, uint32_t qpn = 0) {
    const std::vector<uint8_t> data = pattern(static_cast<uint8_t>(scenario), request_size(scenario));
    rdma_conn_param asked = parameters(data);
    asked.qp_num = qpn;
    if (rdma_connect(id, &asked) != 0) fail_errno("rdma_connect");
  }

  static void check_answer(const Event& event) {
    check(event.status == 0, "status " + std::to_string(event.status));
    check_data(event.data, 0x51, kRepRoom, kRepRoom, "REP");
    check(event.connection.responder_resources == 3 && event.connection.initiator_depth == 4,
          "READs: " + std::to_string(event.connection.responder_resources) + ", " +
              std::to_string(event.connection.initiator_depth));
  }

  void is_rejected(Scenario scenario, const std::string& port, int reason, uint8_t first, size_t size) {
    const Id id = resolve(RDMA_PS_TCP, port);
    const Memory memory(id.get());
    request(id.get(), scenario);
    const Event event = channel_.expect(RDMA_CM_EVENT_REJECTED, id.get());
    check(event.status == reason, "REJECTED with status " + std::to_string(event.status));
    check_data(event.data, first, size, kRejRoom, "REJ");
  }

  void is_unreachable(Scenario scenario, const std::string& port, int status) {
    const Id id = resolve(RDMA_PS_UDP, port);
    const Memory memory(id.get());
    request(id.get(), scenario);
    const Event event = channel_.expect(RDMA_CM_EVENT_UNREACHABLE, id.get());
    check(event.status == status, "UNREACHABLE with status " + std::to_string(event.status));
  }

  const std::string address_, port_;
  Channel channel_;
};

struct Step {
  const char* of;
  const char* name;
  void (Client::*run)();
};
constexpr Step kSteps[] = {
    {"rc", "accepted", &Client::accepted},
    {"rc", "ended by the server", &Client::ended_by_server},
    {"rc", "rejected", &Client::rejected},
    {"rc", "destroyed", &Client::destroyed},
    {"rc", "rejects the answer", &Client::rejects},
    {"rc", "nobody listens", &Client::nobody},
    {"rc", "private data too long", &Client::too_long},
    {"ud", "datagrams accepted", &Client::datagrams},
    {"ud", "datagrams rejected", &Client::datagrams_rejected},
    {"ud", "nobody listens for datagrams", &Client::datagrams_to_nobody},
    {"rc", "accepted again", &Client::accepted},
};

}  // namespace

void call(const std::string& address, const std::string& port, const std::string& which) {
  Client client(address, port);
  for (const Step& step : kSteps) {
    if (which != "all" && which != step.of) continue;
    try {
      (client.*step.run)();
    } catch (const Wrong& wrong) {
      throw Wrong(std::string(step.name) + ": " + wrong.what());
    }
    std::printf("ok: %s\n", step.name);
    std::fflush(stdout);
  }
  client.quit();
}

}  // namespace uroce::cm_exchange
