// SPDX-License-Identifier: BSD-2-Clause
// Two hosts and more in one process, each with a network that is a script, a connection manager and the rdma_cm files
// of one process; datagrams between them go through memory. And a client, which writes the commands as librdmacm does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "abi/rdma_cm_file/manager.h"
#include "cm/service.h"

namespace uroce::rdma_cm::test {

wire::IpAddress ip(const std::string& text);

// A network of netdevs that a test changes. On-link is what shares the first three bytes with an address, or is
// link-local.
class ScriptedView final : public net::NetView {
 public:
  void add_netdev(int index, const std::vector<std::string>& addresses, uint32_t mtu = 1500);
  void remove_netdev(int index);
  void change_mac(int index);
  void remove_address(int index, const std::string& address);
  // Of an address that goes, as a process hears of it; datagrams that were on their way still come.
  void remove_gid(int index, const std::string& address);
  // No memory for the kernel's news, from now on or no more. How often there was none.
  void fail(bool fails) { fails_ = fails; }
  uint32_t failures() const { return failures_; }
  // Next hops are usable at once unless said otherwise.
  void set_neighbour(const std::string& address, net::NeighbourState state);
  // Destinations that leave through `index`, by way of a gateway.
  void set_gateway(const std::string& destination, int index, const std::string& gateway);
  uint32_t asked(const std::string& address);  // how often the kernel was asked to resolve it

  std::vector<net::Netdev> netdevs() override;
  std::optional<net::Netdev> netdev(int index) override;
  std::optional<net::Route> route(int index, const wire::IpAddress& source, const wire::IpAddress& to) override;
  std::optional<net::Departure> departure(const wire::IpAddress& destination) override;
  std::shared_ptr<net::NextHop> next_hop(int index, const wire::IpAddress& address) override;
  net::Neighbour neighbour(int index, const wire::IpAddress& address) override;
  void resolve_neighbour(int index, const wire::IpAddress& address) override;
  int descriptor() const override { return -1; }
  bool process_changes() override;
  uint64_t generation() const override { return 1; }
  uint64_t requests() const override { return 0; }

 private:
  struct Gateway {
    int index;
    wire::IpAddress address;
  };
  const net::Netdev* exit_to(const wire::IpAddress& destination) const;
  void announce();

  std::mutex lock_;
  std::map<int, net::Netdev> netdevs_;
  std::map<std::string, Gateway> gateways_;
  std::map<std::string, net::NeighbourState> neighbours_;
  std::map<std::string, uint32_t> asked_;
  net::NextHops hops_;
  std::atomic<bool> fails_{false};
  std::atomic<uint32_t> failures_{0};
};

class TestAgent;

// Datagrams between the hosts, and their timers. One lock for all that is without locks of its own.
class Wire {
 public:
  Wire();
  ~Wire();
  std::mutex lock;
  void attach(TestAgent* agent);
  void detach(TestAgent* agent);
  void post(const cm::Datagram& datagram);  // the lock is held
  void wake();                              // likewise
  // From now on datagrams of this kind are lost.
  void lose(std::optional<wire::CmAttribute> kind);

 private:
  void run();
  void carry(const cm::Datagram& datagram);

  std::condition_variable changed_;
  std::set<TestAgent*> agents_;
  std::deque<cm::Datagram> under_way_;
  std::optional<wire::CmAttribute> lost_;
  bool ended_ = false;
  std::thread thread_;
};

class TestAgent final : public cm::Agent, private cm::Surroundings, private cm::Output {
 public:
  TestAgent(Wire& wire, ScriptedView& view, Handler handler);
  ~TestAgent() override;
  cm::Reply ask(const cm::Request& request) override;

  // The broker dies with all it knew; another one comes.
  void lose();
  void restore();
  size_t endpoints();
  size_t bindings();

 private:
  friend class Wire;
  bool has_address(uint32_t netdev, const wire::IpAddress& address) override;
  bool reaches(uint32_t, const wire::IpAddress&, const wire::IpAddress&) override { return true; }
  wire::Guid guid(uint32_t) override { return wire::Guid{1}; }
  bool is_others_qpn(cm::ClientId, wire::Qpn) override { return false; }
  bool is_privileged(cm::ClientId) override { return false; }
  cm::PortRange port_range() override { return {}; }
  void send(const cm::Datagram& datagram) override { wire_.post(datagram); }
  void on_event(const cm::Event& event) override { events_.push_back(event); }

