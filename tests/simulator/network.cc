// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/network.h"

#include <utility>

namespace uroce::simulator {

Link& Network::add_link(const LinkConfig& config) {
  return *links.emplace_back(std::make_unique<Link>(events, random, config));
}

void Network::join_pair(const LinkConfig& forward_config, const LinkConfig& backward_config) {
  Link& forward = add_link(forward_config);
  Link& backward = add_link(backward_config);
  Host& a = *hosts.emplace_back(std::make_unique<Host>(events, uint16_t{1}, forward, &judge, algorithm));
  Host& b = *hosts.emplace_back(std::make_unique<Host>(events, uint16_t{2}, backward, &judge, algorithm));
  forward.connect([&b](Frame frame) { b.receive(std::move(frame)); });
  backward.connect([&a](Frame frame) { a.receive(std::move(frame)); });
}

void Network::join_star(int count, const LinkConfig& uplink, const LinkConfig& downlink) {
  fabric = std::make_unique<Switch>(events, random);
  for (int i = 0; i < count; ++i) {
    Link& up = add_link(uplink);
    Host& host =
        *hosts.emplace_back(std::make_unique<Host>(events, static_cast<uint16_t>(i + 1), up, &judge, algorithm));
    up.connect([this](Frame frame) { fabric->receive(std::move(frame)); });
    fabric->add_port(host.address(), downlink).connect([&host](Frame frame) { host.receive(std::move(frame)); });
  }
}

Network::Connection Network::connect(Host& host_a, Host& host_b, const transport::QpAttributes& attributes,
                                     uint32_t psn_a, uint32_t psn_b, const QpConfig& config_a,
                                     const QpConfig& config_b) {
  SimQp& a = host_a.add_qp(config_a);
  SimQp& b = host_b.add_qp(config_b);
  connect_one(host_a, a, host_b, b, attributes, psn_a, psn_b);
  connect_one(host_b, b, host_a, a, attributes, psn_b, psn_a);
  return {a, b};
}

void Network::connect_one(Host& host, SimQp& qp, Host& peer_host, SimQp& peer, transport::QpAttributes attributes,
                          uint32_t sq_psn, uint32_t rq_psn) {
  attributes.sq_psn = wire::Psn(sq_psn);
  attributes.rq_psn = wire::Psn(rq_psn);
  judge.declare(host, qp, peer_host.address(), peer.rc.qpn(), attributes);
  if (!qp.connect(peer_host.address(), peer.rc.qpn().value(), attributes)) judge.fail("a QP refused to connect");
}

transport::QpAttributes Network::default_attributes() {
  transport::QpAttributes a;
  a.access = memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic;
  a.path_mtu = 1024;
  a.max_rd_atomic = a.max_dest_rd_atomic = 16;
  a.min_rnr_timer = 12;  // 0.64 ms
  a.timeout = 14;        // 67 ms
  a.retry_count = 7;
  a.rnr_retry = 7;
  return a;
}

namespace {

Network& joined(Network& network, const LinkConfig& link) {
  network.join_pair(link, link);
  return network;
}

}  // namespace

Pair::Pair(uint64_t seed_of_all, const LinkConfig& link, const QpConfig& config)
    : Network(seed_of_all),
      host_a(*joined(*this, link).hosts[0]),
      host_b(*hosts[1]),
      forward(*links[0]),
      backward(*links[1]),
      a(host_a.add_qp(config)),
      b(host_b.add_qp(config)) {}

void Pair::connect(const transport::QpAttributes& attributes, uint32_t psn_a, uint32_t psn_b) {
  connect_one(host_a, a, host_b, b, attributes, psn_a, psn_b);
  connect_one(host_b, b, host_a, a, attributes, psn_b, psn_a);
}

}  // namespace uroce::simulator
