// SPDX-License-Identifier: BSD-2-Clause
// Two hosts, a listener, and connections brought into any state: for the tests of cm.md "States" and "Timers".
#pragma once

#include <gtest/gtest.h>
#include <vector>

#include "tests/cm/lab.h"

namespace uroce::cm::test {

struct States : testing::Test {
  Lab lab;
  Host a{lab, v4(1)}, b{lab, v4(2)};
  Id listener = b.listen(kPort);

  // Loses what `from` sends of this kind from now on.
  void lose(const Host& from, wire::CmAttribute kind) {
    lab.filter = [&from, kind](const Datagram& datagram) {
      wire::CmMad mad;
      wire::parse_cm(datagram.mad, mad);
      return datagram.source != from.address || wire::attribute_of(mad.message) != kind;
    };
  }
  void lose_all() {
    lab.filter = [](const Datagram&) { return false; };
  }
  void lose_none() { lab.filter = nullptr; }

  // A REQ has arrived at b and waits for accept().
  Pair request() {
    const Id active = a.connect(b, kPort);
    lab.settle();
    return {active, b.expect(EventKind::kConnectRequest).id};
  }
  // The REP has arrived at a and waits for confirm().
  Pair response() {
    const Pair ids = request();
    EXPECT_EQ(b.accept(ids.passive), 0);
    lab.settle();
    EXPECT_EQ(a.expect(EventKind::kConnectResponse).id, ids.active);
    return ids;
  }
  Pair established() {
    const Pair ids = establish(lab, a, b, kPort);
    a.sent_kinds();
    b.sent_kinds();
    return ids;
  }
  // When the messages of this kind were sent, from the first one on.
  static std::vector<Duration> times(const Host& host, wire::CmAttribute kind) {
    std::vector<Duration> at;
    for (const Sent& sent : host.sent) {
      if (sent.kind() == kind) at.push_back(sent.at.time_since_epoch());
    }
    for (size_t i = at.size(); i-- > 0;) at[i] -= at[0];
    return at;
  }
  static std::vector<Duration> sixteen(Duration apart) {
    std::vector<Duration> at;
    for (int i = 0; i < 16; ++i) at.push_back(i * apart);
    return at;
  }
};

}  // namespace uroce::cm::test
