// SPDX-License-Identifier: BSD-2-Clause
#include "cli/check.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

#include "cli/exit_codes.h"
#include "pcapng/pcapng_writer.h"
#include "tests/oracle/cm_builder.h"
#include "tests/oracle/trace_builder.h"

namespace uroce::cli {
namespace {

using oracle::ack;
using oracle::send;
using oracle::Trace;
using testing::HasSubstr;

// A capture file for the time of a test, and what `uroce check` says about it.
class CheckCommand : public testing::Test {
 protected:
  ~CheckCommand() override { std::remove(options.file.c_str()); }

  void write_file(const std::vector<pcapng::Record>& records, bool directions = true, size_t cut_off = 0) {
    std::ostringstream bytes;
    pcapng::PcapngWriter writer(bytes);
    writer.add_interface("eth0");
    writer.add_interface("eth0:loop");
    for (pcapng::Record record : records) {
      if (!directions) record.direction = pcapng::Direction::kUnknown;
      writer.write(record);
    }
    const std::string text = bytes.str();
    std::ofstream(options.file, std::ios::binary) << text.substr(0, text.size() - cut_off);
  }
  int run() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = check(options);
    std::fflush(stdout);
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
    return code;
  }

  static std::vector<pcapng::Record> good_records() {
    Trace t(Trace::Undeclared{});
    fill(t);
    return t.records;
  }
  static std::vector<pcapng::Record> bad_records() {
    Trace t(Trace::Undeclared{});
    fill(t);
    t.wait(std::chrono::seconds(1));
    t.out(send(100));  // packet 5
    return t.records;
  }
  // What queue pair 0x101 sends to 0x202 of the same host, as our own captures have it; the last packet should not be.
  static std::vector<pcapng::Record> looped_records() {
    Trace t(Trace::Undeclared{});
    const auto to_itself = [](oracle::Spec spec) {
      spec.peer = 1;
      return spec;
    };
    t.out(to_itself(send(100)));
    t.in(to_itself(ack(100, 1)));
    t.wait(std::chrono::seconds(1));
    t.out(to_itself(send(100)));
    for (pcapng::Record& record : t.records) {
      record.direction = pcapng::Direction::kUnknown;
      record.interface = 1;
    }
    return t.records;
  }
  static void fill(Trace& t) {
    t.out(send(100));
    t.in(ack(100, 1));
    t.in(send(500));
    t.out(ack(500, 1));
  }

