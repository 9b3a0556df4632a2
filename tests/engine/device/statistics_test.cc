// SPDX-License-Identifier: BSD-2-Clause
// What a device says of itself to who looks on.
#include "broker/protocol/statistics.h"

#include <gtest/gtest.h>

#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

TEST(Statistics, NoneBeforePacketsCanMove) {
  EXPECT_FALSE(make_engine()->statistics(10));
}

TEST(Statistics, QpsWithStateAndPeer) {
  const auto engine = make_engine();
  Connection connection(*engine);
  const auto statistics = engine->statistics(10);
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->name, "uroce_test0");
  EXPECT_EQ(statistics->netdev, "test0");
  EXPECT_FALSE(statistics->packet_io.empty());
  using Counts = std::map<std::pair<std::string, std::string>, uint64_t>;
  EXPECT_EQ(statistics->qp_counts, (Counts{{{"rc", "rts"}, 2}}));
  ASSERT_EQ(statistics->qps.size(), 2u);
  for (const broker::QpStatistics& qp : statistics->qps) {
    const bool is_a = qp.qpn == Engine::qpn(*connection.a);
    EXPECT_EQ(qp.qpn, Engine::qpn(is_a ? *connection.a : *connection.b));
    EXPECT_EQ(qp.peer_qpn, Engine::qpn(is_a ? *connection.b : *connection.a));
    EXPECT_EQ(qp.peer, kOwnAddress.text());
    EXPECT_EQ(qp.type, "rc");
    EXPECT_EQ(qp.state, "rts");
  }
}

TEST(Statistics, ManyQpsAreCountedAndSomeListed) {
  const auto engine = make_engine();
  CompletionQueue cq(16, nullptr);
  std::vector<Qp*> qps(3000);
  for (Qp*& qp : qps) {
    QpInit init;
    init.send_cq = init.recv_cq = &cq;
    ASSERT_EQ(engine->create_qp(init, qp), 0);
  }
  const auto statistics = engine->statistics(100);
  ASSERT_TRUE(statistics);
  EXPECT_EQ((statistics->qp_counts.at({"rc", "reset"})), qps.size());
  EXPECT_EQ(statistics->qps.size(), 100u);
  EXPECT_EQ(statistics->qps.front().peer, "");
  EXPECT_EQ(engine->statistics(UINT32_MAX)->qps.size(), qps.size());
  for (Qp* const qp : qps) engine->destroy_qp(qp);
  EXPECT_TRUE(engine->statistics(100)->qp_counts.empty());
}

// Every counter has a name of its own; those of the packet I/O as well.
TEST(Statistics, NamesOfCounters) {
  const auto engine = make_engine();
  Connection connection(*engine);
  broker::ProcessStatistics all;
  all.devices.push_back(*engine->statistics(0));
  std::map<std::string, uint64_t>& counters = all.devices[0].counters;
  EXPECT_EQ(counters.size(), static_cast<size_t>(Counter::kCount) + sizeof(io::IoCounters) / sizeof(uint64_t));
  for (const char* const name : {"drop_bad_icrc", "drop_no_buffer", "tx_retransmissions", "tx_packets", "rx_bytes"}) {
    EXPECT_TRUE(counters.contains(name)) << name;
  }
}

}  // namespace
}  // namespace uroce::engine::test
