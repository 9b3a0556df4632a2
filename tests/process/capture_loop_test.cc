// SPDX-License-Identifier: BSD-2-Clause
// A capture to a file shows what two queue pairs of one process say to each other, and `uroce check`'s oracle finds
// nothing wrong with it.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

#include "oracle/oracle.h"
#include "pcapng/capture_reader.h"
#include "process/capture_setup.h"
#include "tests/engine/device/engine_rig.h"
#include "wire/bth.h"

namespace uroce::engine::test {
namespace {

std::variant<OpenedIo, io::IoError> open_captured(const net::Netdev& netdev, const Options& options) {
  OpenedIo opened;
  opened.io.push_back(io::make_memory_loop());
  add_faults_and_capture(opened, netdev, options);
  return opened;
}

TEST(CaptureLoop, ConnectionsWithinAProcessAreInTheCapture) {
  const std::string file = testing::TempDir() + "uroce_capture_loop_" + std::to_string(getpid()) + ".pcapng";
  constexpr uint64_t kMessages = 100;
  uint64_t packets = 0;
  {
    Options options;
    options.capture = file;
    options.quiet = true;
    auto view = std::make_shared<FixedNetView>();
    const net::Netdev netdev = *view->netdev(1);
    const auto engine = std::make_shared<Engine>(
        std::make_unique<Device>(netdev, view, options.of_devices(),
                                 [&options](const net::Netdev& which) { return open_captured(which, options); }));
    Connection c(*engine);
    Buffer buffer(*engine);
    uint64_t sent = 0, received = 0;
    for (uint64_t i = 0; i < kMessages; ++i) {
      const queue::Sge sge = buffer.sge(0);
      ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
      ASSERT_TRUE(c.send(*c.a, i));
      while (sent <= i || received <= i) {
        engine->progress();
        sent += c.cq_a.poll(1, [&](const Cqe& cqe) { ASSERT_EQ(cqe.status, WcStatus::kSuccess); });
        received += c.cq_b.poll(1, [&](const Cqe& cqe) { ASSERT_EQ(cqe.status, WcStatus::kSuccess); });
      }
    }
  }
  finish_captures();
  std::ifstream in(file, std::ios::binary);
  pcapng::CaptureReader reader(in);
  oracle::Oracle oracle{oracle::Options{}};
  oracle.add_local(kOwnAddress);
  pcapng::Record record;
  std::set<uint32_t> requests;  // PSNs: where the thread does not run for a while, a probe sends one again
  while (reader.next(record) == pcapng::ReadResult::kRecord) {
    ++packets;
    EXPECT_EQ(reader.interfaces()[record.interface].name, "test0:loop");
    EXPECT_EQ(record.direction, pcapng::Direction::kUnknown);
    pcapng::RocePart part;
    ASSERT_EQ(pcapng::parse_record(record, part), wire::FrameError::kNone);
    const wire::Bth bth = wire::Bth::parse(wire::BthView::at(part.ib.data()));
    if (bth.opcode == wire::Opcode::kRcSendOnly) requests.insert(bth.psn.value());
    oracle.add(record);
  }
  oracle.finish(record.time);
  EXPECT_EQ(requests.size(), kMessages) << "of " << packets << " packets";
  EXPECT_GT(packets, kMessages) << "the ACKs";
  for (const auto& violation : oracle.violations()) ADD_FAILURE() << violation.packet << ": " << violation.text;
  EXPECT_EQ(oracle.summary().size(), 2u) << "one for each queue pair";
  for (const auto& summary : oracle.summary()) EXPECT_TRUE(summary.name.local_qpn && summary.name.remote_qpn);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace uroce::engine::test