  CheckOptions options{.file = testing::TempDir() + "uroce_check_" + std::to_string(getpid()) + ".pcapng"};
  std::string out, err;
};

TEST_F(CheckCommand, GoodCapture) {
  write_file(good_records());
  EXPECT_EQ(run(), kExitOk) << out << err;
  EXPECT_THAT(out, HasSubstr("10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202"));
  EXPECT_THAT(out, HasSubstr("4 packets of 1 judged host: 0 violations\n"));
  EXPECT_EQ(err, "");
}

TEST_F(CheckCommand, Violation) {
  write_file(bad_records());
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(out, testing::StartsWith("packet 5 1.000004 s  10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202: "
                                       "resends-acknowledged: PSN 100"));
  EXPECT_THAT(out, HasSubstr("(IBTA 9.7.6.1)\n"));
  EXPECT_THAT(out, HasSubstr(": 1 violation\n"));
}

TEST_F(CheckCommand, ExchangesOfTheConnectionManager) {
  oracle::CmTrace t;
  t.connect();
  t.out(t.dreq());
  t.in(t.with_ids<wire::Drep>(false));
  wire::Req req = t.req(false);
  req.local_id = wire::CommId{0x3003};
  wire::Rej rej = t.rej(wire::CmAnswered::kOther);  // packet 7: should say that it is of the REQ
  rej.local_id = wire::CommId{0x1004};
  rej.remote_id = req.local_id;
  t.in(req);
  t.out(rej);
  write_file(t.records);
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(out, testing::StartsWith("packet 7 0.000006 s  10.0.0.1 qp 0x1 -> 10.0.0.2 qp 0x1: cm-reject: REJ"));
  EXPECT_THAT(out, HasSubstr("10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202  TCP port 7471  RC    3/2       established, "
                             "disconnected\n"));
  EXPECT_THAT(out, HasSubstr("rejected by 10.0.0.1: by the application (28)\n"));
}

TEST_F(CheckCommand, SlackIsTakenIntoAccount) {
  write_file(bad_records());
  options.slack = "2s";
  EXPECT_EQ(run(), kExitOk) << out;
}

TEST_F(CheckCommand, QuietPrintsOnlyViolations) {
  options.quiet = true;
  write_file(good_records());
  EXPECT_EQ(run(), kExitOk);
  EXPECT_EQ(out, "");
  write_file(bad_records());
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
}

TEST_F(CheckCommand, LimitCountsTheRest) {
  Trace t(Trace::Undeclared{});
  fill(t);
  t.wait(std::chrono::seconds(1));
  for (int i = 0; i < 3; ++i) t.out(send(100));
  write_file(t.records);
  options.limit = 1;
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(out, HasSubstr("... and 2 more: 2 resends-acknowledged\n"));
}

TEST_F(CheckCommand, Json) {
  options.json = true;
  write_file(bad_records());
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(out, HasSubstr("\"read_error\": null,\n  \"frames\": 5,\n  \"roce_packets\": 5,\n  \"segment_batches\": "
                             "0,\n  \"judged_hosts\": 1,\n"));
  EXPECT_THAT(out, HasSubstr("\"hosts_assumed\": false,\n  \"errors\": 1,\n  \"quirks\": 0,\n"));
  EXPECT_THAT(out,
              HasSubstr("{\"local\": \"10.0.0.1\", \"local_qpn\": 257, \"remote\": \"10.0.0.2\", \"remote_qpn\": 514, "
                        "\"packet\": 5, \"seconds\": 1.000004000, \"rule\": \"resends-acknowledged\", "
                        "\"severity\": \"error\", \"clause\": \"9.7.6.1\", \"text\": \"PSN 100"));
  EXPECT_THAT(out, HasSubstr("\"counts\": {\"packets_out\": 3, \"packets_in\": 2, "));
  EXPECT_THAT(out, HasSubstr("\"cm_exchanges\": [\n  ]\n}\n"));
}

// One object, whatever else there is to say.
TEST_F(CheckCommand, JsonOfABadFile) {
  options.json = true;
  write_file(good_records(), false, 5);
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(out, testing::StartsWith("{\n  \"file\": "));
  EXPECT_THAT(out, HasSubstr("\"hosts_assumed\": true,"));
  EXPECT_THAT(out, HasSubstr("the file ends within it"));
  EXPECT_THAT(out, testing::EndsWith("}\n"));
}

TEST_F(CheckCommand, JsonLists) {
  options.json = true;
  options.limit = 1;
  Trace t(Trace::Undeclared{});
  fill(t);
  t.wait(std::chrono::seconds(1));
  for (int i = 0; i < 3; ++i) t.out(send(100));
  write_file(t.records);
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(out, HasSubstr("\"errors\": 3,"));
  EXPECT_EQ(out.find("\"packet\":"), out.rfind("\"packet\":")) << out;
}

TEST_F(CheckCommand, WithoutDirectionsEveryAddressIsJudged) {
  write_file(good_records(), false);
  EXPECT_EQ(run(), kExitOk) << out;
  EXPECT_THAT(out, HasSubstr("--at names the host"));
  EXPECT_THAT(out, HasSubstr("8 packets of 2 judged hosts: 0 violations"));
}

// A file may have an address of its own for every packet, and every one is a host to judge.
TEST_F(CheckCommand, OfManyHostsThoseWithTheMostPacketsAreJudged) {
  Trace t(Trace::Undeclared{});
  for (uint8_t peer = 10; peer < 210; ++peer) {
    oracle::Spec spec = send(100u + peer);
    spec.peer = peer;
    t.out(spec);
    if (peer >= 200) t.out(spec);
  }
  write_file(t.records, false);
  options.json = true;
  EXPECT_EQ(run(), kExitOk) << err;
  EXPECT_THAT(out, HasSubstr("\"judged_hosts\": 64,"));
  EXPECT_THAT(out, HasSubstr("\"hosts_left_out\": 137,"));
  EXPECT_THAT(err, HasSubstr("only the 64 hosts with the most packets are judged, and 137 are not; --at names"));
  for (const char* address : {"10.0.0.1", "10.0.0.200", "10.0.0.209"}) {
    options.at = {address};
    run();
    EXPECT_THAT(out, HasSubstr("\"judged_hosts\": 1,"));
    EXPECT_EQ(err, "");
  }
}

TEST_F(CheckCommand, AtNamesTheHost) {
  write_file(bad_records(), false);
  options.at = {"10.0.0.2"};
  EXPECT_EQ(run(), kExitOk) << out;  // it is not its fault
  options.at = {"10.0.0.1"};
  EXPECT_EQ(run(), kExitFailed);
  options.at = {"10.0.0.3"};
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(err, HasSubstr("no RoCE v2 packets of 10.0.0.3"));
}

// Beside packets with directions, and alone: who sent it is clear, at whichever end.
TEST_F(CheckCommand, LoopedPacketsAreJudged) {
  std::vector<pcapng::Record> records = good_records();
  for (const pcapng::Record& record : looped_records()) records.push_back(record);
  write_file(records);
  EXPECT_EQ(run(), kExitFailed) << out;
  EXPECT_THAT(out, HasSubstr("packet 7 "));
  EXPECT_THAT(out, HasSubstr("10.0.0.1 qp 0x101 -> 10.0.0.1 qp 0x202: resends-acknowledged: PSN 100"));
  EXPECT_THAT(out, HasSubstr("7 packets of 2 judged hosts: 1 violation\n"));
  write_file(looped_records());
  EXPECT_EQ(run(), kExitFailed) << out;
  EXPECT_THAT(out, HasSubstr("3 packets of 1 judged host: 1 violation\n"));
  EXPECT_THAT(out, testing::Not(HasSubstr("--at names the host")));
}

TEST_F(CheckCommand, WithoutRoceThereIsNothingToJudge) {
  pcapng::Record record;
  record.frame.assign(60, 0);
  write_file({record});
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(err, HasSubstr("no RoCE v2 packets (UDP port 4791) among 1 frames"));
}

// The part that can be read is judged, but the file is not taken for good.
TEST_F(CheckCommand, TruncatedFile) {
  write_file(good_records(), true, 5);
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(err, HasSubstr("the file ends within it"));
  EXPECT_THAT(out, HasSubstr("3 packets of 1 judged host: 0 violations"));
}

}  // namespace
}  // namespace uroce::cli
