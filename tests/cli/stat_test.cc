// SPDX-License-Identifier: BSD-2-Clause
// What `uroce stat` makes of what processes say: rates, and output for people and programs.
#include <cstdint>
#include <gmock/gmock.h>
#include <regex>
#include <set>
#include <sstream>

#include "cli/stat_figures.h"
#include "cli/stat_formats.h"
#include "cli/stat_looks.h"
#include "cli/stat_text.h"

namespace uroce::cli {
namespace {

using broker::DeviceStatistics;
using broker::Process;
using broker::QpStatistics;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kSecond = 1'000'000'000;

Process process(uint64_t client, uint64_t time, const std::map<std::string, uint64_t>& counters,
                std::vector<QpStatistics> qps = {}) {
  Process made{.client = client, .pid = 100, .uid = 0, .program = "ib_send_bw", .answer = Process::Answer::kWhole};
  made.pid += static_cast<pid_t>(client);
  DeviceStatistics device{.name = "uroce_eth0", .netdev = "eth0", .packet_io = "udp", .counters = counters};
  for (const QpStatistics& qp : qps) ++device.qp_counts[{qp.type, qp.state}];
  device.qps = std::move(qps);
  made.statistics = {.time = time, .devices = {std::move(device)}};
  return made;
}

QpStatistics qp(uint32_t qpn, uint32_t sent, uint32_t received) {
  return {
      .qpn = qpn, .type = "rc", .state = "rts", .peer_qpn = 7, .peer = "192.0.2.1", .sent = sent, .received = received};
}

Process silent(uint64_t client) {
  return {.client = client, .pid = 0, .uid = 4'000'000'000, .program = "a\"b\\c{", .answer = Process::Answer::kNone};
}

Figures figures(std::vector<Process> now, const std::vector<Process>& before, double interval = 2) {
  return {.broker = "uroced 1", .interval = interval, .processes = figures_of(std::move(now), before)};
}

Figures two_processes() {
  return figures(
      {process(1, 3 * kSecond,
               {{"tx_packets", 3000},
                {"tx_bytes", 300},
                {"tx_retransmissions", 40},
                {"drop_bad_icrc", 7},
                {"drop_no_receive", 2},
                {"probes", 1}},
               {qp(1, 10, 20), qp(2, 4000, 0)}),
       silent(2)},
      {process(1, 1 * kSecond, {{"tx_packets", 1000}, {"tx_bytes", 100}, {"drop_bad_icrc", 3}}, {qp(2, 0, 0)}),
       silent(2)});
}

// --- figures --------------------------------------------------------------------------------------------------------

TEST(StatFigures, RatesByTheClockOfTheProcess) {
  const DeviceFigures device = two_processes().processes[0].devices[0];
  EXPECT_EQ(device.totals.tx_packets, 3000u);
  EXPECT_DOUBLE_EQ(device.rates.tx_packets, 1000);
  EXPECT_DOUBLE_EQ(device.rates.tx_bytes, 100);
  EXPECT_DOUBLE_EQ(device.rates.retransmissions, 20);
  EXPECT_EQ(device.totals.drops, 9u);
  EXPECT_DOUBLE_EQ(device.rates.drops, 3);
  EXPECT_DOUBLE_EQ(device.drops.at("bad_icrc").rate, 2);
  EXPECT_EQ(device.drops.at("no_receive").total, 2u);
  EXPECT_EQ(device.qp_count, 2u);
  ASSERT_EQ(device.qps.size(), 2u);
  EXPECT_EQ(device.qps[0].now.qpn, 2u) << "the busiest first";
  EXPECT_DOUBLE_EQ(device.qps[0].sent, 2000);
  EXPECT_DOUBLE_EQ(device.qps[1].sent, 0) << "it is new";
}

TEST(StatFigures, PsnsWrapAndGoBack) {
  const auto rates = [](uint32_t before, uint32_t now) {
    return figures({process(1, 2 * kSecond, {}, {qp(1, now, 0)})}, {process(1, kSecond, {}, {qp(1, before, 0)})})
        .processes[0]
        .devices[0]
        .qps[0]
        .sent;
  };
  EXPECT_DOUBLE_EQ(rates(0xfffff0, 0x10), 32);
  EXPECT_DOUBLE_EQ(rates(100, 50), 0);
  EXPECT_DOUBLE_EQ(rates(0, UINT32_MAX), 0) << "no PSN";
}

TEST(StatFigures, WhatCannotBeTrueHasNoRate) {
  const auto of = [](uint64_t time, uint64_t packets) {
    return figures({process(1, time, {{"tx_packets", packets}, {"drop_a", UINT64_MAX}, {"drop_b", UINT64_MAX}})},
                   {process(1, 5, {{"tx_packets", 10}})})
        .processes[0];
  };
  EXPECT_DOUBLE_EQ(of(6, 5).devices[0].rates.tx_packets, 0) << "went back";
  EXPECT_FALSE(of(5, 20).has_rates) << "no time has passed";
  EXPECT_FALSE(of(0, 20).has_rates);
  EXPECT_GT(of(UINT64_MAX, UINT64_MAX).devices[0].rates.tx_packets, 0);
}

TEST(StatFigures, ProcessesOfOneNumberBelongTogetherAndTheBusiestIsFirst) {
  const auto seen = figures({process(1, 2 * kSecond, {{"tx_bytes", 10}}), process(3, 2 * kSecond, {{"tx_bytes", 900}})},
                            {process(1, kSecond, {{"tx_bytes", 0}}), process(3, kSecond, {{"tx_bytes", 700}})});
  EXPECT_EQ(seen.processes[0].process.client, 3u);
  EXPECT_DOUBLE_EQ(seen.processes[0].devices[0].rates.tx_bytes, 200);
  EXPECT_FALSE(figures({process(4, 9, {})}, {process(1, 1, {})}).processes[0].has_rates);
}

// --- JSON and Prometheus --------------------------------------------------------------------------------------------

TEST(StatFormats, Json) {
  const std::string json = stat_json(two_processes());
  EXPECT_THAT(json, HasSubstr(R"("broker": "uroced 1")"));
  EXPECT_THAT(json, HasSubstr(R"("client": 2, "pid": null, "uid": 4000000000, "user": "4000000000", )"
                              R"("program": "a\"b\\c{", "answer": "none", "devices": [])"));
  EXPECT_THAT(json, HasSubstr(R"("totals": {"tx_packets": 3000, "tx_bytes": 300, "rx_packets": 0, "rx_bytes": 0, )"
                              R"("retransmissions": 40, "drops": 9})"));
  EXPECT_THAT(json, HasSubstr(R"("drops": {"bad_icrc": 7, "no_receive": 2})"));
  EXPECT_THAT(json, HasSubstr(R"({"qpn": 2, "type": "rc", "state": "rts", "peer_qpn": 7, "peer": "192.0.2.1", )"
                              R"("sent_psn": 4000, "received_psn": 0, "posted_sends": 0, "posted_receives": 0, )"
                              R"("rates": {"sent": 2000, "received": 0}})"));
  EXPECT_THAT(stat_json(figures({process(1, 1, {})}, {}, 0)), HasSubstr(R"("rates": null)"));
}

Figures with_connections() {
  Figures all = two_processes();
  all.connections = broker::ConnectionsStatistics{
      .ids = 3,
      .counters = {{"requests", 5}, {"gsi_drop_icrc", 1}},
      .connections = {{.client = 1, .id = 9, .state = "listen", .transport = "rc", .service = 0x01061d2f},
                      {.id = 10,
                       .state = "timewait",
                       .transport = "rc",
                       .service = 0x1234567890,
                       .local = "192.0.2.1",
                       .remote = "192.0.2.2",
                       .local_qpn = 0x11,
                       .remote_qpn = 0x12,
                       .remote_id = 13}}};
  return all;
}

TEST(StatFormats, ConnectionsInJson) {
  EXPECT_THAT(stat_json(two_processes()), HasSubstr("\"connections\": null\n}"));
  EXPECT_THAT(
      stat_json(with_connections()),
      HasSubstr(R"("connections": {"id_count": 3, "counters": {"gsi_drop_icrc": 1, "requests": 5}, "ids": )"
                R"([{"client": 1, "id": 9, "state": "listen", "transport": "rc", "service": 17177903, "local": null, )"
                R"("remote": null, "qpn": 0, "peer_qpn": 0, "peer_id": 0}, {"client": null, "id": 10, )"
                R"("state": "timewait", "transport": "rc", "service": 78187493520, "local": "192.0.2.1", )"
                R"("remote": "192.0.2.2", "qpn": 17, "peer_qpn": 18, "peer_id": 13}]})"));
}

TEST(StatText, Connections) {
  const std::vector<std::string> lines = stat_lines(with_connections());
  EXPECT_EQ(lines.front(), "uroced 1: 2 processes, 2 QPs, 3 CM ids");
  EXPECT_THAT(lines, testing::Contains("PID TRANSPORT STATE    SERVICE      LOCAL     REMOTE         QPN PEER QPN"));
  EXPECT_THAT(lines, testing::Contains("101 rc        listen   tcp:7471     *         -                -        -"));
  EXPECT_THAT(lines, testing::Contains("  - rc        timewait 0x1234567890 192.0.2.1 192.0.2.2 0x000011 0x000012"));
}

// The grammar of the text format: HELP, TYPE, then the samples of that metric, each series once.
TEST(StatFormats, PrometheusIsValid) {
  const std::string text = stat_prometheus(with_connections());
  const std::regex sample(R"rx(([a-z_]+)\{(([a-z]+="([^"\\]|\\["\\n])*",?)+)\} [0-9]+)rx");
  std::set<std::string> metrics, series;
  std::string current;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    if (std::regex_match(line, parts, std::regex("# HELP ([a-z_]+) .+"))) {
      current = parts[1];
      EXPECT_TRUE(metrics.insert(current).second) << line;
    } else if (line.starts_with('#')) {
      const char* const type = current.ends_with("_total") ? " counter" : " gauge";
      EXPECT_EQ(line, "# TYPE " + current + type);
    } else {
      ASSERT_TRUE(std::regex_match(line, parts, sample)) << line;
      EXPECT_EQ(parts[1], current);
      EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  }
  EXPECT_EQ(metrics.size(), 11u);
  EXPECT_TRUE(text.ends_with('\n'));
  EXPECT_THAT(
      text,
      HasSubstr("uroce_process_answers{client=\"2\",pid=\"0\",user=\"4000000000\",program=\"a\\\"b\\\\c{\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("uroce_drops_total{client=\"1\",pid=\"101\",user=\"root\",program=\"ib_send_bw\","
                              "device=\"uroce_eth0\",reason=\"bad_icrc\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("type=\"rc\",state=\"rts\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("uroce_cm_ids{state=\"listen\",transport=\"rc\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("uroce_cm_events_total{event=\"requests\"} 5\n"));
}

// --- for people -----------------------------------------------------------------------------------------------------

TEST(StatText, ShortNumbers) {
  std::vector<std::string> texts;
  for (const double value :
       {0.0, 0.04, 0.05, 0.5, 7.0, 12.34, 99.96, 100.4, 999.4, 999.6, 1000.0, 12345.0, 999.7e3, 1.5e9, 2e19, -1.0}) {
    texts.push_back(short_number(value));
  }
  EXPECT_THAT(texts, ElementsAre("0", "0", "0.1", "0.5", "7", "12.3", "100", "100", "999", "1.00k", "1.00k", "12.3k",
                                 "1.00M", "1.50G", "20.0E", "0"));
  EXPECT_EQ(short_number(std::numeric_limits<double>::quiet_NaN()), "0");
  EXPECT_LT(short_number(std::numeric_limits<double>::infinity()).size(), 8u);
}

TEST(StatText, Tables) {
  EXPECT_THAT(stat_lines(two_processes()),
              ElementsAre("uroced 1: 2 processes, 2 QPs", "",
                          "PID USER       PROGRAM    NETDEV      QPS TX b/s pkt/s RX b/s pkt/s RETX/s DROP/s",
                          "101 root       ib_send_bw eth0          2    800 1.00k      0     0     20      3",
                          "  - 4000000000 a\"b\\c{     (no answer)", "", "PID NETDEV DROP/s DROPS REASON",
                          "101 eth0        2     7 bad_icrc", "101 eth0        1     2 no_receive", "",
                          "PID NETDEV      QPN TYPE STATE PEER QPN PEER      SENT/s RECV/s SENDS RECVS",
                          "101 eth0   0x000002 rc   rts   0x000007 192.0.2.1  2.00k      0     0     0",
                          "101 eth0   0x000001 rc   rts   0x000007 192.0.2.1      0      0     0     0"));
}

TEST(StatText, TotalsWhereNobodyAskedForRates) {
  const std::vector<std::string> lines = stat_lines(figures({process(1, 1, {{"tx_packets", 3000}})}, {}, 0));
  EXPECT_THAT(lines[2], HasSubstr("TX bits"));
  EXPECT_THAT(lines[3], HasSubstr("3.00k"));
  const std::vector<std::string> first = stat_lines(figures({process(1, 1, {{"tx_packets", 3000}})}, {}));
  EXPECT_THAT(first[3], testing::AllOf(Not(HasSubstr("3.00k")), HasSubstr(" - ")));
}

TEST(StatText, FitsTheScreenAndSaysWhatIsLeftOut) {
  std::vector<Process> many;
  for (uint64_t i = 1; i <= 50; ++i) many.push_back(process(i, 1, {{"drop_a", 1}}, {qp(1, 0, 0), qp(2, 0, 0)}));
  for (size_t rows = 1; rows < 200; ++rows) {
    const std::vector<std::string> lines = stat_lines(figures(many, {}), rows);
    ASSERT_LE(lines.size(), rows);
  }
  const std::vector<std::string> lines = stat_lines(figures(many, {}), 24);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), is_heading), 3);
  EXPECT_EQ(lines.back().substr(0, 4), "... ");
  size_t shown = 0;
  for (const std::string& line : lines) shown += line.ends_with(" 192.0.2.1      -      -     0     0") ? 1 : 0;
  EXPECT_EQ(lines.back(), "... " + std::to_string(100 - shown) + " more");
}

TEST(StatText, RowsStandBelowTheirHeading) {
  const std::vector<std::string> rows = stat_rows(two_processes(), "13:05:22");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].size(), stat_rows_heading().size());
  EXPECT_TRUE(rows[0].starts_with("13:05:22     101 root     ib_send_bw      eth0                2    800"));
  EXPECT_TRUE(rows[1].ends_with("(no answer)"));
}

TEST(StatLooks, FewOfTheBrokersThatSomebodySeemsToHave) {
  const auto of = [](int names) {
    std::stringstream text("Num       RefCount Protocol Flags    Type St Inode Path\n");
    text.seekp(0, std::ios::end);
    for (int i = 0; i < 2 * names; ++i) {
      text << "0000000000000000: 00000002 00000000 00010000 0005 01 18403 @uroced-" << i % names << "\n";
    }
    text << "0000000000000000: 00000002 00000000 00010000 0005 01 18404 @other\n";
    return brokers_in(text);
  };
  EXPECT_EQ(of(0), "");
  EXPECT_EQ(of(2), "@uroced-0, @uroced-1");
  EXPECT_THAT(of(12), testing::EndsWith("@uroced-9 and 2 others"));
  EXPECT_THAT(of(100'000), testing::EndsWith("@uroced-9 and 991 or more others"));
}

}  // namespace
}  // namespace uroce::cli