  Wire& wire_;
  ScriptedView& view_;
  const Handler handler_;
  std::unique_ptr<cm::Service> service_;
  std::vector<cm::Event> events_;  // for the wire's thread to hand on
};

// A host with one process.
class LabHost {
 public:
  explicit LabHost(Wire& wire);
  ~LabHost();
  ScriptedView& view() { return view_; }
  Manager& manager() { return *manager_; }
  TestAgent& agent() { return *agent_; }
  // Packets have come for the QP.
  void receive_for(uint32_t qpn);
  void refuse_agent() { agent_error_ = ENODEV; }
  void set_binds_v6_only(bool only) { binds_v6_only_ = only; }

 private:
  std::mutex lock_;
  std::set<uint32_t> received_;
  int agent_error_ = 0;
  std::atomic<bool> binds_v6_only_{false};
  ScriptedView view_;
  std::shared_ptr<TestAgent> agent_;
  std::unique_ptr<Manager> manager_;
};

abi::Storage sockaddr_of(const std::string& address, uint16_t port, uint32_t scope = 0);
uint16_t size_of(const abi::Storage& address);

// An open file and the commands that are written to it. Each returns 0 or an errno value.
class Client {
 public:
  explicit Client(Manager& manager, int flags = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Manager& manager() { return manager_; }
  int fd() const { return fd_; }
  void close();

  // Any bytes. The result of write().
  ssize_t write(const void* bytes, size_t size);
  // A command with room for `out` bytes of an answer.
  template <class Body>
  int command(abi::Command which, const Body& body, size_t out = 0) {
    std::array<uint8_t, abi::kLongest> bytes{};
    const abi::Header header{static_cast<uint32_t>(which), static_cast<uint16_t>(sizeof(body)),
                             static_cast<uint16_t>(out)};
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
    const ssize_t result = write(bytes.data(), sizeof(header) + sizeof(body));
    if (result < 0) return static_cast<int>(-result);
    EXPECT_EQ(static_cast<size_t>(result), sizeof(header) + sizeof(body));
    return 0;
  }

  int create(wire::PortSpace space, uint64_t uid, uint32_t& id, uint8_t qp_type = abi::kRc);
  uint32_t create(wire::PortSpace space, uint64_t uid = 1);  // expects success
  int destroy(uint32_t id, uint32_t* reported = nullptr);
  int bind(uint32_t id, const abi::Storage& address);
  int listen(uint32_t id, int32_t backlog = 10);
  int resolve(uint32_t id, const abi::Storage& to, uint32_t ms = 2000, const abi::Storage* from = nullptr);
  int resolve_route(uint32_t id, uint32_t ms = 2000);
  int connect(uint32_t id, uint32_t qpn, const std::string& data = {});
  int accept(uint32_t id, uint64_t uid, uint32_t qpn, const std::string& data = {});
  int confirm(uint32_t id);
  int reject(uint32_t id, const std::string& data, uint8_t reason = 0);
  int disconnect(uint32_t id);
  int notify(uint32_t id, uint32_t event);
  int set_option(uint32_t id, uint32_t level, uint32_t name, const void* value, uint32_t size);
  int query(uint32_t id, uint32_t option, abi::QueryAddrAnswer& out);
  int query_path(uint32_t id, abi::QueryPathAnswer& out);
  int query_route(uint32_t id, abi::QueryRouteAnswer& out);
  int init_qp_attr(uint32_t id, uint32_t state, abi::QpAttr& out);
  int join(uint32_t id, const abi::Storage& group, uint64_t uid, uint32_t& number, uint16_t flags = 0);
  int leave(uint32_t number, uint32_t* reported = nullptr);
  int migrate(Client& from, uint32_t id, uint32_t* reported = nullptr);
  // Waits if the file is not O_NONBLOCK.
  int get_event(abi::Event& event);

  // The next event within ten seconds, without blocking in the file; fails the test if there is none.
  abi::Event next();
  // The next event is this one.
  abi::Event expect(abi::EventKind kind);
  bool readable(int milliseconds = 0) const;
  uint16_t port_of(uint32_t id);

 private:
  Manager& manager_;
  int fd_ = -1;
};

// Two hosts on one network, 192.0.2.1 and 192.0.2.2 (and 2001:db8::1, ::2), with a client at each.
struct Pair {
  Pair();
  // A listener at b, and the port.
  uint32_t listen(uint16_t& port, uint64_t uid = 100, wire::PortSpace space = wire::PortSpace::kTcp);
  // An id of a's with a route to b.
  uint32_t route(uint16_t port, uint64_t uid = 200, wire::PortSpace space = wire::PortSpace::kTcp);
  struct Connected {
    uint32_t active, passive, listener;
  };
  Connected connect();

  Wire wire;
  LabHost host_a, host_b;
  Client a, b;
};

}  // namespace uroce::rdma_cm::test
