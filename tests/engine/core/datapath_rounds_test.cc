// What one round of the data path does, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/core/cable_rig.h"

namespace uroce::engine::test {
namespace {

using testing::SizeIs;

class Rounds : public Cable {
 protected:
  // A QP whose sends are flushed in the round after they were posted.
  Station& failed() {
    Station& station = a.add(QpType::kRc);
    a.connect(station, b.address, 17);
    transport::QpAttributes attributes;
    attributes.state = QpState::kErr;
    EXPECT_EQ(station.qp->transport->modify(attributes, transport::kQpState, a.now), 0);
    a.datapath.reschedule(*station.qp, a.now);
    return station;
  }
};

// Threads take turns, and one may have read the clock long before it came to its round.
TEST_F(Rounds, TimeNeverGoesBackwards) {
  Station& station = failed();
  a.run();
  const Time latest = a.now;
  a.now -= std::chrono::milliseconds(1);
  a.post(station, work(WrOpcode::kSend, 1), 0, 8);
  a.run();
  const std::vector<Cqe> sends = station.sends();
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].timestamp, static_cast<uint64_t>(latest.time_since_epoch().count()));
}

}  // namespace
}  // namespace uroce::engine::test
